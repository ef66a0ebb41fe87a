"""A checkpoint store at any URL that fsspec reaches: buckets, SFTP, HDFS and others, each by its own package.

Credentials are those that the packages find by themselves (environment, files, the machine's role); none go through us.
"""

import contextlib
import errno
import posixpath
import time
from collections.abc import Callable, Iterator

import fsspec  # type: ignore[import-untyped]

PART_BYTES = 1 << 22
ATOMIC = frozenset({"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci"})
"""Whose uploads are there whole or not at all; with others a file is moved into place."""


class Remote:
    """As `worker.checkpoint.store.Store` says. A create is as exclusive as the file system makes it."""

    def __init__(self, url: str) -> None:
        """Raises ValueError: fsspec has no such protocol, or its package is not installed."""
        self.place = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise ValueError(f"checkpoint store {url!r}: {error}") from None
        protocols = {self._files.protocol} if isinstance(self._files.protocol, str) else set(self._files.protocol)
        self._atomic = bool(protocols & ATOMIC)

    def exists(self, name: str) -> bool:
        with _as_os_errors():
            self._files.invalidate_cache()
            return bool(self._files.exists(self._path(name)))

    def read(self, name: str, see: Callable[[memoryview], object] = lambda part: None) -> memoryview:
        with _as_os_errors(), self._files.open(self._path(name), "rb") as file:
            data = memoryview(bytearray(int(self._files.size(self._path(name)))))
            filled = 0
            while part := file.read(min(PART_BYTES, len(data) - filled)):
                data[filled : filled + len(part)] = part
                see(data[filled : filled + len(part)])
                filled += len(part)
        return data[:filled]

    def names(self, folder: str = ".") -> list[str]:
        with _as_os_errors(), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._files.invalidate_cache()
            found = self._files.ls(self._path(folder), detail=False)
            return sorted(posixpath.basename(str(path).rstrip("/")) for path in found)
        return []

    def write(self, name: str, data: bytes, unique: str) -> None:
        path = self._path(name)
        with _as_os_errors():
            self._files.makedirs(posixpath.dirname(path), exist_ok=True)
            if self._atomic:
                self._files.pipe_file(path, data)
                return
            temporary = posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.{unique}.tmp")
            try:
                self._files.pipe_file(temporary, data)
                self._files.mv(temporary, path)
            except BaseException:
                with contextlib.suppress(Exception):
                    self._files.rm_file(temporary)
                raise

    def create(self, name: str, data: bytes) -> bool:
        with _as_os_errors():
            self._files.makedirs(self._root, exist_ok=True)
            try:
                self._files.pipe_file(self._path(name), data, mode="create")
            except FileExistsError:
                return False
        return True

    def delete(self, name: str) -> None:
        path = self._path(name)
        with _as_os_errors(), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(path)
        if posixpath.dirname(path) != self._root:
            with contextlib.suppress(Exception):  # it is not empty, or there are no folders here
                self._files.rmdir(posixpath.dirname(path))

    def age_s(self, name: str) -> float:
        with _as_os_errors():
            return float(time.time() - self._files.modified(self._path(name)).timestamp())

    def free_bytes(self) -> int | None:
        return None

    def _path(self, name: str) -> str:
        return self._root if name == "." else posixpath.join(self._root, name)


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    """Each package has errors of its own; callers know OSError."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error
