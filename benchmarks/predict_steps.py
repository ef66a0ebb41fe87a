"""Step times of every schedule, predicted and measured, with stages of known duration.

Wanted: every one within 5%, the median within 3%. Ranks sleep, so two cores are enough.

    python benchmarks/predict_steps.py
"""

import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from policies.cost import Durations
from policies.ir.action import Kind
from policies.ir.plan import ParallelPlan
from policies.ir.timeline import Timeline
from policies.partition.cuts import uniform
from policies.pricing import make_plan
from policies.schedules.catalogue import make_schedule
from policies.timing import compile_schedule, timeline
from scheduler.protocol.spec import AttemptSpec, JobSpec
from worker.launcher import Launched, start_shim
from worker.timelines import read

CASES = [(name, 1, 4) for name in ("gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2")]
CASES += [(name, 2, 2) for name in ("interleaved-1f1b", "zbv", "dualpipev")]
MICROBATCHES, LAYERS = 8, 4


def measured(folder: Path, name: str, chunks: int) -> tuple[ParallelPlan, Timeline]:
    plan = make_plan(uniform(LAYERS, LAYERS), (MICROBATCHES,), 1, name, chunks)
    job = JobSpec(name="sleeping", entrypoint="sleeping:job", workdir=str(Path(__file__).with_name("jobs").absolute()))
    launched = Launched(folder / "1.1", AttemptSpec(kind="train", job=job, nonce="benchmark"), plan, start_shim)
    launched.wait()
    launched.hang_up()
    return plan, read(launched.folder)


def durations_of(found: Timeline, stages: int) -> Durations:
    """Mean time of each stage and kind in the run itself: what is predicted is the order, not the clock."""
    times: dict[tuple[int, Kind], list[float]] = defaultdict(list)
    for span in found.spans:
        times[span.action.stage, span.action.kind].append(span.end_s - span.start_s)

    def mean(stage: int, kind: Kind) -> float:
        return statistics.mean(times[stage, kind]) if times[stage, kind] else 0.0

    def of(kind: Kind) -> tuple[float, ...]:
        return tuple(mean(stage, kind) for stage in range(stages))

    whole, weight = of(Kind.BACKWARD), of(Kind.BACKWARD_WEIGHT)
    inputs = of(Kind.BACKWARD_INPUT)
    return Durations(
        of(Kind.FORWARD),
        tuple(i or b for i, b in zip(inputs, whole, strict=True)),
        weight,
        (0.0,) * (stages - 1),
    )


def main() -> None:
    errors = []
    for name, chunks, ranks in CASES:
        with tempfile.TemporaryDirectory() as folder:
            plan, found = measured(Path(folder), name, chunks)
        order = compile_schedule(make_schedule(name, ranks, MICROBATCHES, chunks=chunks if chunks > 1 else None))
        predicted = timeline(order, durations_of(found, len(plan.stages)))
        start = min(span.start_s for span in found.spans)
        real = found.makespan_s - start
        errors.append(abs(predicted.makespan_s / real - 1))
        print(
            f"{name}: measured {real * 1e3:.1f} ms, predicted {predicted.makespan_s * 1e3:.1f} ms, {errors[-1]:.1%} off"
        )
    print(f"largest {max(errors):.1%}, median {statistics.median(errors):.1%}")


if __name__ == "__main__":
    main()
