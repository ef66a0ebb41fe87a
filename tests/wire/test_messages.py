"""Bytes from outside are messages of the protocol or nothing at all."""

import pickle
from typing import get_args

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from policies.ir.plan import ParallelPlan, StagePlan
from scheduler.protocol import codec
from scheduler.protocol.codec import BadMessage, Unframer, encode, frame
from scheduler.protocol.messages import (
    Beat,
    FromAgent,
    Phase,
    Report,
    Reports,
    Run,
    Stop,
    Target,
    Targets,
    ToAgent,
)
from scheduler.protocol.spec import AttemptSpec, CheckpointSpec, JobSpec

TEXT = st.text(max_size=20)
NUMBER = st.integers(0, 2**40)


@st.composite
def targets(draw: st.DrawFn) -> Target:
    stages = draw(st.integers(1, 4))
    plan = ParallelPlan(tuple(StagePlan(i, i + 1, (i,), (2,)) for i in range(stages)), 2, draw(st.integers(1, 9)))
    job = JobSpec(
        name=draw(TEXT), entrypoint="a:b", workdir="/", env=draw(st.dictionaries(TEXT, TEXT, max_size=3)),
        arguments=draw(st.dictionaries(TEXT, st.one_of(NUMBER, TEXT, st.booleans(), st.none()), max_size=3)),
        checkpoint=draw(st.one_of(st.none(), st.builds(CheckpointSpec, dir=TEXT))),
    )
    return Target(
        job=draw(NUMBER), attempt=draw(NUMBER), member=draw(NUMBER), device=draw(TEXT), plan=plan,
        want=draw(st.one_of(st.builds(Run), st.builds(Stop, grace_s=st.floats(0, 1e6), why=TEXT))),
        spec=AttemptSpec(kind="train", job=job, nonce=draw(TEXT)), store=draw(st.one_of(st.none(), TEXT)),
    )


@given(targets())
def test_what_goes_in_comes_out(target: Target) -> None:
    message = Targets(epoch=1, session="s", version=2, targets=(target,))
    assert codec.decode_to_agent(encode(message)) == message
    assert codec.decode_target(encode(target)) == target


@given(st.binary(max_size=200))
def test_garbage_is_refused_with_one_kind_of_error(data: bytes) -> None:
    for decode in (codec.decode_from_agent, codec.decode_to_agent, codec.decode_to_shim, codec.decode_from_shim):
        try:
            message = decode(data)
        except BadMessage:
            continue
        assert encode(message)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"evil": 1}),
        msgspec.msgpack.encode({"type": "Reports", "session": 3}),
        msgspec.msgpack.encode({"type": "NoSuchMessage"}),
        b"\xc1" * 50,
        b"\x91" * 100_000,
        b"",
    ],
    ids=["pickle", "wrong types", "unknown message", "never used byte", "deep nesting", "empty"],
)
def test_messages_that_are_none(data: bytes) -> None:
    with pytest.raises(BadMessage):
        codec.decode_from_agent(data)


def test_sizes_are_capped_on_both_sides() -> None:
    report = Report(job=1, attempt=1, member=0, seq=1, phase=Phase.TRAINING, message="x" * codec.MAX_BYTES)
    with pytest.raises(BadMessage, match="limit"):
        encode(Reports(session="s", seq=1, applied=0, reports=(report,)))
    with pytest.raises(BadMessage, match="limit"):
        codec.decode_from_agent(b"x" * (codec.MAX_BYTES + 1))
    with pytest.raises(BadMessage, match="limit"):
        Unframer().feed((codec.MAX_BYTES + 1).to_bytes(4, "big"))


@given(st.lists(st.builds(Beat, session=TEXT, seq=NUMBER, applied=NUMBER), max_size=5), st.integers(1, 7))
def test_frames_survive_any_cutting_of_the_stream(beats: list[Beat], cut: int) -> None:
    stream = b"".join(frame(beat) for beat in beats)
    unframer, found = Unframer(), []
    for start in range(0, len(stream), cut):
        found += [codec.decode_from_agent(body) for body in unframer.feed(stream[start : start + cut])]
    assert found == beats


def test_b08_messages_carry_durations_and_never_moments() -> None:
    """No two machines compare clocks, so nothing that crosses between them may say when."""
    names = {
        field.name
        for message in (*get_args(FromAgent), *get_args(ToAgent), Target, Report)
        for field in msgspec.structs.fields(message)
    }
    assert "step_time_s" in names
    assert [name for name in names if name.endswith(("_us", "_at", "_ns", "time", "clock", "date"))] == []
