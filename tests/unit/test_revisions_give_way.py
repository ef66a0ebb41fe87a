"""The header of a job that adapts: a stop and a next generation come first, a save comes last (LIFECYCLE 23)."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from test_the_pilot_decides_when_a_change_comes import Control, Proposed

from policies.pricing import make_plan
from scheduler.protocol.messages import Stop
from worker.adapt.loop import Prepare, Revise
from worker.pilot import Header, Pilot
from worker.progress import Progress

PLAN = make_plan((0, 1, 2), (4,), 1, "1f1b")


class Adapter:
    """Wants one thing after the other. yielded: how often it was told that something else comes first."""

    def __init__(self, *wanted: Prepare | Revise) -> None:
        self._wanted = iter(wanted)
        self.yielded = 0
        self.asked: list[bool] = []

    def header(self, _reviser: Any, saving: bool) -> Prepare | Revise | None:
        self.asked.append(saving)
        return next(self._wanted, None)

    def yields(self) -> None:
        self.yielded += 1


def nobody() -> Proposed:
    return Proposed(known=False)


def pilot(
    adapter: Adapter, proposed: Proposed | None = None, control: Control | None = None, carries: bool = True
) -> Pilot:
    reviser = SimpleNamespace(carries=lambda number: carries)
    part = SimpleNamespace(adapter=adapter, reviser=reviser)
    return Pilot(
        control or Control(), proposed or nobody(), Progress(), 0.0, lambda: 0.0, True, part
    )


def headers(decides: Pilot, boundaries: Iterable[int]) -> list[tuple[Header, int]]:
    return [decides.header(boundary, False, left=20 - boundary) for boundary in boundaries]


def test_a_revision_is_prepared_moved_and_made() -> None:
    adapter = Adapter(Prepare(1, PLAN), Revise(1))
    assert headers(pilot(adapter), range(4)) == [
        (Header.PREPARE, 1), (Header.MOVE, 1), (Header.REVISE, 1), (Header.GO, 0),
    ]  # fmt: skip


def test_shares_alone_move_nothing() -> None:
    assert headers(pilot(Adapter(Revise(1)), carries=False), range(2)) == [(Header.REVISE, 1), (Header.GO, 0)]


def test_layers_that_could_not_be_moved_make_no_revision() -> None:
    decides = pilot(Adapter(Revise(1)))
    assert decides.header(0, False, left=20) == (Header.MOVE, 1)
    decides.stays()
    assert decides.header(1, False, left=19) == (Header.GO, 0)


def test_while_a_generation_is_on_its_way_nothing_is_revised() -> None:
    adapter = Adapter(Prepare(1, PLAN))
    assert headers(pilot(adapter, Proposed(known=True)), range(3)) == [(Header.GO, 0)] * 3
    assert adapter.yielded == 3
    assert not adapter.asked


def test_a_revision_whose_layers_travel_finishes_before_the_generation() -> None:
    adapter, proposed = Adapter(Revise(1)), nobody()
    decides = pilot(adapter, proposed)
    assert decides.header(0, False, left=20) == (Header.MOVE, 1)
    proposed.known, proposed.ready = True, 2
    assert headers(decides, (1, 2)) == [(Header.REVISE, 1), (Header.CHANGE, 2)]


def test_a_stop_comes_before_everything() -> None:
    adapter, control = Adapter(Revise(1)), Control()
    decides = pilot(adapter, control=control)
    assert decides.header(0, False, left=20) == (Header.MOVE, 1)
    control.stop = Stop(grace_s=1.0, why="cancelled")
    assert decides.header(1, False, left=19) == (Header.SAVE_AND_STOP, 0)
    assert adapter.yielded == 1


def test_no_save_comes_while_layers_travel() -> None:
    control = Control()
    decides = pilot(Adapter(Revise(1)), control=control)
    assert decides.header(0, False, left=20) == (Header.MOVE, 1)
    control.target.save_no = 1
    assert decides.header(0, False, left=0) == (Header.GO, 0)  # within an evaluation
    assert headers(decides, (1, 2)) == [(Header.REVISE, 1), (Header.SAVE, 0)]


def test_nothing_switches_while_a_save_is_written_or_before_the_last_step() -> None:
    adapter = Adapter()
    decides = pilot(adapter)
    decides.header(0, True, left=20)
    decides.header(1, False, left=1)
    decides.header(2, False, left=20)
    assert adapter.asked == [True, True, False]
