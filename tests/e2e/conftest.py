"""One real cluster for each test, with nothing left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.cancel_all()
    made.stop()
    assert made.strays() == []
