"""`jct timeline`: draw a step, of a job file's plan or from durations given by hand. Works offline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from policies.cost import Durations
    from policies.timing import Compiled
    from scheduler.picture.chart import Chart


def timeline(
    jobfile: Annotated[Path | None, typer.Argument(help="Job file whose plan is drawn, at its most GPUs.")] = None,
    schedule: Annotated[str, typer.Option(help="Name of the schedule, such as 1f1b or zbv.")] = "1f1b",
    stages: Annotated[int, typer.Option(min=1, help="Ranks of the pipeline.")] = 4,
    microbatches: Annotated[int, typer.Option(min=1, help="Micro-batch count of a step.")] = 8,
    chunks: Annotated[int | None, typer.Option(min=1, help="Stages a rank holds (interleaved-1f1b).")] = None,
    slices: Annotated[int | None, typer.Option(min=1, help="Token slices of a sequence (sliced-1f1b).")] = None,
    forward: Annotated[str, typer.Option(help="Forward time of a stage and micro-batch, such as 10ms.")] = "1s",
    backward_input: Annotated[str, typer.Option(help="Input half of the backward.")] = "1s",
    backward_weight: Annotated[str, typer.Option(help="Weight half of the backward.")] = "1s",
    comm: Annotated[str, typer.Option(help="One-way latency of a boundary between ranks.")] = "0s",
    stage_scale: Annotated[
        list[str] | None, typer.Option(help="Factor on each stage's times, comma separated, one a stage.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the timeline as JSON.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Write an SVG picture.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a PNG picture.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace.")] = None,
) -> None:
    """Draw when each rank computes what, and why it idles in between."""
    from policies.cost import Durations
    from policies.schedules.catalogue import make_schedule
    from policies.timing import compile_schedule
    from scheduler.cli.units import seconds

    try:
        if jobfile is not None:
            show(*_planned(jobfile), json_=json_, svg=svg, png=png, trace=trace)
            return
        order = compile_schedule(make_schedule(schedule, stages, microbatches, chunks=chunks, slices=slices))
        scale = _scale(stage_scale or [], order.schedule.stages)
        forward_s, input_s, weight_s = (
            tuple(seconds(text) * factor for factor in scale) for text in (forward, backward_input, backward_weight)
        )
        transfer_s = (seconds(comm),) * (order.schedule.stages - 1)
        durations = Durations(forward_s, input_s, weight_s, transfer_s)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    show(order, durations, json_=json_, svg=svg, png=png, trace=trace)


def _planned(jobfile: Path) -> "tuple[Compiled, Durations]":
    from policies.report import pipeline_of
    from scheduler.cli.planning import menu, question

    asked = question(jobfile, None, None, gpus=None)
    _, ranked = max(menu(asked).items())
    plan = ranked[0].plan
    return pipeline_of(plan, asked.costs(plan.microbatch_size), asked.kind)


def _scale(texts: list[str], stages: int) -> list[float]:
    factors = [float(part) for text in texts for part in text.replace(",", " ").split()] or [1.0] * stages
    if len(factors) != stages or min(factors) < 0:
        raise ValueError(f"--stage-scale needs {stages} factors, one a stage and none negative; got {len(factors)}")
    return factors


def show(
    order: "Compiled", durations: "Durations", *, json_: bool, svg: Path | None, png: Path | None, trace: Path | None
) -> None:
    """Print a timed schedule and write the pictures asked for."""
    import json
    import shutil
    import sys

    from scheduler.picture import terminal
    from scheduler.picture.chart import chart
    from scheduler.picture.svg import render as svg_of
    from scheduler.picture.trace import trace as trace_of

    name, count = order.schedule.name, order.schedule.microbatches
    picture = chart(order, durations, f"{name}: {order.schedule.ranks} ranks, {count} micro-batches")
    if svg is not None:
        svg.write_text(svg_of(picture))
    if png is not None:
        from scheduler.picture import png as png_of

        png_of.write(picture, png)
    if trace is not None:
        trace.write_text(json.dumps(trace_of(picture)))
    if json_:
        typer.echo(json.dumps(as_dict(order, durations), indent=2))
        return
    typer.echo(terminal.render(picture, shutil.get_terminal_size((100, 24)).columns, colour=sys.stdout.isatty()))
    typer.echo(_summary(order, durations, picture))


def as_dict(order: "Compiled", durations: "Durations") -> dict[str, Any]:
    """The timeline as plain values; all indices count from 0, times in seconds."""
    from policies.bubbles import split_idle
    from policies.partition.bound import period_s
    from policies.schedules.catalogue import FAMILIES
    from policies.timing import timeline as timed

    run = timed(order, durations)
    answer: dict[str, Any] = {"apiVersion": "v1", "schedule": order.schedule.name, "makespan_s": run.makespan_s}
    if FAMILIES[order.schedule.name].asynchronous:
        answer["steady_period_s"] = period_s(durations.compute_s, durations.transfer_s)
    answer["actions"] = [
        {
            "rank": span.rank,
            "stage": span.action.stage,
            "kind": str(span.action.kind),
            "microbatch": span.action.microbatch,
            "slice": span.action.chunk,
            "start_s": span.start_s,
            "end_s": span.end_s,
        }
        for span in run.spans
    ]
    answer["ranks"] = [
        {
            "rank": rank,
            "idle_s": {
                "fill_drain": idle.fill_drain,
                "exposed_communication": idle.exposed_communication,
                "imbalance": idle.imbalance,
                "stall": idle.stall,
            },
            "peak_activations": order.footprint.peak_activations[rank],
            "weight_versions": order.footprint.weight_versions[rank],
        }
        for rank, idle in enumerate(split_idle(order, durations))
    ]
    return answer


def _summary(order: "Compiled", durations: "Durations", picture: "Chart") -> str:
    from policies.bubbles import split_idle
    from scheduler.cli.units import show_seconds

    idle = split_idle(order, durations)
    whole = picture.makespan_s * picture.ranks or 1.0
    total = [
        sum(part.fill_drain for part in idle),
        sum(part.exposed_communication for part in idle),
        sum(part.imbalance for part in idle),
        sum(part.stall for part in idle),
    ]
    parts = ", ".join(
        f"{name} {share / whole:.1%}"
        for name, share in zip(("fill and drain", "communication", "imbalance", "stall"), total, strict=True)
        if share > 1e-12
    )
    peaks = ", ".join(f"{peak:g}" for peak in order.footprint.peak_activations)
    return (
        f"Makespan {show_seconds(picture.makespan_s)}; idle {sum(total) / whole:.1%}"
        + (f" ({parts})" if parts else "")
        + f"; peak activations by rank: {peaks}"
    )
