"""Real text that every machine with Python has: the sources of its standard library, as bytes."""

import hashlib
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

VOCABULARY = 256


class ByteWindows:
    """Windows of `context` bytes and the bytes that follow them. Window i starts at byte i * stride."""

    def __init__(self, text: bytes, context: int, stride: int) -> None:
        """Raises ValueError: the text is shorter than one window and its next byte."""
        if len(text) <= context:
            raise ValueError(f"{len(text)} bytes of text hold no window of {context} bytes and the byte after it")
        self._bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._context, self._stride = context, stride

    def __len__(self) -> int:
        return (len(self._bytes) - self._context - 1) // self._stride + 1

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        starts = torch.tensor(list(indices)) * self._stride
        window = self._bytes[starts[:, None] + torch.arange(self._context + 1)].long()
        return window[:, :-1], window[:, 1:]


def stdlib_files() -> list[Path]:
    """Its modules, sorted by name: packages that pip adds and caches are none of it."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return sorted(path for path in root.glob("*.py") if path.is_file()) + sorted(
        path
        for folder in ("asyncio", "collections", "concurrent", "email", "html", "http", "importlib", "json", "logging")
        for path in (root / folder).glob("*.py")
    )


def is_validation(path: Path) -> bool:
    """One file in ten, by the hash of its name: the split does not move when other files come and go."""
    return hashlib.sha256(f"{path.parent.name}/{path.name}".encode()).digest()[0] < 26


def stdlib_text(context: int) -> tuple[ByteWindows, ByteWindows]:
    """Training and validation windows.

    Raises:
        FileNotFoundError: there are no sources, as in some minimal installations.
    """
    files = stdlib_files()
    if not files:
        raise FileNotFoundError(f"no sources of the standard library in {sysconfig.get_paths()['stdlib']}")
    train = b"\n".join(path.read_bytes() for path in files if not is_validation(path))
    validation = b"\n".join(path.read_bytes() for path in files if is_validation(path))
    # Validation takes few windows, so they are spread over its files.
    return ByteWindows(train, context, stride=context), ByteWindows(validation, context, stride=61 * context)
