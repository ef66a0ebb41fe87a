"""`jct plan`: the best plan for each GPU count, and why. Works offline."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from policies.pricing import PricedPlan
    from scheduler.cli.planning import Question
    from scheduler.cli.table import Column

SCHEDULES = "gpipe,1f1b,eager-1f1b"


def plan(
    jobfile: Annotated[Path | None, typer.Argument(help="Job file, for its bounds and its profile.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Profile file of the model.")] = None,
    model: Annotated[str | None, typer.Option(help="Built-in model, such as llama-7b.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPU count N, or a range A..B.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of one GPU, such as 80GB; else no limit.")] = None,
    latency: Annotated[str, typer.Option(help="Of a transfer between ranks, one way.")] = "0s",
    bandwidth: Annotated[str | None, typer.Option(help="Between ranks, such as 12GB/s; else unlimited.")] = None,
    slow: Annotated[str, typer.Option(help='Slowed ranks, such as "2:1.5" or "0:2,3:1.2".')] = "",
    schedules: Annotated[str, typer.Option(help="Schedules to consider, or all.")] = SCHEDULES,
    replicas: Annotated[str, typer.Option(help="Replicas of each stage: a number, or auto.")] = "auto",
    global_batch: Annotated[int | None, typer.Option(min=1, help="Samples in a step.")] = None,
    objective: Annotated[str, typer.Option(help="step or time-to-accuracy.")] = "step",
    at_cluster: Annotated[
        bool, typer.Option("--at-cluster", help="Ask jctd when the job would start and end, and on what.")
    ] = False,
    repartition: Annotated[Path | None, typer.Option(help="A running plan to improve by small moves.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the menu as JSON.")] = False,
) -> None:
    """Plan stages, replicas, micro-batches and schedule for each GPU count."""
    if at_cluster:
        from scheduler.cli.foresight import plan_at_cluster

        plan_at_cluster(jobfile, json_)
        return
    import json

    from scheduler.cli.planning import fitting, menu, question
    from scheduler.cli.repartition import repartitioned

    try:
        asked = question(
            jobfile, profile, model, gpus=gpus, memory=memory, latency=latency, bandwidth=bandwidth, slow=slow,
            schedules=schedules, replicas=replicas, global_batch=global_batch, objective=objective,
        )  # fmt: skip
        if repartition is not None:
            moved = repartitioned(asked, repartition)
        else:
            moved, asked = None, fitting(asked)
        found = _alone(moved[1]) if moved is not None else menu(asked)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    if json_:
        typer.echo(json.dumps(as_dict(asked, found, moved), indent=2))
    else:
        _print(asked, found, moved)


def _alone(priced: "PricedPlan") -> dict[int, tuple["PricedPlan", ...]]:
    return {priced.plan.world_size: (priced,)}


def as_dict(
    asked: "Question", found: dict[int, tuple["PricedPlan", ...]], moved: "tuple[PricedPlan, PricedPlan] | None" = None
) -> dict[str, Any]:
    """The menu as plain values. Layer ranges are half-open; seconds and bytes."""
    answer: dict[str, Any] = {
        "apiVersion": "v1",
        "name": asked.name,
        "device_kind": asked.kind.name,
        "global_batch": asked.request.global_batch,
        "menu": [
            {"gpus": count} | _entry(asked, ranked[0]) | _rest(asked, ranked, moved)
            for count, ranked in sorted(found.items())
        ],
    }
    if moved is not None:
        answer["repartition"] = {"before": _entry(asked, moved[0]), "after": _entry(asked, moved[1])}
    return answer


def _rest(
    asked: "Question", ranked: tuple["PricedPlan", ...], moved: "tuple[PricedPlan, PricedPlan] | None"
) -> dict[str, Any]:
    from policies.report import compare

    best = ranked[0]
    costs = asked.costs(best.plan.microbatch_size)
    others = compare(best, costs, asked.kind, asked.search.slow) if moved is None else {}
    runners_up = [_entry(asked, other) for other in ranked[1:4]]
    return {"why": _why(ranked, moved), "other_cuts_step_time_s": others, "runners_up": runners_up}


def _why(ranked: tuple["PricedPlan", ...], moved: "tuple[PricedPlan, PricedPlan] | None") -> str:
    from policies.report import why
    from scheduler.cli.units import show_seconds

    if moved is None:
        return why(ranked)
    before, after = moved
    if after == before:
        return "nothing near the running plan is faster"
    return f"small moves from the running plan: {show_seconds(before.step_time_s)} -> {show_seconds(after.step_time_s)}"


def _entry(asked: "Question", priced: "PricedPlan") -> dict[str, Any]:
    from policies.report import report

    plan, costs = priced.plan, asked.costs(priced.plan.microbatch_size)
    seen = report(priced, costs, asked.kind, asked.search.slow)
    entry: dict[str, Any] = {
        "stages": [
            {"layers": [stage.first, stage.stop], "ranks": list(stage.ranks), "shares": list(stage.shares)}
            for stage in plan.stages
        ],
        "microbatches": plan.microbatches,
        "microbatch_size": plan.microbatch_size,
        "schedule": plan.schedule,
        "recompute": plan.stages[0].recompute,
        "offload": plan.offload,
        "precision": plan.precision,
        "step_time_s": priced.step_time_s,
        "bubble": seen.bubble,
        "idle_s": {
            "fill_drain": seen.idle.fill_drain,
            "exposed_communication": seen.idle.exposed_communication,
            "imbalance": seen.idle.imbalance,
            "stall": seen.idle.stall,
        },
        "memory_bytes": list(priced.memory_bytes),
        "resize_cost_s": asked.resize_s(plan),
    }
    if priced.time_to_accuracy_s is not None:
        entry["time_to_accuracy_s"] = priced.time_to_accuracy_s
    return entry


def _print(
    asked: "Question", found: dict[int, tuple["PricedPlan", ...]], moved: "tuple[PricedPlan, PricedPlan] | None"
) -> None:
    """A row for each GPU count, and what is to be said of the largest."""
    from scheduler.cli.output import folded, terminal_width
    from scheduler.cli.table import job_table

    width = terminal_width()
    print(
        f"{asked.name}: global batch {asked.request.global_batch}, {len(asked.request.profiles[0].layers)} layers, "
        f"{asked.search.precision}"
    )
    rows = [_row(asked, count, ranked[0]) for count, ranked in sorted(found.items())]
    job_table(rows, "", width, _columns()).print()
    print()
    for sentence in _sentences(asked, found, moved):
        print("\n".join(folded(sentence, width) if width else [sentence]))


def _columns() -> "list[Column]":
    from scheduler.cli.table import Column

    titles = ("GPUS", "STAGES×MB", "SIZE", "SCHEDULE", "STEP", "BUBBLE", "MEMORY")
    texts = ("STAGES×MB", "SCHEDULE")
    columns = [Column(title, partial(_cell, title), right=title not in texts) for title in titles]
    return [*columns, Column("LAYERS", partial(_cell, "LAYERS"), least=8)]


def _cell(title: str, row: dict[str, str], _now: str) -> str:
    return row[title]


def _row(asked: "Question", count: int, best: "PricedPlan") -> dict[str, str]:
    from policies.report import report
    from scheduler.cli.units import show_bytes, show_seconds

    seen = report(best, asked.costs(best.plan.microbatch_size), asked.kind, asked.search.slow)
    return {
        "GPUS": str(count), "STAGES×MB": best.plan.shape, "SIZE": str(best.plan.microbatch_size),
        "SCHEDULE": best.plan.schedule, "STEP": show_seconds(best.step_time_s), "BUBBLE": f"{seen.bubble:.1%}",
        "MEMORY": show_bytes(max(best.memory_bytes)),
        "LAYERS": "/".join(str(stage.stop - stage.first) for stage in best.plan.stages) + best.plan.saving,
    }  # fmt: skip


def _sentences(
    asked: "Question", found: dict[int, tuple["PricedPlan", ...]], moved: "tuple[PricedPlan, PricedPlan] | None"
) -> list[str]:
    from policies.report import TARGET, bubble_of_twice, compare, report
    from scheduler.cli.units import show_bytes, show_seconds

    count, ranked = max(found.items())
    best = ranked[0]
    seen = report(best, asked.costs(best.plan.microbatch_size), asked.kind, asked.search.slow)
    whole = best.step_time_s
    twice = bubble_of_twice(best, asked.costs(best.plan.microbatch_size), asked.kind, asked.search.slow)
    lines = [
        f"On {count} GPUs: {best.plan.name}, {_why(ranked, moved)}.",
        f"Idle: fill and drain {seen.idle.fill_drain / whole:.1%}, exposed communication "
        f"{seen.idle.exposed_communication / whole:.1%}, imbalance {seen.idle.imbalance / whole:.1%}, "
        f"stall {seen.idle.stall / whole:.1%} of the step.",
        f"The bubble of {seen.bubble:.1%} is {'within' if seen.bubble <= TARGET else 'above'} the target of "
        f"{TARGET:.0%}; "
        f"a global batch of {2 * best.plan.global_batch} would make it {twice:.1%}.",
        "Memory by stage: " + ", ".join(map(show_bytes, best.memory_bytes)) + ".",
    ]
    cuts = compare(best, asked.costs(best.plan.microbatch_size), asked.kind, asked.search.slow)
    if cuts:
        told = ", ".join(f"{name} {show_seconds(seconds)}" for name, seconds in cuts.items())
        lines.append(f"The same stages cut otherwise: {told}.")
    if len(ranked) > 1:
        others = ", ".join(f"{other.plan.name} {show_seconds(other.step_time_s)}" for other in ranked[1:4])
        lines.append(f"Runners-up: {others}.")
    return lines
