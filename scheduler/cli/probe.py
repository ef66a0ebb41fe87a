"""`jct probe`: how much more work a stage could take before the step grows. Works offline."""

from pathlib import Path
from typing import Annotated

import typer


def probe(
    file: Annotated[Path, typer.Argument(help="Profile file (.json) or job file.")],
    stage: Annotated[int, typer.Option(min=0, help="Stage, counted from 0.")],
    gpus: Annotated[str | None, typer.Option(help="GPU count of the plan; of a job file by default its most.")] = None,
    latency: Annotated[str, typer.Option(help="Of a transfer between ranks, one way.")] = "0s",
    bandwidth: Annotated[str | None, typer.Option(help="Between ranks, such as 12GB/s; else unlimited.")] = None,
    slow: Annotated[str, typer.Option(help='Slowed ranks, such as "2:1.5".')] = "",
    global_batch: Annotated[int | None, typer.Option(min=1, help="Samples in a step.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Report a stage's slack in the best 1F1B plan without replicas."""
    import json

    from policies.report import period_slack_s, pipeline_of, slack_s
    from scheduler.cli.planning import menu, question
    from scheduler.cli.units import show_seconds

    profile = file if file.suffix == ".json" else None
    try:
        asked = question(
            None if profile else file, profile, None, gpus=gpus or ("4" if profile else None), latency=latency,
            bandwidth=bandwidth, slow=slow, replicas="1", global_batch=global_batch,
        )  # fmt: skip
        _, ranked = max(menu(asked).items())
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    plan = ranked[0].plan
    if stage >= len(plan.stages):
        raise typer.BadParameter(f"the plan has stages 0 to {len(plan.stages) - 1}, not {stage}")
    order, times = pipeline_of(plan, asked.costs(plan.microbatch_size), asked.kind, asked.search.slow)
    now, step, period = times.compute_s[stage], slack_s(order, times, stage), period_slack_s(times, stage)
    if json_:
        answer = {
            "apiVersion": "v1",
            "stage": stage,
            "stages": len(plan.stages),
            "layers": [plan.stages[stage].first, plan.stages[stage].stop],
            "compute_s": now,
            "step_time_s": ranked[0].step_time_s,
            "step_slack_s": step,
            "period_slack_s": period,
        }
        typer.echo(json.dumps(answer, indent=2))
        return
    typer.echo(
        f"Stage {stage} of {len(plan.stages)} (layers {plan.stages[stage].first} to {plan.stages[stage].stop - 1}) "
        f"computes {show_seconds(now)} a micro-batch.\n"
        f"It can take {show_seconds(step)} more ({step / now:.1%}) before the step of "
        f"{show_seconds(ranked[0].step_time_s)} grows at all,\n"
        f"and {show_seconds(period)} more ({period / now:.1%}) before every further micro-batch costs time."
    )
