"""A device or a link slows down under a running job: what is left of its speed, by what is done about it.

Four stages over 16 blocks whose known durations move with them: they sleep, so that ranks do not contend for cores, and
the device that a block is on decides for how long. One device becomes 2x or 3x as slow, or a link 4x, and recovers.

    static    keeps its cut
    restart   saves, ends and starts again with the oracle's cut, when jctd would change its own
    jctd      measures itself and changes its cut while it trains; it is never told
    oracle    takes the best of all cuts, found by enumeration from the true durations, at the step of the onset

Wanted: jctd >= 90% of the oracle over the 50 steps after its change, no step lost, the pause under one step, home again
once the interference has ended, and a real gain within 10% of the one that was predicted for the cut (DYN-21).

    python -m benchmarks.interference --json
"""

import argparse
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.cost import LayerCosts
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind, Link
from policies.model.profile import LayerProfile, ModelProfile
from policies.pricing import make_plan
from scheduler.protocol.spec import AdaptSpec, AttemptSpec, CheckpointSpec, JobSpec
from worker.adapt.pricing import step_s
from worker.adapt.situation import Ground, Situation
from worker.launcher import Launched, start_shim

JOBS = Path(__file__).parents[1] / "tests" / "jobs"
BLOCKS, BLOCK_S, MICROBATCHES, SIZE = 16, 0.003, 8, 2
MESSAGE_BYTES = 1024
HOME = make_plan((0, 5, 9, 13, 18), (MICROBATCHES,), SIZE, "1f1b")
ONSET, WINDOW, SETTLING = 25, 50, 30
SPEC = AdaptSpec(held_s=2.0, cooldown_s=6.0, horizon_s=120.0)
EXPECTED = re.compile(r"steps are to take (\S+) s")
COLOURS = {"static": "#9e9e9e", "restart": "#e8a33d", "jctd": "#4c8bd6", "oracle": "#57a55a"}


@dataclass(frozen=True)
class Scenario:
    """slow: factor by member. link: factor by pair of members. transfer_s: of a message, undisturbed."""

    name: str
    slow: dict[int, float] = field(default_factory=dict)
    link: dict[tuple[int, int], float] = field(default_factory=dict)
    transfer_s: float = 0.0005

    @property
    def weather(self) -> str:
        links = {f"{a}-{b}": factor for (a, b), factor in self.link.items()}
        return json.dumps({"slow": {str(member): factor for member, factor in self.slow.items()}, "link": links})

    @property
    def situation(self) -> Situation:
        return Situation(tuple(self.slow.get(member, 1.0) for member in range(4)), self.link)


SCENARIOS = (
    Scenario("device-2x", slow={1: 2.0}),
    Scenario("device-3x", slow={2: 3.0}),
    Scenario("link-4x", link={(1, 2): 4.0}, transfer_s=0.008),
)


@dataclass
class Run:
    """One way through one scenario. steps: number, seconds and pause in front of each. changed: steps of changes.
    expected_s: step time that was predicted for the first change."""

    steps: dict[int, tuple[float, float]] = field(default_factory=dict)
    onset: int = 0
    changed: list[int] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    home_again: bool = False
    expected_s: float | None = None

    def rate(self, first: int) -> float:
        """Steps a second over WINDOW steps behind `first`, pauses included."""
        taken = [sum(self.steps[step]) for step in range(first + 1, first + 1 + WINDOW)]
        return len(taken) / sum(taken)


def best_cut(scenario: Scenario) -> ParallelPlan:
    """By enumeration, from the true durations."""
    block = LayerProfile("block", BLOCK_S, 2 * BLOCK_S, 0.0, MESSAGE_BYTES, 0, 0)
    light = LayerProfile("light", 1e-4, 1e-4, 1e-4, MESSAGE_BYTES, 0, 0)
    layers = (light, *[block] * BLOCKS, light)
    kind = DeviceKind("cpu", link=Link(1e-4, MESSAGE_BYTES / scenario.transfer_s))
    ground = Ground(LayerCosts(ModelProfile("known", SIZE, "cpu", layers)), kind)
    cuts = (
        make_plan((0, *inner, len(layers)), (MICROBATCHES,), SIZE, "1f1b")
        for inner in itertools.combinations(range(1, len(layers)), 3)
    )
    return min(cuts, key=lambda plan: step_s(plan, ground, scenario.situation))


class Site:
    """Where the attempts of one scenario run."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.folder, self.scenario = folder, scenario
        self.weather = folder / "weather.json"
        self.attempts = 0

    def launch(self, plan: ParallelPlan | None, kind: str = "train", name: str = "", **fields: Any) -> Launched:
        self.attempts += 1
        arguments = {"blocks": BLOCKS, "steps": 100_000, "global_batch": MICROBATCHES * SIZE, "block_s": BLOCK_S}
        arguments |= {"weather": str(self.weather), "bytes_per_s": MESSAGE_BYTES / self.scenario.transfer_s}
        job = JobSpec(
            name="interference", entrypoint="devices:job", workdir=str(JOBS), arguments=arguments,
            microbatch_size=SIZE, adapt=SPEC if name == "jctd" else None,
            checkpoint=CheckpointSpec(dir=str(self.folder / "kept"), every_s=0) if name == "restart" else None,
        )  # fmt: skip
        spec = AttemptSpec(kind=kind, job=job, nonce="benchmark", **fields)
        return Launched(self.folder / f"1.{self.attempts}", spec, plan, start_shim)

    def begins(self) -> None:
        """What disturbs, from now on."""
        fresh = self.weather.with_suffix(".new")
        fresh.write_text(self.scenario.weather)
        fresh.rename(self.weather)

    def ends(self) -> None:
        self.weather.unlink(missing_ok=True)


def profile(site: Site) -> ModelProfile:
    launched = site.launch(None, "probe")
    launched.wait()
    launched.hang_up()
    return launched.reports[0].profiles[0]


def until_step(launched: Launched, step: int) -> None:
    launched.wait(lambda it: it.is_running() and (it.pilot.step or 0) >= step, timeout_s=600)


def finish(launched: Launched, run: Run, save: bool = False) -> None:
    launched.stop(grace_s=60 if save else 0, save=save)
    launched.wait()
    launched.hang_up()
    for line in (launched.folder / "metrics.jsonl").read_text().splitlines():
        step = json.loads(line)
        if "loss" in step:
            run.steps[step["step"]] = (step["step_time_s"], step["pause_s"])


def static(site: Site) -> Run:
    run, launched = Run(), site.launch(HOME, name="static")
    until_step(launched, ONSET)
    site.begins()
    run.onset = launched.pilot.step or 0
    until_step(launched, run.onset + 1 + WINDOW)
    finish(launched, run)
    run.changed = [run.onset]
    return run


def oracle(site: Site) -> Run:
    run, launched = Run(onset=ONSET), site.launch(HOME, name="oracle", hold_at=(ONSET,))
    until_step(launched, ONSET - 2)
    launched.change(best_cut(site.scenario))
    until_step(launched, ONSET)
    site.begins()
    until_step(launched, ONSET + 2 + WINDOW)
    finish(launched, run)
    run.changed = [ONSET + 1]
    return run


def restart(site: Site) -> Run:
    """It reacts when jctd does: once the trouble has been held."""
    run, launched = Run(), site.launch(HOME, name="restart")
    until_step(launched, ONSET)
    site.begins()
    run.onset = launched.pilot.step or 0
    time.sleep(SPEC.held_s + 2.0)
    launched.stop(grace_s=60)
    stopped = time.monotonic()
    finish(launched, run, save=True)
    last = max(run.steps)
    again = site.launch(best_cut(site.scenario), name="restart")
    again.wait(lambda it: it.is_running() and (it.pilot.step or 0) > last, timeout_s=600)
    gap_s = time.monotonic() - stopped
    until_step(again, last + 1 + WINDOW)
    finish(again, run)
    first_s = run.steps[last + 1][0]
    run.steps[last + 1] = (first_s, max(0.0, gap_s - first_s))
    run.changed, run.pauses_s = [last], [max(0.0, gap_s - first_s)]
    return run


def jctd(site: Site, known: ModelProfile) -> Run:
    run, launched = Run(), site.launch(HOME, name="jctd", profile=known)
    changed: dict[int, int] = {}

    def watch(until: Callable[[], bool]) -> None:
        def reached(it: Launched) -> bool:
            if it.is_running() and it.pilot.revision:
                changed.setdefault(it.pilot.revision, it.pilot.step or 0)
                if it.pilot.revision == 1 and (told := EXPECTED.search(it.pilot.message)) is not None:
                    run.expected_s = float(told[1])
            return it.is_running() and until()

        launched.wait(reached, timeout_s=600)

    def step() -> int:
        return launched.pilot.step or 0

    watch(lambda: step() >= ONSET)
    site.begins()
    run.onset = step()
    watch(lambda: bool(changed))
    watch(lambda: step() >= changed[1] + 2 + WINDOW)
    site.ends()
    ended = step()
    watch(lambda: launched.pilot.plan == HOME or step() >= ended + 4 * SETTLING)
    rested = step()
    watch(lambda: step() >= rested + SETTLING)
    run.home_again = launched.pilot.plan == HOME
    finish(launched, run)
    run.changed = sorted(changed.values())
    run.pauses_s = [max(run.steps[near][1] for near in (at, at + 1, at + 2)) for at in run.changed]
    return run


def measured(scenario: Scenario) -> tuple[dict[str, Run], dict[str, Any]]:
    runs: dict[str, Run] = {}
    with tempfile.TemporaryDirectory(prefix="interference-") as folder:
        site = Site(Path(folder), scenario)
        known = profile(site)
        for name, way in (("static", static), ("oracle", oracle), ("restart", restart)):
            site.ends()
            runs[name] = way(site)
            print(f"{scenario.name} {name}: {runs[name].rate(runs[name].changed[0]):.2f} steps/s", file=sys.stderr)
        site.ends()
        runs["jctd"] = jctd(site, known)
    return runs, summary(runs)


def summary(runs: dict[str, Run]) -> dict[str, Any]:
    own = runs["jctd"]
    rates = {name: run.rate(run.changed[0]) for name, run in runs.items()}
    recovered = recovery(own, 1.05 / rates["oracle"])
    before_s = statistics.median(own.steps[step][0] for step in range(own.onset - 9, own.onset + 1))
    after_s = [own.steps[step][0] for step in range(own.changed[0] + 2, own.changed[0] + 2 + WINDOW)]
    disturbed_s = statistics.median(own.steps[step][0] for step in range(own.onset + 3, own.changed[0]))
    return {
        "predicted_gain": round(disturbed_s / own.expected_s, 3) if own.expected_s is not None else None,
        "real_gain": round(disturbed_s / statistics.median(after_s), 3),
        "steps_per_s": {name: round(rate, 3) for name, rate in rates.items()},
        "jctd_of_oracle": round(rates["jctd"] / rates["oracle"], 3),
        "undisturbed_step_s": round(before_s, 4),
        "pauses_s": {name: [round(pause, 4) for pause in runs[name].pauses_s] for name in ("jctd", "restart")},
        "changes": len(own.changed),
        "steps_from_onset_to_recovery": recovered - own.onset if recovered is not None else None,
        "steps_lost": max(own.steps) - len(own.steps),
        "home_again": own.home_again,
    }


def recovery(run: Run, goal_s: float) -> int | None:
    """The first step after the onset from which on steps are as short as the goal: five of them, by their median."""
    steps = [step for step in sorted(run.steps) if step > run.onset + 1]
    return next(
        (s for s in steps[:-4] if statistics.median(run.steps[s + i][0] for i in range(5)) <= goal_s), None
    )


def picture(runs: dict[str, dict[str, Run]]) -> str:
    """Step times of all ways, one panel a scenario, as an SVG."""
    width, height, left = 760, 190, 50
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height * len(runs) + 30}" '
             'font-family="sans-serif" font-size="11">']  # fmt: skip
    for row, (scenario, ways) in enumerate(runs.items()):
        top, longest = row * height + 24, max(max(run.steps) for run in ways.values())
        most_s = 1.1 * max(s for run in ways.values() for s, _ in run.steps.values())
        across, up = (width - left - 20) / longest, (height - 60) / most_s
        base = top + height - 60
        parts.append(f'<text x="{left}" y="{top - 8}" font-weight="bold">{scenario}: seconds a step</text>')
        parts.append(f'<path d="M{left} {top}V{base}H{width - 20}" fill="none" stroke="#444"/>')
        for mark in (0.5, 1.0):
            y = base - mark * most_s / 1.1 * up
            parts.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{mark * most_s / 1.1:.2f}</text>')
        for step in range(0, longest + 1, 25):
            parts.append(f'<text x="{left + step * across:.0f}" y="{base + 14}" text-anchor="middle">{step}</text>')
        for name, run in ways.items():
            series = [(left + step * across, base - taken * up) for step, (taken, _) in sorted(run.steps.items())]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in series)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.5"/>')
    for i, (name, colour) in enumerate(COLOURS.items()):
        y = height * len(runs) + 16
        parts.append(f'<text x="{left + 90 * i}" y="{y}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="What is left of a job's speed when something slows it down.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", choices=[scenario.name for scenario in SCENARIOS], help="one scenario")
    parser.add_argument("--plot", type=Path, default=Path("interference.svg"))
    options = parser.parse_args()
    runs, found = {}, {}
    for scenario in SCENARIOS:
        if options.only in (None, scenario.name):
            runs[scenario.name], found[scenario.name] = measured(scenario)
    options.plot.write_text(picture(runs))
    document = {"scenarios": found, "plot": str(options.plot)}
    if options.json:
        print(json.dumps(document, indent=2))
        return
    for name, figures in found.items():
        rates = ", ".join(f"{way} {rate:.2f}" for way, rate in figures["steps_per_s"].items())
        print(f"{name}: steps a second {rates}; {figures['jctd_of_oracle']:.0%} of the oracle, recovered "
              f"{figures['steps_from_onset_to_recovery']} steps after the onset; gain {figures['real_gain']}, "
              f"predicted {figures['predicted_gain']}")  # fmt: skip
    print(f"step times: {options.plot}")


if __name__ == "__main__":
    main()
