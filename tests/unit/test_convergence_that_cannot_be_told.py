"""Training is not ended by what measures it: where nothing can be told there is no file."""

import json
from collections import deque
from math import inf, nan

import pytest

from policies.convergence import Noise
from worker.convergence import FILE_NAME, LEAST, Curve, Measuring, _Record


def written(folder, loss: float = 2.0, **found: float) -> bool:
    values = {"changed": 1.0, "moved": 1.0, "variance": 1.0} | found
    noise = Noise(1.0, values["variance"])
    measuring = object.__new__(Measuring)
    measuring._records = deque([_Record([1.0], values["changed"], values["moved"], noise)] * LEAST)
    measuring._losses = Curve()
    for seen in [*[2.0] * LEAST, loss]:
        measuring._losses.take(seen)
    measuring._write(folder)
    return (folder / FILE_NAME).exists()


@pytest.mark.parametrize(
    "found",
    [{"moved": 0.0, "changed": 0.0}, {"moved": inf, "changed": inf}, {"variance": nan}, {"loss": nan}, {"loss": 1e300}],
    ids=str,
)
def test_steps_that_tell_nothing_write_nothing(tmp_path, found):
    assert not written(tmp_path, **found)


def test_steps_that_tell_something_are_written_as_json(tmp_path):
    assert written(tmp_path)
    assert json.loads((tmp_path / FILE_NAME).read_text())["smoothness"] == 1.0
