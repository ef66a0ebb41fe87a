"""Saving while training goes on: a copy at a step boundary, a thread that writes it, one publish by the pilot."""

import contextlib
import threading
import traceback
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from torch import Tensor

from scheduler.protocol.messages import Cause
from worker.checkpoint import catalogue, layerfile, manifest
from worker.checkpoint.manifest import LayerEntry, Manifest
from worker.checkpoint.store import Store
from worker.checkpoint.verify import read_layer, read_manifest
from worker.errors import Ended, one_line
from worker.layer import Layer, Structure
from worker.rendezvous import Rendezvous

SAVE_TIMEOUT_S = 600.0

Publish = Callable[..., Manifest]
"""The pilot's: publish(layers=entries) is the manifest of the saved boundary."""


class SaveFailed(Exception):
    """Ranks could not write their layers; the message says which and why."""


@dataclass(frozen=True)
class Outcome:
    """Of one save, in the pilot's words. error: "" where it was published."""

    step: int
    error: str = ""
    fenced: Ended | None = None


@dataclass(frozen=True)
class _Copy:
    layer: int
    name: str
    structure: Structure
    tensors: dict[str, Tensor]
    values: dict[str, Any]


class Saver:
    """At most one save at a time. connect: gives the writing thread its own rendezvous.

    A failed save is an outcome, never an exception: neither the job nor an older checkpoint suffers.
    """

    def __init__(
        self,
        store: Store,
        connect: Callable[[], Rendezvous],
        job: int,
        attempt: int,
        rank: int,
        size: int,
        keep: int,
    ) -> None:
        self._store, self._connect, self._job, self._attempt = store, connect, job, attempt
        self._rank, self._size, self._keep = rank, size, keep
        self._meet: Rendezvous | None = None
        self._thread: threading.Thread | None = None
        self._outcome: Outcome | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, step: int, layers: Sequence[Layer], publish: Publish | None) -> None:
        """Copy these layers' states and begin to write them. publish: in the pilot's member."""
        self.wait()
        copies = []
        for layer in layers:
            tensors, values = layer.state()
            own = {key: tensor.detach().cpu().clone() for key, tensor in tensors.items()}
            copies.append(_Copy(layer.index, layer.name, layer.structure, own, values))
        self._outcome = None
        self._thread = threading.Thread(target=self._work, args=(step, copies, publish), name="saver", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def outcome(self) -> Outcome | None:
        """Of the save that has ended since the last call; None while there is nothing new."""
        if self.busy:
            return None
        outcome, self._outcome = self._outcome, None
        return outcome

    def _work(self, step: int, copies: list[_Copy], publish: Publish | None) -> None:
        """Runs in the writing thread. Whatever happens becomes an outcome."""
        error, fenced = "", None
        try:
            if self._meet is None:
                self._meet = self._connect()
            written = self._write(copies)
            self._meet.set(f"save/{step}/{self._rank}", written)
            error = written.get("error", "")
            if publish is not None:
                self._publish(step, publish)
        except Ended as end:
            error, fenced = end.message, end if end.cause is Cause.FENCED else None
        except Exception as raised:
            if not isinstance(raised, OSError | SaveFailed):
                traceback.print_exc()
            error = str(raised) if isinstance(raised, SaveFailed) else one_line(raised)
        self._outcome = Outcome(step, error, fenced)

    def _write(self, copies: list[_Copy]) -> dict[str, Any]:
        """Entries of this rank's layers, or why there are none."""
        entries: dict[str, Any] = {}
        try:
            catalogue.check_fence(self._store, self._job, self._attempt)
            for copy in copies:
                data = layerfile.pack(copy.tensors, copy.values)
                sha256 = layerfile.digest(data)
                entry = LayerEntry(
                    name=copy.name,
                    sha256=sha256,
                    bytes=len(data),
                    crc32=zlib.crc32(data),
                    parameters=copy.structure["parameters"],
                    buffers=copy.structure["buffers"],
                )
                if not self._has(entry):
                    self._store.write(manifest.layer_file(sha256), data, f"{self._job}.{self._attempt}.{self._rank}")
                entries[str(copy.layer)] = msgspec.to_builtins(entry)
        except OSError as error:
            return {"error": f"rank {self._rank}: {error.strerror or error} in {self._store.place}"}
        return {"entries": entries}

    def _has(self, entry: LayerEntry) -> bool:
        """An equal layer is not written again, unless its file is damaged."""
        try:
            return layerfile.digest(self._store.read(manifest.layer_file(entry.sha256))) == entry.sha256
        except FileNotFoundError:
            return False

    def _publish(self, step: int, publish: Publish) -> None:
        assert self._meet is not None
        answers = self._meet.gather([f"save/{step}/{rank}" for rank in range(self._size)], SAVE_TIMEOUT_S)
        errors = [answer["error"] for answer in answers if "error" in answer]
        if errors:
            raise SaveFailed("; ".join(errors))
        entries = {int(layer): entry for answer in answers for layer, entry in answer["entries"].items()}
        made = publish(layers=tuple(msgspec.convert(entries[layer], LayerEntry) for layer in sorted(entries)))
        catalogue.check_fence(self._store, self._job, self._attempt)
        if not _is_good(self._store, step):
            self._store.write(manifest.name(step), manifest.encode(made), f"{self._job}.{self._attempt}")
        with contextlib.suppress(OSError):  # what stays is deleted after a later publish
            catalogue.clean_up(self._store, self._keep)


def _is_good(store: Store, step: int) -> bool:
    """An existing good checkpoint is kept."""
    if not store.exists(manifest.name(step)):
        return False
    try:
        for entry in read_manifest(store, step).layers:
            read_layer(store, entry, thoroughly=True)
    except ValueError:
        return False
    return True
