"""The manifest of a checkpoint: all that a resume needs besides the layer files, on whatever shape it resumes."""

import hashlib
import json
from typing import Any

import msgspec

from policies.ir.plan import ParallelPlan
from scheduler.protocol.messages import Evaluation

VERSION = 1


class BrokenCheckpoint(ValueError):
    """A checkpoint that is damaged; an older one may be good."""


class NewerCheckpoint(ValueError):
    """A checkpoint of a later version of jctd: not damaged, but not to be read or passed over by this one."""


class LayerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's file. parameters, buffers: {name: {"shape": [...], "dtype": ...}}.

    crc32: of the file, to find damage quickly; None in checkpoints that were written before there was one.
    """

    name: str
    sha256: str
    bytes: int
    crc32: int | None = None
    parameters: dict[str, Any]
    buffers: dict[str, Any]


class ProcessGroups(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranks were joined by. members: of each rank. replicas: ranks that summed gradients, by stage."""

    backend: str
    members: tuple[int, ...]
    replicas: tuple[tuple[int, ...], ...]


class Rng(msgspec.Struct, frozen=True, kw_only=True):
    """All streams start from keys, so the seed is their whole state."""

    seed: int
    keys: str = "blake2b of (1, seed, layer), (2, seed, step, micro-batch, layer), (3, seed, epoch)"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """step: finished steps. samples: the data cursor, the first global sample index not trained on yet.

    plan: stage bounds, micro-batch count and size, schedule and stage-to-rank map it was saved under. ties: groups of
    parameters that are one; each is "layer/parameter". loss_scale, good_steps: for float16, see `worker.scaling`.
    """

    version: int = VERSION
    job: int
    attempt: int
    step: int
    samples: int
    global_batch: int
    learning_rate: float | None
    rng: Rng
    fingerprint: str
    layers: tuple[LayerEntry, ...]
    ties: tuple[tuple[str, ...], ...] = ()
    plan: ParallelPlan
    process_groups: ProcessGroups
    first_evaluation: Evaluation | None = None
    last_evaluation: Evaluation | None = None
    loss_scale: float = 2.0**16
    good_steps: int = 0
    torch: str


def name(step: int) -> str:
    return f"step-{step}/manifest.json"


def layer_file(sha256: str) -> str:
    """Name of a layer file in the store: its content's hash."""
    return f"layers/{sha256}.safetensors"


def encode(manifest: Manifest) -> bytes:
    """JSON with a checksum over its canonical form, so that a flipped byte is found before it misleads."""
    body = msgspec.to_builtins(manifest)
    return json.dumps({**body, "checksum": _checksum(body)}, indent=1, sort_keys=True).encode()


def decode(data: bytes | memoryview) -> Manifest:
    """Raises BrokenCheckpoint or NewerCheckpoint."""
    try:
        body = json.loads(bytes(data))
        version = body.get("version")
    except (ValueError, AttributeError) as error:
        raise BrokenCheckpoint(f"manifest unreadable: {error}") from None
    if isinstance(version, int) and version > VERSION:
        raise NewerCheckpoint(f"manifest version {version}, this jctd reads up to {VERSION}; upgrade it to resume")
    if body.pop("checksum", None) != _checksum(body):
        raise BrokenCheckpoint("manifest damaged: its checksum does not match")
    try:
        return msgspec.convert(body, Manifest)
    except msgspec.ValidationError as error:
        raise BrokenCheckpoint(f"manifest invalid: {error}") from None


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
