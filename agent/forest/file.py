"""Model files: arrays and a line of JSON in an .npz, never a pickle, and read only from where nobody else can write."""

import errno
import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from agent.folders import write_durably
from agent.forest.model import ANY, Hardware, Model
from agent.forest.schema import SCHEMAS, Schema
from agent.forest.trees import BadTrees, Trees

FORMAT = 1
MAX_BYTES = 64 << 20
_ARRAYS = {
    "feature": np.int32, "threshold": np.float64, "children": np.int32, "value": np.float64, "roots": np.int32,
    "importances": np.float64, "medians": np.float64, "lows": np.float64, "highs": np.float64,
}  # fmt: skip
_PER_FEATURE = ("importances", "medians", "lows", "highs")


class BadModel(ValueError):
    """The file cannot be used; says why."""


class _Head(msgspec.Struct, frozen=True):
    """sum: of all arrays, in order."""

    format: int
    schema: str
    version: int
    hash: str
    features: tuple[str, ...]
    hardware: Hardware
    depth: int
    quantile: float
    sum: str
    about: dict[str, str]


def write(path: Path, model: Model) -> None:
    """The whole file or none, readable by its owner alone. Raises OSError."""
    arrays = {name: np.asarray(_array(model, name), dtype=kind) for name, kind in _ARRAYS.items()}
    head = _Head(
        FORMAT, model.schema.name, model.schema.version, model.schema.hash, model.schema.names, model.hardware,
        model.trees.depth, model.quantile, _sum(arrays), dict(model.about),
    )  # fmt: skip
    data = io.BytesIO()
    np.savez_compressed(data, head=np.frombuffer(msgspec.json.encode(head), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    old = os.umask(0o077)
    try:
        write_durably(path, data.getvalue())
    finally:
        os.umask(old)


def read(
    path: Path, schema: Schema | None = None, hardware: Hardware | None = None, owners: Collection[int] = ()
) -> Model:
    """schema, hardware: that it has to be for; a generic model is for every topology. owners: whose it may be besides
    this process's own user and root. Raises BadModel."""
    try:
        data = _read_owned(path, {0, os.geteuid(), *owners})
        head, arrays = _parse(data)
    except FileNotFoundError:
        raise BadModel("there is no such file") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError, MemoryError) as error:
        raise BadModel(f"it is no model file: {error}") from None
    except Exception as error:  # zlib and others raise what they like on damaged bytes
        raise BadModel(f"it is damaged: {type(error).__name__}: {error}") from None
    return _checked(head, arrays, schema, hardware)


def _read_owned(path: Path, owners: Collection[int]) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        file, folder = os.fstat(descriptor), path.parent.stat()
        if not stat.S_ISREG(file.st_mode):
            raise PermissionError(errno.EPERM, "it is no plain file")
        for what, found in (("it", file), ("its folder", folder)):
            if found.st_uid not in owners:
                raise PermissionError(errno.EPERM, f"{what} belongs to user {found.st_uid}")
            if found.st_mode & 0o022 and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
                raise PermissionError(errno.EPERM, f"others may write to {what}: chmod go-w")
        if file.st_size > MAX_BYTES:
            raise ValueError(f"{file.st_size} bytes; the limit is {MAX_BYTES}")
        return os.pread(descriptor, MAX_BYTES, 0)
    finally:
        os.close(descriptor)


def _parse(data: bytes) -> tuple[_Head, dict[str, Any]]:
    with zipfile.ZipFile(io.BytesIO(data)) as members:
        if sum(member.file_size for member in members.infolist()) > MAX_BYTES:
            raise ValueError(f"unpacked it has more than {MAX_BYTES} bytes")
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        head = msgspec.json.decode(found["head"].tobytes(), type=_Head)
        arrays = {name: found[name] for name in _ARRAYS}
    for name, kind in _ARRAYS.items():
        if arrays[name].dtype != kind:
            raise ValueError(f"{name} has type {arrays[name].dtype}")
    return head, arrays


def _checked(head: _Head, arrays: dict[str, Any], schema: Schema | None, hardware: Hardware | None) -> Model:
    if head.format != FORMAT:
        raise BadModel(f"it has format {head.format}, this version reads {FORMAT}: calibrate again")
    known = SCHEMAS.get(head.schema)
    wanted = schema or known
    if wanted is None or known is None or known.name != wanted.name:
        raise BadModel(f"it is for the schema {head.schema}")
    if (head.version, head.hash, head.features) != (wanted.version, wanted.hash, wanted.names):
        raise BadModel(f"it has other features, or in another order, than {wanted.name} {wanted.version}")
    if head.sum != _sum(arrays):
        raise BadModel("its checksum is wrong")
    was = head.hardware
    if hardware is not None and (was.kind != hardware.kind or was.topology not in (hardware.topology, ANY)):
        here = f"{hardware.kind} ({hardware.topology})"
        raise BadModel(f"it was calibrated on {was.kind} ({was.topology}), this is {here}")
    if any(arrays[name].shape != (len(wanted.names),) or not np.isfinite(arrays[name]).all() for name in _PER_FEATURE):
        raise BadModel("it has not one value a feature")
    if (arrays["importances"] < 0).any() or arrays["importances"].sum() > 1.01:
        raise BadModel("its importances are no shares of one")
    per_feature = {name: arrays.pop(name) for name in _PER_FEATURE}
    trees = Trees(**arrays, depth=head.depth)
    try:
        trees.check(len(wanted.names))
    except BadTrees as error:
        raise BadModel(str(error)) from None
    if not (np.isfinite(head.quantile) and head.quantile > 0):
        raise BadModel("it has no interval")
    return Model(wanted, head.hardware, trees, **per_feature, quantile=head.quantile, about=head.about)


def _array(model: Model, name: str) -> Any:
    return getattr(model if name in _PER_FEATURE else model.trees, name)


def _sum(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in _ARRAYS:
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
