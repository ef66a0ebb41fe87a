"""Where checkpoints lie: a directory, or whatever fsspec reaches by a URL. Whole files or none, exclusive creates."""

from collections.abc import Callable
from typing import Protocol

from worker.checkpoint.directory import Directory


class Store(Protocol):
    """Files by relative name. Everything raises OSError where it cannot be done (ENOSPC, EROFS, no network, ...)."""

    @property
    def place(self) -> str:
        """As people know it: a path or a URL."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str, see: Callable[[memoryview], object] = ...) -> memoryview:
        """The whole file, in a buffer that the caller may keep and view. see: is shown each part as it comes."""

    def names(self, folder: str = ".") -> list[str]:
        """Names in a folder, sorted; empty where it does not exist."""

    def write(self, name: str, data: bytes, unique: str) -> None:
        """Durable and atomic. unique: differs between writers of the same name."""

    def create(self, name: str, data: bytes) -> bool:
        """Durable exclusive create. False where it exists already."""

    def delete(self, name: str) -> None:
        """Nothing where it does not exist. A folder goes with its last file."""

    def age_s(self, name: str) -> float:
        """Seconds since it was written, by the store's clock as far as this machine can tell."""

    def free_bytes(self) -> int | None:
        """Room that is left; None where nobody knows."""


def is_url(place: str) -> bool:
    return "://" in place


def open_store(place: str) -> Store:
    """A path, or a URL that fsspec knows, such as s3://bucket/folder with s3fs installed.

    Raises:
        ValueError: nobody knows this kind of URL, with what is missing.
    """
    scheme, separator, path = place.partition("://")
    if not separator or scheme == "file":
        return Directory(path or place)
    from worker.checkpoint.remote import Remote  # only who has a URL pays for the import

    return Remote(place)
