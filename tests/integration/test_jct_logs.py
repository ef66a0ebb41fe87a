"""What `jct logs` promises: the bytes that were written, by rank, to the end."""

import pytest
from cli_calls import submitted

from scheduler.cli.main import run


@pytest.fixture
def training(jct, living, job_file):
    """A job on two devices, with logs of its members."""
    id = submitted(jct, job_file("work: {total: 500 steps}"), "--gpus", "2")
    living.advance(4)
    attempt = living.state.jobs[id].last_attempt
    assert len(living.state.members_of(id, attempt)) == 2
    return id, attempt


def test_an_empty_log_is_told_beside_the_data(jct, training):
    id, _ = training
    code, out, err = jct("logs", id)
    assert (code, out) == (0, "")
    assert f"`jct show {id}`" in err


def test_b41_logs_of_one_rank_are_the_bytes_that_were_written(living, training, capsysbinary):
    id, attempt = training
    written = b"".join(b"line %d\r\x1b[2K\n" % n for n in range(100_000)) + bytes(range(256)) + b"no newline"
    living.logs[id, attempt, 0] = written
    capsysbinary.readouterr()
    assert run(["logs", str(id), "--rank", "0"]) == 0
    assert capsysbinary.readouterr().out == written


def test_several_ranks_are_labelled_line_by_line(jct, living, training):
    id, attempt = training
    living.logs |= {(id, attempt, 0): b"a\nb", (id, attempt, 1): b"c\n", (id, 1, 0): b"probe\n"}
    assert jct("logs", id)[1] == "[rank 0] a\n[rank 0] b\n[rank 1] c\n"
    assert jct("logs", id, "--rank", "1")[1] == "c\n"
    assert jct("logs", id, "--tail", "1")[1] == "[rank 0] b\n[rank 1] c\n"
    assert jct("logs", id, "--attempt", "1")[1] == "probe\n"
    assert jct("logs", id, "--rank", "7")[0] == 3
    assert jct("logs", id, "--attempt", "7")[0] == 3


def test_follow_ends_when_the_job_ends_and_misses_nothing(jct, living, job_file):
    id = submitted(jct, job_file("work: {total: 20 steps}"), "--gpus", "1")
    living.speed_s = 0.2
    read_log, written = living.read_log, {}

    async def growing(job, attempt, member, offset, limit):
        """Every look finds one more line, until the process is gone."""
        key = (job, attempt, member)
        if living.state.members[key].gone_us is None or key not in written:
            living.logs[key] = living.logs.get(key, b"") + b"attempt %d line\n" % attempt
            written[key] = living.logs[key].decode()
        return await read_log(job, attempt, member, offset, limit)

    living.read_log = growing
    code, out, err = jct("logs", "-f", id)
    assert code == 0, err
    assert out == "".join(written.values())
    assert len(written) == 2


def test_a_log_that_is_not_there_yet_is_told(jct, living, job_file):
    code, out, err = jct("logs", submitted(jct, job_file()))
    assert (code, out) == (3, "")
    assert "has not started" in err
