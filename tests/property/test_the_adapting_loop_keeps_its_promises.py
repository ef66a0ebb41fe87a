"""Whatever happens around it, the loop changes one thing at a time, seldom, and never away from what works."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from policies.pricing import make_plan
from scheduler.protocol.spec import AdaptSpec
from worker.adapt.candidates import Candidate
from worker.adapt.loop import (
    CONFIRMING_STEPS,
    Acknowledged,
    Event,
    Loop,
    Observed,
    Phase,
    Plan,
    Planned,
    Prepare,
    Pressed,
    Revise,
    Say,
    Switched,
    Yielded,
)
from worker.adapt.situation import Situation

RANKS = 4
SPEC = AdaptSpec(threshold=0.2, held_s=30, cooldown_s=300, ack_s=20)
HOME = make_plan((0, 2, 4, 6, 8), (4,), 1, "1f1b")
OTHERS = [make_plan(bounds, (4,), 1, "1f1b") for bounds in ((0, 3, 4, 6, 8), (0, 2, 3, 6, 8), (0, 2, 4, 5, 8))]
CALM = Situation((1.0,) * RANKS)


def slowed(factor: float) -> Situation:
    return Situation((1.0, factor, 1.0, 1.0))


def loop() -> Loop:
    return Loop(SPEC, HOME, RANKS, 0.0)


factors = st.sampled_from([1.0, 1.1, 1.19, 1.3, 2.0, 3.0])
numbers = st.integers(0, 5)


def events() -> SearchStrategy[Event]:
    """Anything in any order, with answers that may be late, repeated or about something else."""
    return st.one_of(
        st.builds(
            Observed, st.builds(slowed, factors), st.one_of(st.none(), st.floats(0.1, 2)), st.booleans(), st.booleans()
        ),
        st.builds(Pressed, st.integers(0, RANKS - 1)),
        st.builds(Planned, st.one_of(st.none(), st.sampled_from([Candidate(plan, 0.5, 0.1) for plan in OTHERS]))),
        st.builds(Acknowledged, numbers, st.integers(0, RANKS), st.just(RANKS), st.sampled_from(["", "", "it cannot"])),
        st.builds(Switched, numbers, st.sampled_from(["", "a rank voted no"])),
        st.just(Yielded()),
    )


histories = st.lists(st.tuples(st.floats(0, 40), events()), max_size=120)


@given(histories)
def test_never_two_changes_are_in_flight(history: list[tuple[float, Event]]) -> None:
    machine, now, open_revision = loop(), 0.0, None
    for passed, event in history:
        now += passed
        before = machine.phase
        for instruction in machine.handle(now, event):
            if isinstance(instruction, Prepare):
                assert before is not Phase.PREPARING
                assert before is not Phase.REVISING
                assert open_revision is None or instruction.revision > open_revision
                open_revision = instruction.revision
            if isinstance(instruction, Revise):
                assert instruction.revision == open_revision
        if machine.phase is not Phase.PREPARING and machine.phase is not Phase.REVISING:
            open_revision = None


@given(histories)
def test_only_plans_that_all_ranks_took_ever_run(history: list[tuple[float, Event]]) -> None:
    machine, now, runs = loop(), 0.0, HOME
    for passed, event in history:
        now += passed
        revising = machine.phase is Phase.REVISING
        machine.handle(now, event)
        if machine.plan != runs:
            assert revising
            assert isinstance(event, Switched)
            assert not event.dropped
        runs = machine.plan


@given(histories)
def test_a_stop_or_a_generation_finds_nothing_pending_but_a_vote(history: list[tuple[float, Event]]) -> None:
    machine, now = loop(), 0.0
    for passed, event in history:
        now += passed
        machine.handle(now, event)
        if isinstance(event, Yielded):
            assert machine.phase in (Phase.MONITORING, Phase.REVISING, Phase.CONFIRMING)


@given(st.lists(st.tuples(st.floats(1, 40), factors), min_size=1, max_size=200))
def test_without_emergencies_two_changes_are_a_cooldown_apart(weather: list[tuple[float, float]]) -> None:
    """Everything is answered at once, and every change turns out well."""
    machine, now = loop(), 0.0
    for count, (passed, factor) in enumerate(weather):
        now += passed
        pending = machine.handle(now, Observed(slowed(factor), 1.0))
        while pending:
            pending = [answer for one in pending for answer in machine.handle(now, reply(one, count))]
    assert all(later - earlier >= SPEC.cooldown_s for earlier, later in pairwise(machine.changes))


def reply(instruction: object, count: int) -> Event:
    match instruction:
        case Plan():
            return Planned(Candidate(OTHERS[count % len(OTHERS)], 0.5, 0.1))
        case Prepare(revision, _):
            return Acknowledged(revision, RANKS, RANKS)
        case Revise(revision):
            return Switched(revision)
    raise AssertionError(instruction)


def started(factor: float = 2.0) -> tuple[Loop, float]:
    """A loop that has just asked all ranks to prepare OTHERS[0]."""
    machine = loop()
    machine.handle(0, Observed(slowed(factor), 1.0))
    (plan,) = machine.handle(30, Observed(slowed(factor), 1.0))
    assert plan == Plan(slowed(factor))
    assert machine.handle(31, Planned(Candidate(OTHERS[0], 0.7, 0.1))) == [Prepare(1, OTHERS[0])]
    return machine, 31.0


def changed() -> tuple[Loop, float]:
    machine, now = started()
    assert machine.handle(now, Acknowledged(1, RANKS, RANKS)) == [Revise(1)]
    assert machine.handle(now, Switched(1)) == []
    return machine, now


def test_nineteen_per_cent_do_not_trigger_and_a_burst_of_29_s_is_ignored() -> None:
    machine = loop()
    for now in range(0, 1000, 10):
        assert machine.handle(now, Observed(slowed(1.19), 1.0)) == []
    assert machine.handle(2000, Observed(slowed(2.0), 1.0)) == []
    assert machine.handle(2029, Observed(slowed(2.0), 1.0)) == []
    assert machine.handle(2029.5, Observed(CALM, 1.0)) == []
    assert machine.handle(2059, Observed(slowed(2.0), 1.0)) == []
    assert machine.handle(2089, Observed(slowed(2.0), 1.0)) == [Plan(slowed(2.0))]


def test_where_an_agents_forecast_agrees_half_the_time_is_enough() -> None:
    machine = loop()
    assert machine.handle(0, Observed(slowed(2.0), 1.0, foreseen=True)) == []
    assert machine.handle(14, Observed(slowed(2.0), 1.0, foreseen=True)) == []
    assert machine.handle(15, Observed(slowed(2.0), 1.0, foreseen=True)) == [Plan(slowed(2.0))]


def test_what_is_only_foretold_is_held_and_cooled_down_like_any_other() -> None:
    machine = loop()
    assert machine.handle(0, Observed(slowed(2.0), 1.0, foretold=True)) == []
    assert machine.handle(29, Observed(slowed(2.0), 1.0, foretold=True)) == []
    assert machine.handle(30, Observed(slowed(2.0), 1.0, foretold=True)) == [Plan(slowed(2.0))]
    for instruction in (Planned(Candidate(OTHERS[0], 0.7, 0.1)), Acknowledged(1, RANKS, RANKS), Switched(1)):
        machine.handle(31, instruction)
    for i in range(CONFIRMING_STEPS):
        assert machine.handle(32 + i, Observed(slowed(2.0), 1.3)) == [], "slower than before it came, and right"
    for now in range(60, 331, 10):
        assert machine.handle(now, Observed(slowed(4.0), 1.3, foretold=True)) == []
    assert machine.handle(331, Observed(slowed(4.0), 1.3, foretold=True)) == [Plan(slowed(4.0))]


def test_what_was_foretold_and_has_not_come_is_taken_back_and_then_rests() -> None:
    machine = loop()
    for now in (0, 30):
        machine.handle(now, Observed(slowed(2.0), 1.0, foretold=True))
    for event in (Planned(Candidate(OTHERS[0], 0.7, 0.1)), Acknowledged(1, RANKS, RANKS), Switched(1)):
        machine.handle(31, event)
    for i in range(CONFIRMING_STEPS - 1):
        assert machine.handle(32 + i, Observed(CALM, 0.9)) == []
    said, back = machine.handle(50, Observed(CALM, 0.9))
    assert said == Say("revision 1 is taken back: what its agent foresaw has not come")
    assert back == Prepare(2, HOME)
    for event in (Acknowledged(2, RANKS, RANKS), Switched(2)):
        machine.handle(51, event)
    for now in range(60, 2000, 10):
        assert machine.handle(now, Observed(CALM, 1.0)) == []
    assert machine.plan == HOME


def test_a_missing_acknowledgement_leaves_the_job_on_its_last_stable_plan() -> None:
    machine, now = started()
    assert machine.handle(now + 1, Acknowledged(1, RANKS - 1, RANKS)) == []
    (said,) = machine.handle(now + SPEC.ack_s, Observed(slowed(2.0), 1.0))
    assert isinstance(said, Say)
    assert machine.plan == HOME
    assert machine.handle(now + 21, Acknowledged(1, RANKS, RANKS)) == []
    assert machine.plan == HOME


def test_a_vote_against_leaves_the_job_on_its_last_stable_plan() -> None:
    machine, now = started()
    machine.handle(now, Acknowledged(1, RANKS, RANKS))
    (said,) = machine.handle(now, Switched(1, "rank 2: out of memory"))
    assert isinstance(said, Say)
    assert machine.plan == HOME


def test_a_change_that_makes_steps_longer_is_taken_back_without_waiting() -> None:
    machine, now = changed()
    for i in range(CONFIRMING_STEPS - 1):
        assert machine.handle(now + i, Observed(slowed(2.0), 1.3)) == []
    said, back = machine.handle(now + 20, Observed(slowed(2.0), 1.3))
    assert isinstance(said, Say)
    assert back == Prepare(2, HOME)
    machine.handle(now + 21, Acknowledged(2, RANKS, RANKS))
    machine.handle(now + 21, Switched(2))
    assert machine.plan == HOME
    assert machine.handle(now + 1000, Observed(slowed(2.0), 1.0)) == []


def test_when_interference_ends_the_loop_plans_once_and_then_rests() -> None:
    machine, now = changed()
    for i in range(40):
        assert machine.handle(now + 10 * i, Observed(slowed(2.0), 0.7)) == []
    assert machine.handle(now + 400, Observed(CALM, 0.6)) == []
    assert machine.handle(now + 430, Observed(CALM, 0.6)) == [Plan(CALM)]
    assert machine.handle(now + 431, Planned(Candidate(HOME, 0.5, 0.1))) == [Prepare(2, HOME)]
    machine.handle(now + 431, Acknowledged(2, RANKS, RANKS))
    machine.handle(now + 431, Switched(2))
    assert machine.plan == HOME
    for i in range(100):
        assert machine.handle(now + 440 + 10 * i, Observed(CALM, 0.5)) == []


def test_interference_that_ends_bit_by_bit_still_leads_home_once() -> None:
    """Each step is within the threshold of the one before."""
    machine, now = changed()
    for factor in (2.0, 1.7):
        for i in range(20):
            now += 30
            assert machine.handle(now, Observed(slowed(factor), 0.7)) == [], (factor, i)
    machine._planned_for = slowed(1.19)  # as after a change that was made half-way
    assert machine.handle(now + 30, Observed(CALM, 0.6)) == []
    assert machine.handle(now + 60, Observed(CALM, 0.6)) == [Plan(CALM)]
    assert machine.handle(now + 61, Planned(None)) == []
    for i in range(20):
        assert machine.handle(now + 100 + 30 * i, Observed(CALM, 0.6)) == []


def test_what_was_weighed_and_did_not_pay_is_not_weighed_again() -> None:
    machine = loop()
    machine.handle(0, Observed(slowed(2.0), 1.0))
    machine.handle(30, Observed(slowed(2.0), 1.0))
    assert machine.handle(31, Planned(None)) == []
    for now in range(40, 2000, 10):
        assert machine.handle(now, Observed(slowed(2.1), 1.0)) == []


def test_after_an_emergency_the_job_does_not_go_back_to_what_did_not_fit() -> None:
    machine = loop()
    machine.handle(0, Observed(CALM, 1.0))
    assert machine.handle(1, Pressed(1)) == [Plan(CALM, relieve=1)]
    assert machine.handle(2, Planned(Candidate(OTHERS[0], 1.5, 0.1))) == [Prepare(1, OTHERS[0])]
    assert machine.handle(3, Acknowledged(1, RANKS, RANKS)) == [Revise(1)]
    assert machine.handle(3, Switched(1)) == []
    assert machine.home == OTHERS[0]
    for i in range(100):  # slower than before, and undisturbed
        assert machine.handle(10 + 10 * i, Observed(CALM, 1.5)) == []


def test_memory_does_not_wait_for_a_cooldown_but_is_not_tried_at_every_step() -> None:
    machine, now = changed()
    assert machine.handle(now + 1, Pressed(2)) == [Plan(slowed(2.0), relieve=2)]
    machine.handle(now + 2, Planned(None))
    assert machine.handle(now + 3, Pressed(2)) == []
    assert machine.handle(now + 40, Pressed(2)) == [Plan(slowed(2.0), relieve=2)]


def test_after_an_emergency_a_change_is_taken_back_to_what_ran_before_it_and_no_further() -> None:
    """The emergency came before the first change was confirmed, and found nothing."""
    machine, now = changed()
    machine.handle(now + 1, Pressed(2))
    machine.handle(now + 2, Planned(None))
    for later in (400, 430):
        machine.handle(now + later, Observed(slowed(3.0), 1.0))
    now += 431
    for event in (Planned(Candidate(OTHERS[1], 0.7, 0.1)), Acknowledged(2, RANKS, RANKS), Switched(2)):
        machine.handle(now, event)
    back = [one for i in range(CONFIRMING_STEPS) for one in machine.handle(now + i, Observed(slowed(3.0), 1.3))]
    assert back[-1] == Prepare(3, OTHERS[0])
