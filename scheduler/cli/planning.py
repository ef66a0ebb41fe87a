"""What `jct plan` and `jct probe` were asked, as values for the planner. No printing here."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policies.asynchronous import asynchronous_plans, with_target
from policies.convergence import Convergence
from policies.cost import LayerCosts, Memory, profile_at
from policies.ir.plan import ParallelPlan
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind, Link
from policies.model.families import FAMILIES, family
from policies.model.profile import ModelProfile
from policies.planner import ranked_plans
from policies.pricing import PricedPlan
from policies.schedules.catalogue import FAMILIES as SCHEDULES
from policies.shapes import Search
from scheduler.cli.profile_file import read_profile
from scheduler.cli.units import bytes_per_s, seconds, show_bytes, size_bytes

DEFAULT_MICROBATCHES = 32
"""Micro-batches of the profile's size in a global batch that nobody gave."""


@dataclass(frozen=True, slots=True)
class Question:
    """A planning request with the device kind it is asked for."""

    name: str
    request: MenuRequest
    kind: DeviceKind
    search: Search
    convergence: Convergence | None = None

    def costs(self, size: int) -> LayerCosts:
        return LayerCosts(profile_at(self.request.profiles, size))

    def resize_s(self, plan: ParallelPlan) -> float:
        """Leaving the plan by a checkpoint: save, start, load."""
        parameters = sum(layer.parameter_bytes for layer in self.request.profiles[0].layers)
        state = parameters * Memory(plan.precision).state_per_parameter_byte
        return self.kind.start_s + 2 * state / self.kind.state_bandwidth_bytes_per_s


def question(
    jobfile: Path | None,
    profile: Path | None,
    model: str | None,
    *,
    gpus: str | None,
    memory: str | None = None,
    latency: str = "0s",
    bandwidth: str | None = None,
    slow: str = "",
    schedules: str = "1f1b",
    replicas: str = "auto",
    global_batch: int | None = None,
    objective: str = "step",
) -> Question:
    """Raises ValueError or OSError with what is wrong and what to do."""
    if objective not in {"step", "time-to-accuracy"}:
        raise ValueError(f"objective must be step or time-to-accuracy, not {objective!r}")
    request, precision = _request(jobfile, profile, model, global_batch)
    convergence = _convergence(jobfile, profile) if objective == "time-to-accuracy" else None
    low, high = _range(gpus) if gpus else (request.min_devices, request.max_devices)
    request = replace(
        request, min_devices=low, max_devices=high, allowed_devices=() if gpus else request.allowed_devices
    )
    if replicas != "auto":
        if not replicas.isdigit() or int(replicas) < 1:
            raise ValueError(f"--replicas must be auto or a number from 1, not {replicas!r}")
        request = replace(request, replicas=int(replicas))
    link = Link(seconds(latency), bytes_per_s(bandwidth) if bandwidth else math.inf)
    limit = int(size_bytes(memory)) if memory else None
    kind = DeviceKind(request.profiles[0].device_kind, limit, link, action_s=0.0)
    search = Search(
        schedules=_schedules(schedules),
        any_replicas=replicas == "auto",
        slow=_slow(slow),
        recompute=True,
        offload=True,
        precision=precision,
    )
    return Question(request.profiles[0].name, request, kind, search, convergence)


def fitting(asked: Question) -> Question:
    """The question, or where nothing fits the memory in float32 the same in bfloat16: half of all bytes but the
    optimizer's, at the same speed."""
    if asked.kind.memory_bytes is None or asked.search.precision != "float32":
        return asked
    once = replace(asked.search, effort=1)
    if ranked_plans(asked.request, asked.kind, once):
        return asked
    profiles = tuple(_halved(profile) for profile in asked.request.profiles)
    half = replace(asked.request, profiles=profiles)
    if not ranked_plans(half, asked.kind, replace(once, precision="bfloat16")):
        return asked
    return replace(asked, request=half, search=replace(asked.search, precision="bfloat16"))


def _halved(profile: ModelProfile) -> ModelProfile:
    layers = (
        replace(
            layer,
            output_bytes=layer.output_bytes // 2,
            activation_bytes=layer.activation_bytes // 2,
            parameter_bytes=layer.parameter_bytes // 2,
            workspace_bytes=layer.workspace_bytes // 2,
        )
        for layer in profile.layers
    )
    return replace(profile, layers=tuple(layers))


def menu(asked: Question) -> dict[int, tuple[PricedPlan, ...]]:
    """The ranked plans for each GPU count.

    Raises:
        ValueError: nothing fits; where a smaller micro-batch would, it says which.
    """
    found = ranked_plans(asked.request, asked.kind, asked.search)
    if asked.convergence is not None:
        found = {count: _by_target(asked, ranked, count, asked.convergence) for count, ranked in found.items()}
    if found:
        return found
    raise ValueError(_no_plan(asked))


def _by_target(
    asked: Question, ranked: tuple[PricedPlan, ...], count: int, convergence: Convergence
) -> tuple[PricedPlan, ...]:
    """Synchronous plans and the asynchronous ones, by their seconds to the target."""
    size = ranked[0].plan.microbatch_size
    microbatches = asked.request.global_batch // size
    stale = asynchronous_plans(asked.costs(size), asked.kind, count, microbatches, size, convergence)
    return tuple(sorted([*with_target(ranked, convergence), *stale], key=lambda p: p.time_to_accuracy_s or 0.0))


def _no_plan(asked: Question) -> str:
    """Why nothing was found, and what would change that."""
    request, kind = asked.request, asked.kind
    low, high = request.min_devices, request.max_devices
    gpus = f"{high} GPU{'s' if high > 1 else ''}" if low == high else f"{low} to {high} GPUs"
    free = ranked_plans(request, replace(kind, memory_bytes=None), replace(asked.search, effort=1))
    if kind.memory_bytes is None or not free:
        layers = len(request.profiles[0].layers)
        return (
            f"no plan for {gpus}: {layers} layers and a global batch of {request.global_batch} cannot be divided over "
            f"them as asked; give another count, global batch or number of replicas"
        )
    size = request.microbatch_size or min(profile.microbatch_size for profile in request.profiles)
    for smaller in range(size - 1, 0, -1):
        if request.global_batch % smaller == 0:
            smaller_one = replace(request, microbatch_size=smaller, microbatches=None)
            if ranked_plans(smaller_one, kind, replace(asked.search, effort=1)):
                return (
                    f"a micro-batch of {size} samples does not fit on {gpus} with {show_bytes(kind.memory_bytes)}, "
                    f"even a single one; one of {smaller} would"
                )
    needed = min(max(priced.memory_bytes) for ranked in free.values() for priced in ranked)
    return (
        f"no plan for {gpus} fits {show_bytes(kind.memory_bytes)}: without that limit the best plan needs "
        f"{show_bytes(needed)}; use more GPUs, or a smaller model"
    )


def _request(
    jobfile: Path | None, profile: Path | None, model: str | None, batch: int | None
) -> tuple[MenuRequest, str]:
    base = MenuRequest((), batch or 0, 1, 1, replicas=1)
    if jobfile is not None:
        base, named = _of_job(jobfile, batch)
        if named is not None and named.endswith(".json"):
            profile = profile or (Path(named) if model is None else None)
        elif profile is None:
            model = model or named
    if model is not None and profile is None:
        if model not in FAMILIES:
            raise ValueError(f"unknown model {model!r}; choose one of {', '.join(FAMILIES)}")
        most = base.global_batch or DEFAULT_MICROBATCHES
        profiles: tuple[ModelProfile, ...] = (family(model, 1), family(model, max(2, most)))
        return replace(base, profiles=profiles, global_batch=most), "bfloat16"
    if profile is None:
        raise ValueError(
            "nothing to plan with: give --profile FILE, --model NAME, or a job file that names its profile; "
            "`jct plan FILE --at-cluster` asks jctd, which measures"
        )
    read = read_profile(profile).profile
    return replace(
        base, profiles=(read,), global_batch=base.global_batch or DEFAULT_MICROBATCHES * read.microbatch_size
    ), "float32"


def _convergence(jobfile: Path | None, profile: Path | None) -> Convergence:
    """Only a job that allows stale gradients may be planned for accuracy, and only from measured convergence."""
    allowed = jobfile is not None and _document(jobfile)[1] == "allow"
    if not allowed:
        raise ValueError(
            "time-to-accuracy considers stale gradients: give a job file with `parallel: {staleness: allow}`"
        )
    if profile is None and jobfile is not None:
        named = _of_job(jobfile, None)[1]
        profile = Path(named) if named is not None and named.endswith(".json") else None
    known = read_profile(profile).convergence if profile is not None else None
    if known is None:
        raise ValueError("time-to-accuracy needs a profile file with `convergence`: give it by --profile")
    return Convergence(
        float(known["smoothness"]),
        tuple(map(float, known["gradient_second_moment"])),
        float(known["initial_gap"]),
        float(known["target_gradient_norm_squared"]),
    )


def _document(path: Path) -> tuple[dict[str, Any], str]:
    """A job file's document without `parallel.staleness`, which only planning honours so far, and that value."""
    from scheduler.cli.submit import read_document
    from scheduler.core.errors import JctError

    try:
        document = read_document(str(path))
    except JctError as error:
        raise ValueError(f"{path}: {error}") from error
    parallel = document.get("parallel")
    staleness = "forbid"
    if isinstance(parallel, dict) and "staleness" in parallel:
        staleness = str(parallel.pop("staleness"))
    if staleness not in {"allow", "forbid"}:
        raise ValueError(f"{path}: parallel.staleness must be allow or forbid, not {staleness!r}")
    return document, staleness


def _of_job(path: Path, batch: int | None) -> tuple[MenuRequest, str | None]:
    from scheduler.core.errors import JctError
    from scheduler.jobfile import parse_document

    try:
        spec = parse_document(_document(path)[0])
    except JctError as error:
        raise ValueError(f"{path}: {error}") from error
    bounds = MenuRequest(
        (), batch or spec.global_batch or 0, spec.min_devices, spec.max_devices, spec.allowed_devices,
        spec.microbatch_size, spec.microbatches, spec.stages, spec.replicas, spec.schedule,
    )  # fmt: skip
    return bounds, spec.profile


def _range(text: str) -> tuple[int, int]:
    low, dots, high = text.partition("..")
    if not low.isdigit() or (dots and not high.isdigit()) or int(low) < 1 or int(high or low) < int(low):
        raise ValueError(f"--gpus must be a count such as 4 or a range such as 1..8, not {text!r}")
    return int(low), int(high or low)


def _slow(text: str) -> tuple[float, ...]:
    factors: dict[int, float] = {}
    for part in text.replace(",", " ").split():
        rank, colon, factor = part.partition(":")
        try:
            if not colon or float(factor) <= 0:
                raise ValueError
            factors[int(rank)] = float(factor)
        except ValueError:
            raise ValueError(f'--slow takes RANK:FACTOR such as "2:1.5", not {part!r}') from None
    return tuple(factors.get(rank, 1.0) for rank in range(max(factors) + 1)) if factors else ()


def _schedules(text: str) -> tuple[str, ...]:
    synchronous = [name for name, kind in SCHEDULES.items() if not kind.asynchronous and not kind.sliced]
    names = synchronous if text == "all" else text.replace(",", " ").split()
    unknown = [name for name in names if name not in synchronous]
    if unknown or not names:
        raise ValueError(f"cannot plan with {unknown[0] if unknown else text!r}; choose of {', '.join(synchronous)}")
    return tuple(names)
