"""metrics.jsonl on a full disk: lines are lost, training is not, and later lines can be read."""

import json
from pathlib import Path

from worker.metrics import FILE_NAME, Metrics


def test_what_does_not_fit_is_lost(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to("/dev/full")
    metrics = Metrics(tmp_path)
    with metrics._file:
        metrics.evaluation(1, 0.5)


def test_after_a_cut_line_the_next_one_is_whole(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    with metrics._file as file:
        metrics._file = _Fills(file)
        metrics.evaluation(1, 0.5)
        metrics.evaluation(2, 0.25)
    cut, whole = (tmp_path / FILE_NAME).read_text().splitlines()
    assert cut == '{"step'
    assert json.loads(whole)["step"] == 2


class _Fills:
    """Takes six bytes of the first write."""

    def __init__(self, file: object) -> None:
        self._file, self._room = file, 6

    def write(self, data: bytes) -> int:
        taken = self._file.write(data[: self._room])
        self._room = len(data) + 1000
        return taken
