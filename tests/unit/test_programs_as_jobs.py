"""Fields for programs: scripts, processes a node, meanings of exit codes, caps of logs."""

import pytest

from scheduler.core.entities import EndCause, Job, JobState, Member, Result
from scheduler.core.errors import BadSpec
from scheduler.core.outcome import after_attempt, blame, by_verdict, exit_verdict
from scheduler.core.settings import CoreSettings
from scheduler.jobfile import parse_document
from scheduler.jobfile.read import read_text
from scheduler.protocol.messages import Cause

SCRIPT = "#!/bin/sh\necho $0\n"


def job(**fields):
    return parse_document({"name": "a", "workdir": "/w", **fields})


def test_a_script_is_a_way_to_run():
    spec = job(script=SCRIPT, processes="per_node", on_exit={"3": "requeue", "0": "done"}, logs={"max": "64MiB"})
    assert (spec.script, spec.processes, spec.is_command) == (SCRIPT, "per_node", True)
    assert spec.on_exit == {"3": "requeue", "0": "done"}
    assert spec.log_bytes == 64 << 20


@pytest.mark.parametrize("text", ["echo hi", "#!/bin/sh\r\necho hi", "#!sh\n", "", "#!/bin/sh\n\0", 5])
def test_a_script_must_name_its_interpreter(text):
    with pytest.raises(BadSpec, match="script"):
        job(script=text)


@pytest.mark.parametrize("wrong", [{"256": "done"}, {"-1": "fail"}, {"03": "done"}, {"x": "done"}, {"1": "retry"}, []])
def test_exit_codes_that_are_none_are_refused(wrong):
    with pytest.raises(BadSpec, match="on_exit"):
        job(script=SCRIPT, on_exit=wrong)


def test_fields_for_programs_are_refused_for_pipelines():
    with pytest.raises(BadSpec, match=r"on_exit.*command or a script"):
        job(entrypoint="m:f", on_exit={"3": "fail"})


def test_yaml_keys_may_be_numbers():
    text = "name: a\nworkdir: /w\nscript: '#!/bin/sh'\non_exit: {3: requeue, 0: done}\n"
    assert parse_document(read_text(text)).on_exit == {"3": "requeue", "0": "done"}


@pytest.mark.parametrize(
    ("text", "size"), [("1M", 1 << 20), ("2MiB", 2 << 20), ("3MB", 3_000_000), (1 << 20, 1 << 20), ("1G", 1 << 30)]
)
def test_sizes(text, size):
    assert job(script=SCRIPT, logs={"max": text}).log_bytes == size


@pytest.mark.parametrize("text", ["1", "1MBs", "-1M", "much", True, "1Mi", 5])
def test_sizes_that_are_none_or_too_small_are_refused(text):
    with pytest.raises(BadSpec, match="logs"):
        job(script=SCRIPT, logs={"max": text})


def ended(on_exit, *codes, ours=None):
    """What becomes of a job whose members ended by these exit codes."""
    spec = job(command=["x"], on_exit=on_exit, retries=1)
    one = Job(id=1, spec=spec, user="u", priority=50, submitted_us=0, state=JobState.ACTIVE)
    causes = {0: Cause.FINISHED, None: Cause.SIGNAL}
    members = [
        Member(
            job=1, attempt=1, number=k, node="n", device=str(k), exit_code=code,
            cause=causes.get(code, Cause.USER_EXCEPTION),
        )
        for k, code in enumerate(codes)
    ]
    verdict = exit_verdict(spec.on_exit, ours, members)
    cause = by_verdict(verdict, blame(ours, members, True)[0])
    return after_attempt(one, cause, "", False, 0, CoreSettings(), verdict).job


def test_exit_codes_mean_what_the_job_says():
    assert ended({"3": "done"}, 3, None).result is Result.COMPLETED
    assert ended({"3": "fail"}, 3, 0).result is Result.FAILED, "for good, though one retry is left"
    again = ended({"3": "requeue"}, 3, 0)
    assert (again.state, again.failures) == (JobState.QUEUED, 0), "no failure was counted"
    assert again.retry_at_us > 0, "but it cannot spin"
    assert ended({"3": "requeue"}, 4, 0).failures == 1, "other codes are failures as ever"
    assert ended({"3": "requeue", "4": "fail"}, 3, 4).result is Result.FAILED, "the gravest counts"


def test_an_exit_after_a_preemption_is_a_requeue_unless_the_job_says_otherwise():
    assert ended({}, 0, ours=EndCause.PREEMPTED).result is Result.COMPLETED, "it had finished"
    assert ended({"7": "done"}, 7, ours=EndCause.PREEMPTED).result is Result.COMPLETED
    assert ended({"7": "fail"}, 7, ours=EndCause.PREEMPTED).result is Result.FAILED
    assert ended({}, 7, ours=EndCause.PREEMPTED).state is JobState.QUEUED
    assert ended({"7": "requeue"}, 7, ours=EndCause.TIME_LIMIT).result is Result.TIMEOUT
