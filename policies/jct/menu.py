"""A job's menu: for each device count and kind its best plan. Cluster policies choose from menus, never from layers."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from policies.cost import LayerCosts, Memory, profile_at
from policies.ir.plan import ParallelPlan
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind
from policies.planner import frugal_plans
from policies.pricing import price


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One size. memory_bytes: per stage. startup_s: of a new attempt. resize_s: leaving this size by a checkpoint."""

    devices: int
    device_kind: str
    plan: ParallelPlan
    step_time_s: float
    memory_bytes: tuple[int, ...]
    startup_s: float
    resize_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Menu:
    """Entries by device kind, then ascending device count. An absent size has no plan that fits, however frugal.

    Compared by identity, so that what is made of it is found quickly."""

    entries: tuple[MenuEntry, ...]
    version: int = 1

    def of(self, kind: str) -> dict[int, MenuEntry]:
        """The sizes on one device kind, ascending."""
        return {entry.devices: entry for entry in self.entries if entry.device_kind == kind}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@lru_cache(maxsize=4096)
def build_menu(request: MenuRequest, kinds: tuple[DeviceKind, ...]) -> Menu:
    """Search once for each distinct request; empty where nothing fits or nothing is measured yet."""
    return Menu(tuple(entry for kind in kinds for entry in _entries(request, kind)))


def _entries(request: MenuRequest, kind: DeviceKind) -> Iterable[MenuEntry]:
    for count, best in sorted(frugal_plans(request, kind).items()):
        parameters = sum(layer.parameter_bytes for layer in request.profiles[0].layers)
        state = parameters * Memory(best.plan.precision).state_per_parameter_byte
        load_s = state / kind.state_bandwidth_bytes_per_s
        yield MenuEntry(
            count,
            kind.name,
            best.plan,
            best.step_time_s,
            best.memory_bytes,
            startup_s=kind.start_s + load_s,
            resize_s=kind.start_s + 2 * load_s,
        )


@lru_cache(maxsize=4096)
def step_time_of(request: MenuRequest, plan: ParallelPlan, kind: DeviceKind) -> float:
    """The predicted step time of a plan that already runs, whether or not it is on the menu.

    Raises:
        ValueError: nothing is measured yet, or the plan is of another model.
    """
    if not request.profiles or plan.layer_count != len(request.profiles[0].layers):
        raise ValueError("the plan's model has no profile, so it has no predicted step time")
    own = tuple(p for p in request.profiles if p.device_kind == kind.name) or request.profiles
    return price(plan, LayerCosts(profile_at(own, plan.microbatch_size)), kind).step_time_s
