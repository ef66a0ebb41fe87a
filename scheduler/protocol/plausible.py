"""What a member says of itself comes from the user's code: what cannot be true of it is taken as unknown.

One such number would otherwise end the daemon, which cannot store it, or every pass, which would compute with it; and
it would come again with each restart.
"""

import math

import msgspec

from policies.ir.plan import ParallelPlan
from policies.model.profile import LayerProfile, ModelProfile
from scheduler.protocol.messages import Cause, Evaluation, Report

MOST = 2**53
MOST_SMALL = 2**31 - 1
"""Of what a column of 32 bits holds: a process's exit code, an index."""
LONGEST_S = 1e9
LONGEST_TEXT = 4_000
_COUNTS = ("step", "saved", "resumed_step", "total_steps", "global_batch", "batch")
_NUMBERS = ("exit_code", "signal", "pid")
_NAMES = ("store", "fingerprint")
_SECONDS = ("forward_s", "backward_input_s", "backward_weight_s")
_BYTES = ("output_bytes", "activation_bytes", "parameter_bytes", "workspace_bytes")


def plausible(report: Report) -> Report:
    """The same report, without what cannot be true."""
    unknown: dict[str, object] = {name: None for name in _COUNTS if not is_count(getattr(report, name))}
    unknown |= {name: None for name in _NUMBERS if abs(getattr(report, name) or 0) > MOST_SMALL}
    if report.step_time_s is not None and not 0 < report.step_time_s <= LONGEST_S:
        unknown["step_time_s"] = None
    if report.bubble_share is not None and not 0 <= report.bubble_share <= 1:
        unknown["bubble_share"] = None
    for name in ("first_evaluation", "last_evaluation"):
        found: Evaluation | None = getattr(report, name)
        if found is not None and not (is_count(found.step) and math.isfinite(found.loss)):
            unknown[name] = None
    if report.plan is not None and not is_plan(report.plan):
        unknown["plan"] = None
    unknown |= {name: None for name in _NAMES if len(getattr(report, name) or "") > LONGEST_TEXT}
    if len(report.message) > LONGEST_TEXT:
        unknown["message"] = report.message[:LONGEST_TEXT]
    if not all(map(_is_profile, report.profiles)):
        unknown["profiles"] = ()
        if report.cause is Cause.PROBE_DONE:  # a probe without a result would be made again for ever
            unknown |= {"cause": Cause.BAD_SPEC, "message": "what its probe says that it has measured cannot be"}
    return msgspec.structs.replace(report, **unknown) if unknown else report


def is_count(value: int | None) -> bool:
    """Or unknown."""
    return value is None or 0 <= value <= MOST


def is_plan(plan: ParallelPlan) -> bool:
    """Whether it is one at all: its stages follow each other, and each has ranks with a share each."""
    stops = [0, *(stage.stop for stage in plan.stages)]
    return bool(plan.stages) and 0 < plan.microbatches <= MOST and 0 < plan.microbatch_size <= MOST and all(
        stage.first == begin < stage.stop <= MOST and bool(stage.ranks) and len(stage.ranks) == len(stage.shares)
        and all(0 <= rank <= MOST for rank in stage.ranks) and all(0 <= share <= MOST for share in stage.shares)
        for stage, begin in zip(plan.stages, stops, strict=False)
    )  # fmt: skip


def _is_profile(profile: ModelProfile) -> bool:
    return 0 < profile.microbatch_size <= MOST and bool(profile.layers) and all(map(_is_layer, profile.layers))


def _is_layer(layer: LayerProfile) -> bool:
    """A not-a-number compares false with all."""
    seconds = all(0 <= getattr(layer, name) <= LONGEST_S for name in _SECONDS)
    return seconds and all(0 <= getattr(layer, name) <= MOST for name in _BYTES)
