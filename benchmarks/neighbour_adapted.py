"""A job of real compute beside a CPU-bound neighbour: what is left of its speed with the cut it had, and adapted.

Two stages of six layers, each on a core of its own; the neighbour computes on the first one's. Each round is one run of
the job: alone, beside the neighbour until it changes its cut, beside it with the new cut, and alone again once it is
back. Speeds are medians of step times, compared within a round only, as others use this machine as well.

    python -m benchmarks.neighbour_adapted [--rounds N] [--neighbours N] [--json]

Wanted: faster adapted than not, home again at the end, and no step lost.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.forest.workbench import Disturbance, disturbed
from policies.ir.plan import ParallelPlan
from policies.model.profile import ModelProfile
from policies.pricing import make_plan
from scheduler.protocol.spec import AdaptSpec, AttemptSpec, JobSpec
from worker.launcher import Launched, start_shim

JOBS = Path(__file__).parents[1] / "tests" / "jobs"
LAYERS, MICROBATCHES, SIZE = 12, 8, 2
HOME = make_plan((0, LAYERS // 2, LAYERS), (MICROBATCHES,), SIZE, "1f1b")
SPEC = AdaptSpec(threshold=0.5, held_s=6.0, cooldown_s=6.0, horizon_s=600.0)
BEGIN, WINDOW = 20, 20
"""Steps until the job knows itself, and steps of each measurement after a change."""


def attempt(folder: Path, cores: Sequence[int], profile: ModelProfile | None) -> Launched:
    """Without a profile: a probe."""
    arguments: dict[str, Any] = {"width": 384, "blocks": LAYERS - 2, "global_batch": MICROBATCHES * SIZE}
    arguments |= {"dropout": 0.5, "steps": 1_000_000, "cores": list(cores)}
    job = JobSpec(
        name="neighbour", entrypoint="pinned:job", workdir=str(JOBS), arguments=arguments, microbatch_size=SIZE,
        adapt=SPEC if profile is not None else None,
    )  # fmt: skip
    kind = "train" if profile is not None else "probe"
    spec = AttemptSpec(kind=kind, job=job, nonce="benchmark", profile=profile)
    return Launched(folder, spec, HOME if profile is not None else None, start_shim)


@contextlib.contextmanager
def training(folder: Path, cores: Sequence[int], profile: ModelProfile) -> Iterator[Launched]:
    """It ends with the block, whatever happens there: a gang outlives who started it."""
    launched = attempt(folder, cores, profile)
    try:
        yield launched
    finally:
        launched.stop(grace_s=0)
        launched.wait()
        launched.hang_up()


def measured(
    folder: Path, number: int, cores: Sequence[int], profile: ModelProfile, neighbours: int
) -> dict[str, Any]:
    """One round."""
    with training(folder / f"1.{number}", cores, profile) as launched:
        marks = _through(launched, cores[0], neighbours)
    lines = map(json.loads, (launched.folder / "metrics.jsonl").read_text().splitlines())
    return marks.figures({line["step"]: line["step_time_s"] for line in lines if "loss" in line})


def _through(launched: Launched, core: int, neighbours: int) -> "Marks":
    step = Steps(launched)
    step(lambda: step.now >= BEGIN + WINDOW)
    began = step.now
    with disturbed([Disturbance("compute", 1.0, core)] * neighbours, apart=True):
        step(lambda: _is_lighter(launched.pilot.plan))
        changed, plan = step.now, launched.pilot.plan
        step(lambda: step.now >= changed + 2 + WINDOW)
        ended = step.now
    step(lambda: launched.pilot.plan == HOME)
    back = step.now
    step(lambda: step.now >= back + 2 + WINDOW)
    assert plan is not None
    return Marks(began, changed, ended, back, plan.sizes)


def _is_lighter(plan: ParallelPlan | None) -> bool:
    return plan is not None and len(plan.stages[0].layers) < LAYERS // 2


@dataclass(frozen=True)
class Marks:
    """Steps at which the neighbour came, the cut changed, the neighbour went, and the job was home again."""

    began: int
    changed: int
    ended: int
    back: int
    cut: str

    def figures(self, times: dict[int, float]) -> dict[str, Any]:
        """times: of each step, in seconds."""

        def pace_s(first: int, last: int) -> float:
            return statistics.median(times[at] for at in range(first, last + 1))

        alone_s = pace_s(self.began - WINDOW + 1, self.began)
        return {
            "steps_per_s_alone": 1 / alone_s, "static": alone_s / pace_s(self.began + 3, self.changed - 1),
            "adapted": alone_s / pace_s(self.changed + 3, self.ended),
            "after": alone_s / pace_s(self.back + 3, self.back + WINDOW), "cut": self.cut,
            "steps_to_change": self.changed - self.began, "steps_to_return": self.back - self.ended,
            "steps_lost": max(times) - len(times),
        }  # fmt: skip


class Steps:
    """Waits for a condition while reports come in; `now` is the newest step."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched

    @property
    def now(self) -> int:
        return self._launched.pilot.step or 0

    def __call__(self, until: Callable[[], bool]) -> None:
        self._launched.wait(lambda it: it.is_running() and until(), timeout_s=600)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbours", type=int, default=1 + round(os.getloadavg()[0] / 2),
                        help="default: 1, and enough to stand out from whoever else uses this machine now")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory(prefix="neighbour-") as name:
        folder = Path(name)
        probe = attempt(folder / "1.1", cores, None)
        probe.wait()
        probe.hang_up()
        profile = probe.reports[0].profiles[0]
        rounds = [measured(folder, number + 2, cores, profile, options.neighbours) for number in range(options.rounds)]
    figures = {way: statistics.median(one[way] for one in rounds) for way in ("static", "adapted", "after")}
    figures["gain"] = statistics.median(one["adapted"] / one["static"] for one in rounds)
    if options.json:
        print(json.dumps({"median": figures, "rounds": rounds, "neighbours": options.neighbours}, indent=2))
        return
    print("speed beside a neighbour, over that alone (medians of rounds)")
    print(f"  the cut it had  {figures['static']:.2f}\n  adapted         {figures['adapted']:.2f}")
    print(f"  home again      {figures['after']:.2f}\n  gain            {figures['gain']:.2f}x")
    for one in rounds:
        print(f"  {one['static']:.2f} -> {one['adapted']:.2f} with {one['cut']}, {one['steps_to_change']} steps after "
              f"it began; back {one['steps_to_return']} steps after it ended")  # fmt: skip


if __name__ == "__main__":
    main()
