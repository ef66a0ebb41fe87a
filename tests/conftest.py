"""Fixtures that several test files share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gang import Site
from shims import ShimFactory


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
