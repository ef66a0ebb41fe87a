"""Whether results can be written where they shall go, before time is spent on making them."""

import os
from pathlib import Path

from worker.checkpoint.store import Store


def check_file(option: str, path: Path) -> None:
    """Opens it to append, and leaves no trace. Raises ValueError with what to do."""
    existed = os.path.lexists(path)  # a link to a file that is yet to be made stays, too
    try:
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
