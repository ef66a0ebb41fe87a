"""Predicted against measured step times of the real worker: shim, ranks, gloo. Stages sleep, so two cores suffice.

Run: python benchmarks/predicted_measured.py
"""

import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from shims import ShimFactory

from policies.cost import LayerCosts
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind, Link
from policies.model.profile import LayerProfile, ModelProfile
from policies.pricing import make_plan, price
from scheduler.protocol.spec import AttemptSpec, JobSpec
from worker.launcher import Launched

FORWARD_S = 0.02
EVEN, UNEVEN = (1.0, 1.0, 1.0, 1.0), (1.0, 0.6, 1.4, 0.8)
CASES = [
    (name, ranks, count, scale)
    for name in ("gpipe", "1f1b")
    for ranks, count in ((2, 4), (3, 6), (4, 8))
    for scale in (EVEN, UNEVEN)
]


def predicted_s(plan: ParallelPlan, forward_s: list[float], backward_s: list[float], kind: DeviceKind) -> float:
    layers = tuple(
        LayerProfile(f"sleeper{i}", forward, backward / 2, backward / 2, 64, 64, 1000)
        for i, (forward, backward) in enumerate(zip(forward_s, backward_s, strict=True))
    )
    return price(plan, LayerCosts(ModelProfile("sleeping", 1, "cpu", layers)), kind).step_time_s


def measured_s(
    shims: ShimFactory, folder: Path, plan: ParallelPlan, forward_s: list[float], backward_s: list[float]
) -> float:
    """The median step after the first three."""
    arguments = {"forward_s": forward_s, "backward_s": backward_s, "microbatches": plan.microbatches}
    workdir = str(Path(__file__).parent / "jobs")
    job = JobSpec(name="sleeping", entrypoint="known_durations:job", workdir=workdir, arguments=arguments)
    launched = Launched(folder, AttemptSpec(kind="train", job=job, nonce=folder.name), plan, shims.start)
    launched.wait(timeout_s=120)
    launched.hang_up()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    times = [line["step_time_s"] for line in lines if "step_time_s" in line]
    return statistics.median(times[3:])


def calibrated(measure: Callable[[ParallelPlan, list[float], list[float]], float]) -> DeviceKind:
    """The constants of this machine, from three runs that are none of the cases: what the executor adds to an action
    and a step on one rank, and what a message takes between two."""
    one, two = [FORWARD_S], [FORWARD_S] * 2
    few, many = (measure(make_plan((0, 1), (count,), 1, "1f1b"), one, [2 * FORWARD_S]) for count in (2, 10))
    microbatch_s = (many - few) / 8
    step_s = few - 2 * microbatch_s
    across = measure(make_plan((0, 1, 2), (1,), 1, "1f1b"), two, [2 * FORWARD_S] * 2)
    latency_s = max(0.0, (across - step_s - 2 * microbatch_s) / 2)
    action_s = (microbatch_s - 3 * FORWARD_S) / 2
    print(f"calibrated: action {action_s * 1e3:.2f} ms, step {step_s * 1e3:.2f} ms, message {latency_s * 1e3:.2f} ms")
    return DeviceKind("cpu", link=Link(latency_s), action_s=action_s, step_s=step_s)


def main() -> list[float]:
    shims = ShimFactory()
    errors = []
    with tempfile.TemporaryDirectory() as directory:
        folders = (Path(directory) / f"1.{number}" for number in itertools.count(1))

        def measure(plan: ParallelPlan, forward_s: list[float], backward_s: list[float]) -> float:
            return measured_s(shims, next(folders), plan, forward_s, backward_s)

        kind = calibrated(measure)
        print(f"{'schedule':>10} {'P':>2} {'m':>3} {'stages':>8} {'predicted':>10} {'measured':>10} {'error':>7}")
        for name, ranks, count, scale in CASES:
            forward_s, backward_s = ([unit * FORWARD_S * factor for factor in scale[:ranks]] for unit in (1, 2))
            plan = make_plan(range(ranks + 1), (count,), 1, name)
            wanted = predicted_s(plan, forward_s, backward_s, kind)
            found = measure(plan, forward_s, backward_s)
            errors.append(abs(wanted / found - 1))
            stages = "even" if scale is EVEN else "uneven"
            print(
                f"{name:>10} {ranks:>2} {count:>3} {stages:>8} {wanted * 1e3:>7.1f} ms {found * 1e3:>7.1f} ms "
                f"{wanted / found - 1:>+7.2%}",
                flush=True,
            )
    shims.close()
    print(f"largest error {max(errors):.2%} (bound 5%), median {statistics.median(errors):.2%} (bound 3%)")
    return errors


if __name__ == "__main__":
    main()
