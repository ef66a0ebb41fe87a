"""The pilot's header: a change whose layers travel beside a step is announced one step before it comes."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from scheduler.protocol.messages import Stop
from worker.pilot import Header, Pilot
from worker.progress import Progress


@dataclass
class Proposed:
    """The next generation, as far as the pilot looks at it."""

    ready: int | None = None
    carries: bool = False
    known: bool = True


@dataclass
class Control:
    stop: Stop | None = None
    hold_at: tuple[int, ...] = ()
    save_no: int = 0
    target: Any = field(init=False)

    def __post_init__(self) -> None:
        spec = SimpleNamespace(hold_at=self.hold_at, start_timeout_s=1.0)
        self.target = SimpleNamespace(spec=spec, save_no=self.save_no)

    def check_peers(self) -> None:
        return


def pilot(control: Control, proposed: Proposed) -> Pilot:
    return Pilot(control, proposed, Progress(), 0.0, lambda: 0.0, True)


def test_layers_that_stay_among_members_are_carried_for_one_step() -> None:
    decides = pilot(Control(), Proposed(ready=2, carries=True))
    assert decides.header(1, False, left=5) == (Header.CARRY, 2)
    assert decides.header(2, False, left=4) == (Header.CHANGE, 2)


def test_layers_that_go_to_newcomers_only_need_no_step_before() -> None:
    assert pilot(Control(), Proposed(ready=2)).header(1, False, left=5) == (Header.CHANGE, 2)


def test_a_generation_that_is_withdrawn_while_it_is_carried_does_not_come() -> None:
    proposed = Proposed(ready=2, carries=True)
    decides = pilot(Control(), proposed)
    decides.header(1, False, left=5)
    proposed.ready = None
    assert decides.header(2, False, left=4) == (Header.GO, 0)


def test_another_generation_is_carried_afresh() -> None:
    proposed = Proposed(ready=2, carries=True)
    decides = pilot(Control(), proposed)
    decides.header(1, False, left=5)
    proposed.ready = 3
    assert decides.header(2, False, left=4) == (Header.GO, 0)
    assert decides.header(3, False, left=3) == (Header.CARRY, 3)


def test_a_stop_comes_before_a_change_that_is_carried() -> None:
    control = Control()
    decides = pilot(control, Proposed(ready=2, carries=True))
    decides.header(1, False, left=5)
    control.stop = Stop(grace_s=1, why="test")
    assert decides.header(2, False, left=4) == (Header.SAVE_AND_STOP, 0)


def test_a_scripted_change_is_carried_by_the_step_before_it() -> None:
    decides = pilot(Control(hold_at=(4,)), Proposed(ready=2, carries=True))
    headers = [decides.header(boundary, False, left=10 - boundary)[0] for boundary in range(1, 5)]
    assert headers == [Header.GO, Header.GO, Header.CARRY, Header.CHANGE]


def test_two_scripted_changes_in_a_row_leave_no_step_for_the_second() -> None:
    proposed = Proposed(ready=2, carries=True)
    assert pilot(Control(hold_at=(4, 5)), proposed).header(4, False, left=6) == (Header.CHANGE, 2)


def test_the_last_step_carries_nothing() -> None:
    assert pilot(Control(), Proposed(ready=2, carries=True)).header(8, False, left=1) == (Header.CHANGE, 2)


def test_no_save_begins_and_nothing_changes_within_an_evaluation_while_layers_are_carried() -> None:
    control = Control(save_no=1)
    decides = pilot(control, Proposed(ready=2, carries=True))
    decides.header(1, False, left=5)
    assert decides.header(1, False, left=0) == (Header.GO, 0)
    assert decides.header(2, False, left=4) == (Header.CHANGE, 2)
