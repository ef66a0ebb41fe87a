"""The spec key: what the user's code looked like at submission, as far as a hash can say."""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from scheduler.core.errors import Code, JctError
from scheduler.jobfile.key import spec_key

MAX_FILES = 2_000
MAX_FILE_BYTES = 1024 * 1024


def key_of(document: dict[str, Any]) -> str:
    """Of a job document whose workdir exists. Raises JctError where the entry point's module is nowhere to be found."""
    entrypoint, arguments = document["entrypoint"], document.get("arguments") or {}
    parallel = document.get("parallel")
    global_batch = parallel.get("global_batch") if isinstance(parallel, dict) else None
    root = find_module(str(entrypoint).partition(":")[0], Path(document["workdir"]))
    return spec_key(entrypoint, arguments, global_batch, code_digest(root))


def find_module(module: str, workdir: Path) -> Path:
    """The top-level package's folder or module's file: in the work directory first, else among what is installed."""
    top, *inner = module.split(".")
    root = _in_folder(top, workdir) or _installed(top)
    at = root
    for name in inner:
        at = _in_folder(name, at) if at is not None and at.is_dir() else None
    if root is None or at is None:
        raise JctError(
            Code.BAD_SPEC,
            f"entrypoint: there is no module {module!r} in {workdir}, nor is it installed",
            field="entrypoint",
            hint="workdir must be the folder that the package lies in",
        )
    return root


def _in_folder(name: str, folder: Path) -> Path | None:
    if (folder / name).is_dir():
        return folder / name
    file = folder / f"{name}.py"
    return file if file.is_file() else None


def _installed(top: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin and Path(spec.origin).is_file() else None


def code_digest(root: Path) -> str:
    """Of the .py files, by path and content; beyond the bounds by path and size only."""
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*.py") if path.is_file())
    digest = hashlib.sha256()
    for number, path in enumerate(files):
        size = path.stat().st_size
        whole = number < MAX_FILES and size <= MAX_FILE_BYTES
        digest.update(f"{path.relative_to(root.parent)}\0{size}\0".encode("utf-8", "surrogateescape"))
        digest.update(hashlib.sha256(path.read_bytes() if whole else b"").digest())
    return digest.hexdigest()
