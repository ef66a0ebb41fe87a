"""Reading a checkpoint back, every file checked for damage."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from worker.checkpoint import layerfile, manifest
from worker.checkpoint.manifest import BrokenCheckpoint, LayerEntry, Manifest
from worker.checkpoint.store import Store


def read_manifest(store: Store, step: int) -> Manifest:
    """Raises BrokenCheckpoint or NewerCheckpoint."""
    try:
        found = manifest.decode(store.read(manifest.name(step)))
    except OSError as error:
        raise BrokenCheckpoint(f"manifest unreadable: {error.strerror}") from None
    if found.step != step:
        raise BrokenCheckpoint(f"the manifest in step-{step} is of step {found.step}")
    return found


LayerState = tuple[dict[str, Tensor], dict[str, Any]]


def read_layers(store: Store, entries: Sequence[LayerEntry]) -> list[LayerState]:
    """Several layers' states, in order. Reading and checking release the interpreter, so two threads use two cores.

    Raises:
        BrokenCheckpoint: of the first bad one.
    """
    with ThreadPoolExecutor(max_workers=2, thread_name_prefix="verify") as pool:
        return list(pool.map(lambda entry: read_layer(store, entry), entries))


def read_layer(store: Store, entry: LayerEntry, thoroughly: bool = False) -> LayerState:
    """A layer's state. thoroughly: by SHA-256, else by CRC-32 where the manifest has it.

    Raises:
        BrokenCheckpoint: naming the layer and what is wrong.
    """
    damage = layerfile.Damage(entry.sha256, None if thoroughly else entry.crc32)
    try:
        data = store.read(manifest.layer_file(entry.sha256), damage.see)
    except OSError as error:
        raise BrokenCheckpoint(f"layer {entry.name!r}: {error.strerror}") from None
    if len(data) != entry.bytes:
        raise BrokenCheckpoint(f"layer {entry.name!r} has {len(data)} bytes, {entry.bytes} were written")
    if damage.found():
        raise BrokenCheckpoint(f"layer {entry.name!r} is damaged: its {damage.found()} does not match")
    try:
        return layerfile.unpack(data)
    except ValueError as error:
        raise BrokenCheckpoint(f"layer {entry.name!r}: {error}") from None
