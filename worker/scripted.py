"""What `train` is asked for on its command line: a shape, and changes of it at fixed steps."""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from policies.cost import LayerCosts, Memory
from policies.ir.plan import ParallelPlan
from policies.model.device import DeviceKind
from policies.model.profile import ModelProfile
from policies.partition.cuts import Cutter, uniform
from policies.pricing import make_plan, split
from policies.schedules.catalogue import FAMILIES
from scheduler.protocol.spec import AdaptSpec


class BadRequest(ValueError):
    """The command line asks for something that cannot be; the message says what to ask for instead."""


@dataclass(frozen=True)
class Shape:
    """stages: in the whole pipeline. microbatches: over all replicas; None until the whole script is known.

    recompute: activations are computed again. offload: the optimizer's state lives in host memory.
    """

    stages: int = 1
    replicas: int = 1
    schedule: str = "1f1b"
    microbatches: int | None = None
    slices: int = 1
    recompute: bool = False
    offload: bool = False

    def __post_init__(self) -> None:
        if self.schedule not in FAMILIES:
            raise BadRequest(f"there is no schedule {self.schedule!r}; choose one of {', '.join(FAMILIES)}")
        if min(self.stages, self.replicas, self.microbatches or 1, self.slices) < 1:
            raise BadRequest("stages, replicas, micro-batches and slices are counted from 1")
        if self.slices > 1 and not FAMILIES[self.schedule].sliced:
            raise BadRequest(f"{self.schedule} does not slice sequences; use sliced-1f1b")
        if self.recompute and not FAMILIES[self.schedule].recomputes:
            raise BadRequest(f"{self.schedule} cannot recompute activations; leave recompute out, or use 1f1b")
        if self.stages % self.chunks:
            raise BadRequest(
                f"{self.schedule} holds {self.chunks} stages a rank; {self.stages} stages are no multiple of it"
            )

    @property
    def chunks(self) -> int:
        """Stages that each rank holds."""
        return FAMILIES[self.schedule].chunks or 2

    @staticmethod
    def read(text: str, base: "Shape") -> "Shape":
        """`stages=2,schedule=zb-h1`: what is not named stays as in `base`."""
        changes: dict[str, Any] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            if name == "schedule" and value:
                changes[name] = value
            elif name in ("recompute", "offload") and value in ("on", "off"):
                changes[name] = value == "on"
            elif name in ("stages", "replicas", "microbatches", "slices"):
                changes[name] = _number(name, value)
            else:
                raise BadRequest(
                    f"{part!r}: write stages=N, replicas=N, microbatches=N, slices=N, schedule=NAME, "
                    "recompute=on|off or offload=on|off"
                )
        return replace(base, **changes)


@dataclass(frozen=True)
class Move:
    """The layer of stage `source` that lies next to stage `destination` goes there."""

    source: int
    destination: int

    @staticmethod
    def read(text: str) -> "Move":
        """`2->1`."""
        source, arrow, destination = text.partition("->")
        if not arrow:
            raise BadRequest(f"{text!r}: write SOURCE->DESTINATION, such as 2->1")
        move = Move(_number("stage", source, 0), _number("stage", destination, 0))
        if abs(move.source - move.destination) != 1:
            raise BadRequest(f"{text!r}: a layer moves to a neighbouring stage only")
        return move


@dataclass(frozen=True)
class Script:
    """changes: by step, in order; each comes before that step (steps count from 1, as in the metrics)."""

    shape: Shape
    changes: tuple[tuple[int, Shape | Move], ...] = ()

    @property
    def hold_at(self) -> tuple[int, ...]:
        """Finished steps at which the pilot waits for a change."""
        return tuple(step - 1 for step, _ in self.changes)


def read_script(shape: Shape, changes: Sequence[str], moves: Sequence[str]) -> Script:
    """`5:stages=2,...` and `8:2->1`. Raises BadRequest."""
    found: list[tuple[int, str, bool]] = []
    for texts, is_move in ((changes, False), (moves, True)):
        for text in texts:
            step, colon, rest = text.partition(":")
            if not colon:
                raise BadRequest(f"{text!r}: write STEP:WHAT, such as 5:stages=2 or 8:2->1")
            found.append((_number("step", step, 2), rest, is_move))
    steps = Counter(step for step, _, _ in found)
    if twice := [step for step, count in steps.items() if count > 1]:
        hint = f"write them as one, such as {twice[0]}:stages=2,schedule=zb-h1, or give each its own"
        raise BadRequest(f"two changes before step {twice[0]}: {hint}")
    made: list[tuple[int, Shape | Move]] = []
    present = shape
    for number, text, is_move in sorted(found):
        if is_move:
            made.append((number, Move.read(text)))
        else:
            present = Shape.read(text, present)
            made.append((number, present))
    return Script(shape, tuple(made))


def with_microbatches(script: Script, global_batch: int) -> Script:
    """One micro-batch count for the whole script, so that its losses do not depend on the changes.

    Where it is left out: at least twice the stages of the largest shape, if the global batch has so many.
    """
    shapes = [script.shape, *(change for _, change in script.changes if isinstance(change, Shape))]
    wanted = max(2 * shape.stages * shape.replicas for shape in shapes)
    fitting = [count for count in range(1, global_batch + 1) if global_batch % count == 0]
    count = next((count for count in fitting if count >= wanted), fitting[-1])

    def filled(change: Shape | Move) -> Shape | Move:
        if isinstance(change, Shape) and change.microbatches is None:
            return replace(change, microbatches=count)
        return change

    first = script.shape if script.shape.microbatches else replace(script.shape, microbatches=count)
    return Script(first, tuple((step, filled(change)) for step, change in script.changes))


def in_reach(script: Script, total_steps: int) -> None:
    """Raises BadRequest where a change would never come."""
    for step, _ in script.changes:
        if step > total_steps:
            raise BadRequest(f"a change before step {step}: the job has {total_steps} steps")


def planned(
    shape: Shape, profiles: Sequence[ModelProfile], global_batch: int, precision: str, cut: str
) -> ParallelPlan:
    """The plan of a shape. cut: by the probe's "time", or by the number of "layers", which is the same in every run.

    Raises BadRequest where the shape cannot be.
    """
    layers = len(profiles[0].layers)
    if not 1 <= shape.stages <= layers:
        raise BadRequest(f"{shape.stages} stages for {layers} layers; choose 1 to {layers}")
    microbatches = shape.microbatches or 1
    if global_batch % microbatches or microbatches < shape.replicas:
        raise BadRequest(
            f"{microbatches} micro-batches and {shape.replicas} replicas for a global batch of {global_batch}: the "
            "micro-batch count must divide it and give each replica one"
        )
    shares = split(microbatches, [1.0] * shape.replicas)
    bounds = uniform(layers, shape.stages) if cut == "layers" else _cut(profiles[0], shape.stages, microbatches)
    memory = Memory(precision, shape.recompute, shape.offload)
    plan = make_plan(bounds, shares, global_batch // microbatches, shape.schedule, shape.chunks, memory)
    return replace(plan, slices=shape.slices)


def moved(plan: ParallelPlan, move: Move) -> ParallelPlan:
    """Raises BadRequest: there is no such stage, or its last layer would go."""
    stages = list(plan.stages)
    if max(move.source, move.destination) >= len(stages):
        raise BadRequest(f"{move.source}->{move.destination}: there are stages 0 to {len(stages) - 1}")
    if len(stages[move.source].layers) < 2:
        raise BadRequest(f"stage {move.source} has one layer only; it cannot give it away")
    left, right = sorted((move.source, move.destination))
    cut = stages[right].first + (1 if move.source == right else -1)
    stages[left] = replace(stages[left], stop=cut)
    stages[right] = replace(stages[right], first=cut)
    return replace(plan, stages=tuple(stages))


def parser() -> argparse.ArgumentParser:
    """Options of `python -P -m worker train`, which `jct train` passes on."""
    made = argparse.ArgumentParser(prog="jct train", description="Train one job on this machine.")
    made.add_argument("spec", help="a JobSpec as JSON; - for standard input")
    made.add_argument("--parent", type=int, help="end with this process, which started this one")
    made.add_argument("--stages", type=int, default=1)
    made.add_argument("--replicas", type=int, default=1)
    made.add_argument("--schedule", default="1f1b")
    made.add_argument("--microbatches", type=int)
    made.add_argument("--slices", type=int, default=1)
    made.add_argument("--recompute", action="store_true", help="keep inputs of stages only, and run forward again")
    made.add_argument("--offload", action="store_true", help="the optimizer's state lives in host memory")
    made.add_argument("--cut", choices=("layers", "time"), default="layers")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    made.add_argument("--dtype", choices=("float32", "float64", "bfloat16", "float16"), default="float32")
    made.add_argument("--steps", type=int)
    made.add_argument("--change", action="append", default=[], help='"5:stages=2,schedule=zb-h1", before step 5')
    made.add_argument("--migrate", action="append", default=[], help='"8:2->1", before step 8')
    made.add_argument("--adapt", nargs="?", const="", help='"held_s=5,cooldown_s=60": what differs from the defaults')
    made.add_argument("--checkpoint", help="a directory, or a URL that fsspec knows")
    made.add_argument("--metrics", type=Path)
    made.add_argument("--profile", type=Path, help="measure convergence, and write it with the layers' profile here")
    made.add_argument("--measure-after", type=int, default=50, help="steps of warm-up before convergence is measured")
    return made


_SHARES = {"threshold": (0.05, 100.0), "watermark": (0.5, 1.0)}
"""The settings that are no durations, within the bounds that a job file has."""


def read_adapt(text: str | None, base: AdaptSpec | None) -> AdaptSpec | None:
    """`held_s=5,cooldown_s=60`: what is not named stays as in `base`, or at its default. None: as in `base`.

    Raises BadRequest.
    """
    if text is None:
        return base
    values: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, separator, value = part.partition("=")
        try:
            if not separator or name not in AdaptSpec.__struct_fields__ or not 0 < (number := float(value)) < 1e9:
                raise ValueError
        except ValueError:
            names = ", ".join(AdaptSpec.__struct_fields__)
            raise BadRequest(f"{part!r}: write NAME=NUMBER with a positive number for one of {names}") from None
        least, most = _SHARES.get(name, (0.0, 1e9))
        if not least <= number <= most:
            raise BadRequest(f"{part!r}: {name} is a share between {least:g} and {most:g}")
        values[name] = number
    return msgspec.structs.replace(base or AdaptSpec(), **values)


def _cut(profile: ModelProfile, stages: int, microbatches: int) -> tuple[int, ...]:
    kind = DeviceKind(profile.device_kind)
    best = Cutter(LayerCosts(profile), kind).candidates(stages, microbatches)
    return best[0] if best else uniform(len(profile.layers), stages)


def _number(name: str, text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise BadRequest(f"{name} {text!r}: a whole number of at least {least}")
    return int(text)
