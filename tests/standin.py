"""A libnvidia-ml.so.1 of our own, compiled from tests/nvml/standin.c, that the real pynvml module asks.

Its script may change while it runs; see standin.c for the lines.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
from services import missing_service

SOURCE = Path(__file__).parent / "nvml" / "standin.c"
GPUS = ("GPU-a", "GPU-b")


def compile_into(folder: Path) -> Path:
    """The library's path; the test is skipped where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing_service("no C compiler: install gcc and libc6-dev, see scripts/install-debian-packages")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([str(compiler), "-Wall", "-shared", "-fPIC", "-pthread", "-o", library, SOURCE], check=True)
    return library


class Standin:
    """The script: GPUs in order, and lines about them. Every change is there at once and whole."""

    def __init__(self, script: Path) -> None:
        self.script = script
        self.gpus: list[str] = list(GPUS)
        self.lines: list[str] = []
        self.write()

    def say(self, *lines: str) -> None:
        """Instead of all earlier lines."""
        self.lines = list(lines)
        self.write()

    def offer(self, *gpus: str) -> None:
        self.gpus = list(gpus)
        self.write()

    def write(self) -> None:
        new = self.script.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in [*(f"gpu {gpu}" for gpu in self.gpus), *self.lines]))
        new.rename(self.script)

    @property
    def environment(self) -> dict[str, str]:
        """For another process."""
        return {"NVML_SCRIPT": str(self.script)}


@contextmanager
def loaded(library: Path, folder: Path) -> Iterator[Standin]:
    """In this process, in place of the machine's own."""
    known = pynvml.nvmlLib
    standin = Standin(folder / "nvml-script")
    os.environ |= standin.environment
    pynvml.nvmlLib = ctypes.CDLL(str(library))
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield standin
    finally:
        standin.say()  # lets go of whatever blocks
        pynvml.nvmlLib = known
        pynvml._nvmlGetFunctionPointer_cache.clear()
        del os.environ["NVML_SCRIPT"]
