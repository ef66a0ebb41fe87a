"""Command jobs for policies, which think in layers and steps: as many equal layers as devices, steps of a second.

Nothing is known of a program's speed before it tells its step times, so more devices are taken to help as a pipeline of
many micro-batches would.
"""

from functools import lru_cache

from policies.jct.explored import COMMAND
from policies.model.cluster import MenuRequest
from policies.model.profile import LayerProfile, ModelProfile
from scheduler.protocol.spec import JobSpec

MICROBATCHES = 16
LASTS_S = 3_600.0
"""What a command without a time limit is taken to need on one device."""


def command_request(spec: JobSpec) -> MenuRequest:
    return MenuRequest(
        profiles=(_profile(spec.max_devices),), global_batch=MICROBATCHES, min_devices=spec.min_devices,
        max_devices=spec.max_devices, allowed_devices=spec.allowed_devices, microbatch_size=1,
        microbatches=MICROBATCHES, schedule="gpipe",
    )  # fmt: skip


def command_seconds(spec: JobSpec, ran_s: float) -> int:
    """Steps of a second still to come, from its time limit. At least 1."""
    return max(1, round((spec.time_limit_s or LASTS_S) - ran_s))


@lru_cache
def _profile(devices: int) -> ModelProfile:
    """One step on one device takes a second."""
    each_s = 1.0 / (3 * MICROBATCHES * devices)
    layers = tuple(LayerProfile(f"device-{n}", each_s, each_s, each_s, 0, 0, 0) for n in range(devices))
    return ModelProfile(COMMAND, 1, "any", layers)
