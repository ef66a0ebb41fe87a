"""Why a job waits: one code of the published list, one sentence with numbers, and when it may start."""

from collections.abc import Sequence
from dataclasses import replace

from policies.jct.ledger import Ledger, numbers
from policies.jct.menu import build_menu
from policies.model.cluster import JobView, MenuRequest
from policies.model.decision import Wait
from policies.model.device import DeviceKind
from policies.planner import MOST_MICROBATCHES
from policies.schedules.catalogue import FAMILIES


def hopeless(ledger: Ledger, job: JobView) -> Wait | None:
    """A reason that no free device would change; None where the job could start."""
    if job.blocked:
        code, _, text = job.blocked.partition(":")
        return Wait(job.id, code, text.strip() or f"The job is blocked: {code}.")
    seconds = (job.retry_at_us - ledger.snapshot.now_us) / 1e6
    if seconds > 0:
        return Wait(job.id, "Backoff", f"It is tried again in {seconds:.0f} s, after a failed start.", seconds)
    kinds = ledger.kinds_of(job)
    if not kinds:
        if not ledger.kinds:
            return Wait(job.id, "Resources", "No device is offered to the cluster at present.")
        wanted, there = ", ".join(job.device_kinds), ", ".join(ledger.kinds)
        return Wait(job.id, "NoSuchGPUType", f"It asks for {wanted}; the cluster has {there}.")
    return _too_large(ledger, job)


def _too_large(ledger: Ledger, job: JobView) -> Wait | None:
    minimum = job.menu.min_devices
    kinds = [kind.name for kind in ledger.kinds_of(job)]
    total = max(ledger.total(kind) for kind in kinds)
    if minimum > total:
        return Wait(job.id, "TooLarge", f"It needs at least {minimum} devices of one kind; the cluster has {total}.")
    usable = max(ledger.total(kind, job.avoid) for kind in kinds)
    if minimum > usable:
        nodes = ", ".join(job.avoid)
        return Wait(
            job.id,
            "Resources",
            f"It needs {minimum} devices; {usable} are left without {nodes}, where it may not run at present.",
        )
    if not job.menu.profiles:
        return None
    sizes = {(n, kind) for kind in kinds for n in ledger.menu(job).of(kind)}
    if not sizes:
        return Wait(job.id, "TooLarge", nothing_fits(job.menu, ledger.kinds_of(job)))
    if not any(n <= ledger.total(kind, job.avoid) for n, kind in sizes):
        smallest = min(n for n, _ in sizes)
        return Wait(job.id, "TooLarge", f"The smallest plan that fits needs {smallest} devices; {usable} can be used.")
    return None


def nothing_fits(request: MenuRequest, kinds: Sequence[DeviceKind]) -> str:
    """What a menu without entries is for want of, and what was tried."""
    low, high = request.min_devices, request.max_devices
    what = f"No plan for {low if low == high else f'{low} to {high}'} device{'s' * (high > 1)} fits"
    if not build_menu(request, tuple(replace(kind, memory_bytes=None) for kind in kinds)).entries:
        return (
            f"{what}: the model needs more layers, or its batch does not divide into the wanted micro-batches, or into "
            f"more than {MOST_MICROBATCHES}."
        )
    limits = " or ".join(f"{kind.memory_bytes / 1e9:.3g} GB of {kind.name}" for kind in kinds if kind.memory_bytes)
    schedule = request.schedule
    tried = "with recompute and the optimizer's state in host memory"
    if schedule is not None and not FAMILIES[schedule].recomputes:
        tried = f"with the optimizer's state in host memory; {schedule} cannot recompute"
    return f"{what} into {limits}, not even {tried}: it needs more devices, smaller micro-batches or smaller layers."


def blocked_wait(ledger: Ledger, job: JobView, kind: str, needed: int, start_in_s: float | None) -> Wait:
    """The reason of a job that would fit the cluster, but not what this pass leaves for it."""
    total, free = ledger.total(kind, job.avoid), ledger.free_count(job, kind)
    what = f"It needs {needed} of {total} {kind} devices"
    if free >= needed:
        text = f"{what}; {free} are free, but kept for jobs that come first by priority and time."
        return Wait(job.id, "Priority", text, start_in_s)
    lower = ledger.unstoppable_below(job.priority)
    tail = f" {numbers(lower).capitalize()} of lower priority may not be stopped yet." if lower else ""
    if free:
        return Wait(job.id, "GangPartial", f"{what}; {free} are free, and a gang starts whole.{tail}", start_in_s)
    return Wait(job.id, "Resources", f"{what}; none is free.{tail}", start_in_s)
