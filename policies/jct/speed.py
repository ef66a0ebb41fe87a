"""How a job's step time depends on where and how it runs, from few measured rows: a Bayesian fit of a simple physics.

    data-parallel    t = scale x (compute / n + (1 - 1/n) x network + fixed)
    tensor-parallel  t = scale x tensor x (stages^b / (ways^a x replicas) + (1 - 1/replicas) x gradients / stages
                         + fixed)

A gang within a node talks over fast links. Over several nodes its all-reduce is as fast as the node with fewest devices
(its network cards) lets it be, and slower still for some models where devices are spread unevenly. Recomputing, sharded
and offloaded plans scale each part by a factor of their own.

Every parameter is a logarithm or an exponent and has a prior: the mean and the spread of what fits of other models came
to (`benchmarks/speed_curves.py --prior`). So one row gives a curve, and each further row bends it. The mode is found by
Gauss-Newton on the logarithms of the times, in the dual form: a system of as many equations as there are rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

FAMILIES = ("plain", "recompute", "sharded", "offload", "tensor")
ROUNDS = 8
LARGEST_STEP = 1.0
NUDGE = 1e-4


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a job. per_node: devices on each used node. family: one of FAMILIES. tensor, stages: ways of tensor
    parallelism, and pipeline stages, of the family `tensor`; what is left of the devices are replicas."""

    per_node: tuple[int, ...]
    family: str = "plain"
    tensor: int = 1
    stages: int = 1

    @property
    def devices(self) -> int:
        return sum(self.per_node)


@dataclass(frozen=True, slots=True)
class Prior:
    """mean and spread (standard deviation) of each parameter over models; noise: of a logarithm of a step time."""

    mean: Mapping[str, float]
    spread: Mapping[str, float]
    noise: float


_KNOWN = {
    "scale": (0.58, 3.0), "network": (-1.14, 0.62), "local": (-1.76, 0.88), "cards": (0.37, 0.13),
    "uneven": (0.35, 0.75), "single": (0.85, 0.5), "nodes": (0.04, 0.11), "fixed": (-2.74, 0.66),
    "recompute.compute": (0.3, 0.13), "recompute.network": (-0.01, 0.15), "recompute.fixed": (0.03, 0.16),
    "sharded.compute": (0.03, 0.1), "sharded.network": (0.13, 0.16), "sharded.fixed": (-0.52, 0.34),
    "offload.compute": (0.48, 0.24), "offload.network": (-0.05, 0.25), "offload.fixed": (1.1, 0.38),
    "offload.uneven": (-0.98, 1.18), "tensor": (-0.08, 0.77), "ways": (0.82, 0.07), "stages": (0.12, 0.08),
    "tensor.fixed": (-3.02, 1.11), "gradients": (0.33, 0.7), "gradients.cards": (1.03, 0.11),
    "gradients.local": (-1.6, 0.63),
}  # fmt: skip
PRIOR = Prior(
    mean=MappingProxyType({name: mean for name, (mean, _) in _KNOWN.items()}),
    spread=MappingProxyType({name: spread for name, (_, spread) in _KNOWN.items()}),
    noise=0.05,
)
"""Of all models in `benchmarks/data/rubick`."""


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """A fitted curve. parameters: by name."""

    parameters: Mapping[str, float]

    def step_time_s(self, way: Way) -> float:
        return math.exp(log_step_time(self.parameters, way))


def fit(rows: Sequence[tuple[Way, float]], prior: Prior = PRIOR) -> SpeedCurve:
    """The likeliest curve through rows of (way, seconds a step). Raises ValueError where there is none."""
    if not rows or any(not 0 < seconds < math.inf for _, seconds in rows):
        raise ValueError("a speed curve needs at least one row, and its step times are positive")
    ways = [way for way, _ in rows]
    logs = [math.log(seconds) for _, seconds in rows]
    now = dict(prior.mean)
    now["scale"] += sum(y - log_step_time(now, way) for way, y in zip(ways, logs, strict=True)) / len(rows)
    best = (math.inf, now)
    for _ in range(ROUNDS):
        told = [log_step_time(now, way) for way in ways]
        misfit = _misfit(now, told, logs, prior)
        if misfit < best[0]:
            best = (misfit, now)
        now = _towards_mode(now, ways, told, logs, prior)
    return SpeedCurve(best[1])


def _misfit(now: Mapping[str, float], told: Sequence[float], logs: Sequence[float], prior: Prior) -> float:
    data = sum((y - t) ** 2 for y, t in zip(logs, told, strict=True)) / prior.noise**2
    return data + sum(((now[name] - mean) / prior.spread[name]) ** 2 for name, mean in prior.mean.items())


def _towards_mode(
    now: Mapping[str, float], ways: Sequence[Way], told: Sequence[float], logs: Sequence[float], prior: Prior
) -> dict[str, float]:
    """One step: mean + V J' (J V J' + noise^2)^-1 (y - f + J (now - mean)), no parameter by more than LARGEST_STEP."""
    slopes = [
        {name: (log_step_time({**now, name: now[name] + NUDGE}, way) - t) / NUDGE for name in now}
        for way, t in zip(ways, told, strict=True)
    ]
    variance = {name: spread**2 for name, spread in prior.spread.items()}
    matrix = [
        [sum(variance[name] * a[name] * b[name] for name in now) + (prior.noise**2 if a is b else 0.0) for b in slopes]
        for a in slopes
    ]
    wanted = [
        y - t + sum(slope[name] * (now[name] - prior.mean[name]) for name in now)
        for y, t, slope in zip(logs, told, slopes, strict=True)
    ]
    weights = _solve(matrix, wanted)
    found: dict[str, float] = {}
    for name in now:
        pull = sum(weight * slope[name] for weight, slope in zip(weights, slopes, strict=True))
        step = prior.mean[name] + variance[name] * pull - now[name]
        found[name] = now[name] + max(-LARGEST_STEP, min(LARGEST_STEP, step))
    return found


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination; the matrix is positive definite, so no pivot is zero."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, row in enumerate(rows):
        for below in rows[i + 1 :]:
            share = below[i] / row[i]
            for j in range(i, len(row)):
                below[j] -= share * row[j]
    found = [0.0] * len(rows)
    for i in reversed(range(len(rows))):
        known = sum(rows[i][j] * found[j] for j in range(i + 1, len(rows)))
        found[i] = (rows[i][-1] - known) / rows[i][i]
    return found


# --- the physics --------------------------------------------------------------------------------------------------


def log_step_time(p: Mapping[str, float], way: Way) -> float:
    """The logarithm of the seconds that a step takes, with these parameters."""
    return p["scale"] + math.log(_tensor(p, way) if way.family == "tensor" else _replicated(p, way))


def _replicated(p: Mapping[str, float], way: Way) -> float:
    n, f = way.devices, way.family
    compute = _factor(p, f, "compute") / n
    fixed = math.exp(p["fixed"]) * _factor(p, f, "fixed")
    network = math.exp(p["network"] + (p["local"] if len(way.per_node) == 1 else _spread(p, way)))
    return compute + (1 - 1 / n) * network * _factor(p, f, "network") + fixed


def _factor(p: Mapping[str, float], family: str, part: str) -> float:
    return 1.0 if family == "plain" else math.exp(p[f"{family}.{part}"])


def _spread(p: Mapping[str, float], way: Way) -> float:
    """How much slower or faster than over two nodes of one device each."""
    nodes, least = len(way.per_node), min(way.per_node)
    odd = any(count > 1 and count % 2 for count in way.per_node)
    uneven = p["uneven"] * (1.0 if odd else p["single"] if least == 1 and nodes > 2 else 0.0)
    if way.family == "offload":
        uneven *= math.exp(p["offload.uneven"])
    return p["nodes"] * math.log(nodes) - p["cards"] * math.log(least) ** 2 + uneven


def _tensor(p: Mapping[str, float], way: Way) -> float:
    replicas, least = way.devices / (way.tensor * way.stages), min(way.per_node)
    compute = math.exp(p["stages"] * math.log(way.stages) - p["ways"] * math.log(way.tensor)) / replicas
    crosses = way.tensor * replicas > least
    cards = math.log(least) if crosses else math.log(8)
    gradients = math.exp(p["gradients"] - p["gradients.cards"] * cards + (0.0 if crosses else p["gradients.local"]))
    share = max(0.0, 1 - 1 / replicas) / way.stages
    return math.exp(p["tensor"]) * (compute + share * gradients + math.exp(p["tensor.fixed"]))
