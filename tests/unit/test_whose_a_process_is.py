"""B57: processes on a device belong to a job of ours, to another, or to nobody knows whom. Never to the wrong one."""

import os
import subprocess
import sys

import pytest

from agent.telemetry.owners import HOST_PIDS, Owners


class Proc:
    """A /proc of our own."""

    def __init__(self, folder, namespace=HOST_PIDS) -> None:
        self.path = folder / "proc"
        (self.path / "self/ns").mkdir(parents=True)
        (self.path / "self/ns/pid").symlink_to(namespace)
        self.attempts = folder / "attempts"
        (self.attempts / "7.2").mkdir(parents=True)

    def has(self, pid: int, environment: str | None = "HOME=/", cgroup: str = "0::/user.slice") -> None:
        """environment None: not ours to read."""
        folder = self.path / str(pid)
        folder.mkdir()
        (folder / "comm").write_text("python3\n")
        (folder / "cgroup").write_text(cgroup)
        if environment is not None:
            (folder / "environ").write_text(environment)


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


def owner(proc: Proc, pid: int) -> tuple[str, int | None]:
    found = Owners(proc.attempts, proc.path)(pid, None)
    return found.whose, found.job


def test_b57_a_process_of_our_attempt_is_its_jobs(proc):
    proc.has(1, f"A=b\0JCT_ATTEMPT_DIR={proc.attempts}/7.2\0JCT_NONCE=abcd\0")
    assert owner(proc, 1) == ("job", 7)


def test_b57_another_users_process_is_ours_by_its_cgroup(proc):
    proc.has(1, None, "0::/system.slice/jctd/7.2-abcdef01\n")
    proc.has(2, None, "0::/system.slice/jctd/9.1-abcdef01\n")
    assert owner(proc, 1) == ("job", 7)
    assert owner(proc, 2) == ("other", None), "of another agent on this machine"


def test_b57_a_process_of_another_agent_or_of_nobody_is_anothers(proc):
    proc.has(1, "JCT_ATTEMPT_DIR=/elsewhere/attempts/7.2\0")
    proc.has(2)
    proc.has(3, None)
    assert [owner(proc, pid) for pid in (1, 2, 3)] == [("other", None)] * 3


def test_b57_what_has_ended_or_is_hidden_is_unknown(proc):
    assert owner(proc, 4711) == ("unknown", None)
    assert owner(proc, 0) == ("unknown", None)


def test_b57_in_a_container_only_what_bears_our_mark_is_told(tmp_path):
    proc = Proc(tmp_path, namespace="pid:[4026532000]")
    proc.has(1)
    proc.has(2, f"JCT_ATTEMPT_DIR={proc.attempts}/7.2\0")
    assert owner(proc, 1) == ("unknown", None), "the same number may be another process on the host"
    assert owner(proc, 2) == ("job", 7)


def test_b57_a_living_process_is_found_by_the_folder_in_its_environment(tmp_path):
    marked = os.environ | {"JCT_ATTEMPT_DIR": str(tmp_path / "12.1")}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=marked) as process:
        found = Owners(tmp_path)(process.pid, 5)
        assert (found.whose, found.job, found.memory_bytes) == ("job", 12, 5)
        process.communicate(b"\n")
    assert Owners(tmp_path)(process.pid, 5).whose == "unknown"
