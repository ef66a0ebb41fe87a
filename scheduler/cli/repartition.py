"""`jct plan --repartition`: a running plan, read from a file and improved by small moves."""

import json
from dataclasses import replace
from pathlib import Path

from policies.ir.plan import ParallelPlan, StagePlan
from policies.partition.cuts import Cutter
from policies.pricing import PricedPlan, price, split
from scheduler.cli.planning import Question


def repartitioned(asked: Question, path: Path) -> tuple[PricedPlan, PricedPlan]:
    """The plan of a file as it is priced now, and what small moves make of it; never slower.

    Raises:
        ValueError: the file holds no plan for this model.
    """
    running = read_plan(path)
    costs = asked.costs(running.microbatch_size)
    if running.layer_count != len(costs):
        raise ValueError(f"{path} is a plan for {running.layer_count} layers, the profile has {len(costs)}")
    ranks = running.world_size // len(running.stages[0].ranks)
    slow = tuple((*asked.search.slow, *[1.0] * running.world_size)[: running.world_size]) if asked.search.slow else ()
    of_stage = tuple(max(slow[rank] for rank in stage.ranks) for stage in running.stages) if slow else ()
    cutter = Cutter(costs, asked.kind, of_stage)
    bounds = (*(stage.first for stage in running.stages), running.layer_count)
    depth = {"eager-1f1b": 2, "zb-h2": 2}.get(running.schedule, 1) if ranks == len(running.stages) else 1
    moved = cutter.repartition(bounds, max(running.stages[0].shares), depth)
    shares = _shares(running, slow)
    cut = zip(running.stages, moved, moved[1:], strict=False)
    stages = tuple(replace(stage, first=first, stop=stop, shares=shares or stage.shares) for stage, first, stop in cut)
    before, after = (price(plan, costs, asked.kind, slow) for plan in (running, replace(running, stages=stages)))
    return before, min(before, after, key=lambda priced: priced.step_time_s)


def _shares(running: ParallelPlan, slow: tuple[float, ...]) -> tuple[int, ...]:
    """Shares by how slow each pipeline's slowest rank is; none where they stay."""
    replicas = len(running.stages[0].ranks)
    if not slow or replicas == 1 or any(stage.shares != running.stages[0].shares for stage in running.stages):
        return ()
    weights = [1 / max(slow[stage.ranks[j]] for stage in running.stages) for j in range(replicas)]
    return split(running.microbatches, weights)


def read_plan(path: Path) -> ParallelPlan:
    """A plan as `jct plan --json` prints it: the whole answer with one entry, or one entry.

    Raises:
        ValueError: what the file lacks.
    """
    document = json.loads(path.read_text())
    entries = document.get("menu", [document]) if isinstance(document, dict) else []
    if len(entries) != 1:
        raise ValueError(f"{path} must hold one plan; ask jct plan --gpus N --json for a single GPU count")
    entry = entries[0]
    try:
        count, size = int(entry["microbatches"]), int(entry["microbatch_size"])
        again = bool(entry.get("recompute"))
        stages = [
            StagePlan(first, stop, tuple(stage["ranks"]), tuple(stage.get("shares", [count])), again)
            for stage in entry["stages"]
            for first, stop in [stage["layers"]]
        ]
        return ParallelPlan(
            tuple(stages),
            count,
            size,
            str(entry.get("schedule", "1f1b")),
            str(entry.get("precision", "float32")),
            offload=bool(entry.get("offload")),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no plan: {error!r} is missing or of the wrong kind") from error
