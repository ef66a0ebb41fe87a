"""Agents come to rest where their Targets want them, and absence kills nobody."""

import hypothesis.strategies as st
from hypothesis import given

from scheduler.protocol.messages import Phase, Report, Run, Stop, Target
from scheduler.protocol.reconcile import Deliver, Forget, NeverStarted, SpawnMember, reconcile
from scheduler.protocol.spec import AttemptSpec, JobSpec

SPEC = AttemptSpec(kind="train", job=JobSpec(name="n", entrypoint="a:b", workdir="/"), nonce="n")
KEYS = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(0, 1))


def target(key: tuple[int, int, int], stop: bool) -> Target:
    want = Stop(grace_s=0.0, why="w") if stop else Run()
    return Target(job=key[0], attempt=key[1], member=key[2], device="d", want=want, spec=SPEC)


def report(key: tuple[int, int, int], gone: bool) -> Report:
    phase = Phase.GONE if gone else Phase.TRAINING
    return Report(job=key[0], attempt=key[1], member=key[2], seq=1, phase=phase)


@given(st.dictionaries(KEYS, st.booleans()), st.dictionaries(KEYS, st.booleans()))
def test_doing_the_steps_leaves_nothing_to_do(stops: dict, gones: dict) -> None:
    wanted = [target(key, stop) for key, stop in stops.items()]
    reports = {key: report(key, gone) for key, gone in gones.items()}
    delivered: dict[tuple[int, int, int], Target] = {}
    alive = {key for key, gone in gones.items() if not gone}
    for step in reconcile(wanted, reports, delivered):
        match step:
            case SpawnMember(new) | Deliver(new):
                delivered[new.key] = new
                reports.setdefault(new.key, report(new.key, gone=False))
            case NeverStarted(new):
                reports[new.key] = report(new.key, gone=True)
            case Forget(key):
                del reports[key]
    assert reconcile(wanted, reports, delivered) == ()
    assert alive <= set(reports), "whoever lives is still known"
    assert all(key in reports for key in stops), "every Target has its member"


def test_a_live_member_without_a_target_is_left_alone() -> None:
    assert reconcile([], {(1, 1, 0): report((1, 1, 0), gone=False)}, {}) == ()


def test_an_ended_member_is_never_started_again() -> None:
    key = (1, 1, 0)
    assert reconcile([target(key, stop=False)], {key: report(key, gone=True)}, {}) == ()
