"""Where results go: whether they can be written there, before time is spent on making them; and writing them."""

import contextlib
import errno
import os
import sys
from pathlib import Path
from types import TracebackType

from worker.checkpoint.store import Store


def check_file(option: str, path: Path) -> None:
    """Opens it to append, and leaves no trace; a pipe or device is not opened, since a pipe's reader would see its end.

    Raises:
        ValueError: with what to do.
    """
    existed = os.path.lexists(path)  # a link to a file that is yet to be made stays, too
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with open(path, "ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise ValueError(f"{option} {path}: {error.strerror}; name a file that can be written") from None


def check_store(option: str, store: Store) -> None:
    """Writes a file to it, and takes it away again. Raises ValueError with what to do."""
    name = f"writable-{os.getpid()}"
    try:
        store.write(name, b"", name)
        store.delete(name)
    except OSError as error:
        what = error.strerror or error
        raise ValueError(f"{option} {store.place}: {what}; name a directory or URL that can be written") from None


class Sink:
    """A file, pipe or device that lines go to, at once. What fails is told once and costs lines, never the training."""

    def __init__(self, option: str, path: Path) -> None:
        """Waits for a reader where it is a pipe. Raises OSError."""
        self._name = f"{option} {path}"
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115  (closed at the exit)
        self._failed = False

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def write(self, lines: str) -> None:
        """After a failure nothing more is written: what is there has no gap."""
        data = memoryview(lines.encode())
        try:
            while data and not self._failed:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._failed = True
            print(f"jct train: {self._name}: {error.strerror}\n  training goes on without it", file=sys.stderr)
