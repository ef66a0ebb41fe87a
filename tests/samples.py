"""Profiles, jobs and clusters that tests share."""

from collections.abc import Sequence

from policies.model.cluster import ClusterSnapshot, DeviceView, JobState, JobView, MenuRequest
from policies.model.profile import LayerProfile, ModelProfile


def layer(name: str, forward_s: float, *, output_bytes: int = 1000, parameter_bytes: int = 1000) -> LayerProfile:
    return LayerProfile(name, forward_s, forward_s, forward_s, output_bytes, 4 * output_bytes, parameter_bytes)


def gpt_profile(size: int = 1, blocks: int = 6, block_s: float = 0.004, kind: str = "cpu") -> ModelProfile:
    """A small GPT: light embedding, equal blocks, a head as heavy as half a block; times grow with the size."""
    scale = 0.25 + 0.75 * size
    layers = [
        layer("embed", 0.05 * block_s * scale),
        *(layer(f"block{i}", block_s * scale) for i in range(blocks)),
        layer("head", 0.5 * block_s * scale),
    ]
    return ModelProfile("gpt", size, kind, tuple(layers))


GPT = (gpt_profile(1), gpt_profile(4))


def request(minimum: int = 1, maximum: int = 4, batch: int = 16, profiles: Sequence[ModelProfile] = GPT) -> MenuRequest:
    return MenuRequest(tuple(profiles), batch, minimum, maximum)


def job(
    id_: int, minimum: int = 1, maximum: int = 4, *, priority: int = 50, steps: int = 1000, probed: bool = True
) -> JobView:
    menu = request(minimum, maximum, profiles=GPT if probed else ())
    return JobView(id_, "team", priority, id_, JobState.PENDING, menu, steps)


def devices(nodes: int = 2, each: int = 2, kind: str = "cpu") -> tuple[DeviceView, ...]:
    return tuple(DeviceView(f"n{n}d{d}", f"n{n}", kind, None) for n in range(nodes) for d in range(each))


def snapshot(jobs: Sequence[JobView], devs: Sequence[DeviceView], now_us: int = 0) -> ClusterSnapshot:
    return ClusterSnapshot(1, now_us, tuple(devs), tuple(jobs))
