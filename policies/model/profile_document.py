"""A profile as people and programs write it down: a JSON document with a model's layers, checked."""

import math
from dataclasses import dataclass
from typing import Any

from policies.model.profile import LayerProfile, ModelProfile

_LAYER = {
    "name", "forward_s", "backward_s", "backward_input_s", "backward_weight_s", "output_bytes", "activation_bytes",
    "parameter_bytes", "workspace_bytes", "atomic_with_next",
}
_TOP = {"name", "microbatch_size", "device_kind", "layers", "convergence", "source"}
_CONVERGENCE = {"smoothness", "gradient_second_moment", "initial_gap", "target_gradient_norm_squared"}


@dataclass(frozen=True, slots=True)
class ProfileDocument:
    """split: whether it tells input and weight gradients apart. convergence: as given, or None."""

    profile: ModelProfile
    split: bool
    convergence: dict[str, Any] | None


def profile_document(document: Any, default_name: str) -> ProfileDocument:
    """Check a document. Where a layer gives backward_s only, it is halved between input and weight gradients.

    Raises:
        ValueError: what is wrong with it, and where.
    """
    if not isinstance(document, dict) or not isinstance(document.get("layers"), list) or not document["layers"]:
        raise ValueError("it has no list of layers")
    _only(document, _TOP, "the profile")
    rows = document["layers"]
    layers = tuple(_layer(row, number) for number, row in enumerate(rows))
    size = document.get("microbatch_size", 1)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"microbatch_size must be a whole number of samples from 1, not {size!r}")
    split = any("backward_weight_s" in row for row in rows)
    name, kind = str(document.get("name", default_name)), str(document.get("device_kind", "gpu"))
    return ProfileDocument(ModelProfile(name, size, kind, layers), split, _convergence(document, len(layers)))


def _layer(row: Any, number: int) -> LayerProfile:
    where = f"layer {number}"
    if not isinstance(row, dict):
        raise ValueError(f"{where} is no object")
    _only(row, _LAYER, where)
    if "backward_weight_s" in row or "backward_input_s" in row:
        inputs, weights = _number(row, "backward_input_s", where), _number(row, "backward_weight_s", where)
    else:
        inputs = weights = _number(row, "backward_s", where) / 2
    return LayerProfile(
        str(row.get("name", number)),
        _number(row, "forward_s", where),
        inputs,
        weights,
        round(_number(row, "output_bytes", where, 0.0)),
        round(_number(row, "activation_bytes", where, 0.0)),
        round(_number(row, "parameter_bytes", where, 0.0)),
        round(_number(row, "workspace_bytes", where, 0.0)),
        bool(row.get("atomic_with_next", False)),
    )


def _number(row: dict[str, Any], key: str, where: str, default: float | None = None) -> float:
    value = row.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{where}: {key} must be a number from 0, not {value!r}")
    return float(value)


def _convergence(document: dict[str, Any], layers: int) -> dict[str, Any] | None:
    found = document.get("convergence")
    if found is None:
        return None
    if not isinstance(found, dict) or set(found) - {"gradient_noise_scale"} != _CONVERGENCE:
        raise ValueError(f"convergence must have {', '.join(sorted(_CONVERGENCE))}, may have gradient_noise_scale")
    moments = found["gradient_second_moment"]
    if not isinstance(moments, list) or len(moments) != layers:
        raise ValueError(f"convergence.gradient_second_moment must have one number a layer, {layers} in all")
    for key in set(found) - {"gradient_second_moment"}:
        _number(found, key, "convergence")
    return found


def _only(row: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(row) - known)
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
