"""Fixtures that several test files share, and how hypothesis draws its examples."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from gang import Site
from hypothesis import settings
from shims import ShimFactory
from standin import Standin, compile_into, loaded

settings.register_profile("repeatable", derandomize=True)  # what lands is judged by the same examples each time
settings.register_profile("random", print_blob=True)  # and new ones are sought by make test-long
settings.register_profile("nightly", settings.get_profile("random"))  # and for the core many more, see how_many.py
settings.load_profile(os.environ.get("JCT_TEST_EXAMPLES", "repeatable"))


signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""What tests start is to hear them, as from a terminal, though a shell's `&` or nohup had these tests ignore them."""


@pytest.fixture(scope="session")
def shims() -> Iterator[ShimFactory]:
    factory = ShimFactory()
    yield factory
    factory.close()


@pytest.fixture
def site(tmp_path: Path, shims: ShimFactory) -> Iterator[Site]:
    made = Site(tmp_path, shims)
    yield made
    made.close()


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory's libnvidia-ml.so.1 that answers from a script."""
    return compile_into(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path) -> Iterator[Standin]:
    """Two GPUs that the real pynvml finds in this process."""
    with loaded(nvml_library, tmp_path) as standin:
        yield standin
