"""A checkpoint store in a local or mounted directory: whole files or none, and an exclusive create."""

import contextlib
import mmap
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

PART_BYTES = 1 << 19
HUGE_PAGE_BYTES = 1 << 21


class Directory:
    """Files by relative name. Everything raises OSError as the file system does (ENOSPC, EROFS, ...)."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @property
    def place(self) -> str:
        return str(self.root)

    def free_bytes(self) -> int | None:
        """Room that is left on its disk."""
        return shutil.disk_usage(self.root).free

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def read(self, name: str, see: Callable[[memoryview], object] = lambda part: None) -> memoryview:
        """The whole file, in a buffer that the caller may keep and view.

        see: is shown each part as it comes, while it is still in the processor's cache.
        """
        with open(self.root / name, "rb", buffering=0) as file:
            data, filled = _buffer(os.fstat(file.fileno()).st_size), 0
            while count := file.readinto(data[filled : filled + PART_BYTES]):
                see(data[filled : filled + count])
                filled += count
        return data[:filled]

    def names(self, folder: str = ".") -> list[str]:
        """Names in a folder, sorted; empty where it does not exist."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(os.listdir(self.root / folder))
        return []

    def write(self, name: str, data: bytes, unique: str) -> None:
        """Durable and atomic: a temporary file, fsync, rename, fsync of the folder.

        unique: differs between writers, so that two of the same name do not share a temporary file.
        """
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{unique}.tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)

    def create(self, name: str, data: bytes) -> bool:
        """Durable exclusive create. False where it exists already."""
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(self.root / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.root)
        return True

    def delete(self, name: str) -> None:
        """Nothing where it does not exist. A folder goes with its last file."""
        path = self.root / name
        path.unlink(missing_ok=True)
        if path.parent != self.root:
            with contextlib.suppress(OSError):
                path.parent.rmdir()

    def age_s(self, name: str) -> float:
        """Seconds since it was written, by the store's clock as far as this machine can tell."""
        return time.time() - (self.root / name).stat().st_mtime


def _buffer(size: int) -> memoryview:
    """Writable memory. Where it is large, in huge pages: faulting small ones in would cost more than the reading."""
    if size < HUGE_PAGE_BYTES:
        return memoryview(bytearray(size))
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(area)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
