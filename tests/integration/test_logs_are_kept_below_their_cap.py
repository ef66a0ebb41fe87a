"""Logs on a node: byte for byte, the oldest part given back over the cap, and never anybody else's file."""

import os

import pytest

from agent.folders import Folders
from agent.logs import Logs
from scheduler.protocol.messages import Read
from scheduler.protocol.spec import AttemptSpec, JobSpec

ATTEMPT = (1, 1)
MIB = 1 << 20


@pytest.fixture
def folders(tmp_path):
    folders = Folders(tmp_path)
    job = JobSpec(name="a", workdir="/w", command=("x",), log_bytes=2 * MIB)
    folders.make(ATTEMPT, AttemptSpec(kind="command", job=job, nonce="n"))
    return folders


def write(folders, data: bytes) -> None:
    descriptor = folders.open_log(ATTEMPT, 0)
    while data:
        data = data[os.write(descriptor, data) :]
    os.close(descriptor)


def read(logs: Logs, offset: int = 0, limit: int = 64 * MIB, **more):
    return logs.read(Read(request=7, job=1, attempt=1, member=0, offset=offset, limit=limit, **more))


def test_a_log_below_its_cap_is_as_it_was_written(folders):
    data = os.urandom(MIB) + b"no newline at the end"
    write(folders, data)
    logs = Logs(folders)
    logs.look()
    assert read(logs).data == data
    assert read(logs, offset=-3).data == b"end"
    assert read(logs, offset=len(data) + 5).data == b""


def test_over_the_cap_the_head_is_gone_and_offsets_stay_true(folders):
    data = os.urandom(5 * MIB)
    write(folders, data)
    logs = Logs(folders)
    logs.look()
    chunk = read(logs)
    assert chunk.offset == 3 * MIB, "the job asked for 2 MiB"
    assert chunk.size == len(data)
    assert chunk.data == data[chunk.offset :]
    assert os.stat(folders.log(ATTEMPT, 0)).st_blocks * 512 < 3 * MIB, "the disk has it back"
    write(folders, b"more")
    assert read(logs, offset=chunk.size).data == b"more", "its writer goes on where it was"
    assert read(logs, offset=MIB, limit=10).offset == 3 * MIB


def test_the_nodes_cap_counts_too(folders):
    write(folders, bytes(1) * 3 * MIB)
    logs = Logs(folders, cap_bytes=MIB)
    logs.look()
    assert read(logs).offset == 2 * MIB


def test_a_job_that_bars_its_own_index_leaves_the_caps_of_others(folders):
    other = AttemptSpec(kind="command", job=JobSpec(name="b", workdir="/w", command=("x",)), nonce="m")
    os.symlink("/nowhere", folders.make((0, 1), other) / "member-0.times")
    os.close(folders.open_log((0, 1), 0))
    write(folders, bytes(5 * MIB))
    logs = Logs(folders)
    logs.look()
    assert read(logs).offset == 3 * MIB


def test_what_was_written_since(folders, monkeypatch):
    clock = iter((1000.0, 1100.0, 1160.0, 1160.0, 1160.0))
    monkeypatch.setattr("agent.logs.time.time", lambda: next(clock))
    logs = Logs(folders)
    for line in (b"first\n", b"second\n"):
        write(folders, line)
        logs.look()
    assert read(logs, since_s=30.0).data == b""
    assert read(logs, since_s=100.0).data == b"second\n"
    assert read(logs, since_s=500.0).data == b"first\nsecond\n"


def test_a_link_in_a_jobs_folder_leads_nowhere(folders, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"not yours")
    path = folders.log(ATTEMPT, 0)
    logs = Logs(folders)
    for link in (os.symlink, os.link):
        link(secret, path)
        found = read(logs)
        assert (found.data, bool(found.missing)) == (b"", True)
        path.unlink()
    os.symlink(tmp_path / "new", path)
    with pytest.raises(OSError, match="symbolic"):
        folders.open_log(ATTEMPT, 0)
    assert not (tmp_path / "new").exists()
