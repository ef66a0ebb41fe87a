"""The agent's end of real shims: what an agent that died half-way through a start leaves to its successor."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from agent.folders import Folders
from agent.shims import Shims
from scheduler.protocol.messages import Cause, Phase, Report
from scheduler.protocol.spec import AttemptSpec, JobSpec

SPEC = AttemptSpec(kind="train", job=JobSpec(name="n", entrypoint="a:b", workdir="/"), nonce="nonce-of-a-test")


def _stray(**environment: str) -> "subprocess.Popen[bytes]":
    """A process that carries the attempt's nonce, as a shim does from its first moment."""
    command = [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"]
    environment |= {"JCT_NONCE": SPEC.nonce, "PATH": os.environ["PATH"]}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_shim_without_members_is_ended_and_nothing_is_reported(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.make((1, 1), SPEC)
    with _stray() as stray:
        known = asyncio.run(_adopt(folders))
        assert known == []
        assert stray.wait(10) == -9


def test_members_of_a_shim_that_is_gone_are_swept_and_reported_lost(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.make((1, 1), SPEC)
    os.close(folders.open_log((1, 1), 0))
    with _stray() as stray:
        (lost,) = asyncio.run(_adopt(folders, ends=1))
        assert (lost.phase, lost.cause) == (Phase.GONE, Cause.SHIM_LOST)
        assert stray.wait(10) == -9


def test_a_member_whose_start_its_shim_never_heard_of_is_reported_lost_and_the_shim_ends(tmp_path: Path) -> None:
    """The agent died between making the log and being read; what it had sent went with its connection."""
    folders, spec = Folders(tmp_path), msgspec.structs.replace(SPEC, kind="command")
    folder = folders.make((1, 1), spec)
    os.close(folders.open_log((1, 1), 0))
    command = [sys.executable, "-P", "-m", "worker.shim", "--folder", str(folder)]
    environment = {"JCT_NONCE": spec.nonce, "PATH": os.environ["PATH"]}
    with subprocess.Popen(command, env=environment, start_new_session=True) as shim:
        while not (folder / "shim.json").exists():
            assert shim.poll() is None
            os.sched_yield()
        (lost,) = asyncio.run(_adopt(folders, ends=1))
        assert (lost.phase, lost.cause) == (Phase.GONE, Cause.SHIM_LOST)
        assert "before it had started it" in lost.message
        assert shim.wait(10) == -9


def test_the_durable_last_word_of_a_member_counts(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folder = folders.make((1, 1), SPEC)
    os.close(folders.open_log((1, 1), 0))
    said = Report(job=1, attempt=1, member=0, seq=9, phase=Phase.GONE, exit_code=0, cause=Cause.FINISHED)
    (folder / "exit-0.json").write_bytes(msgspec.json.encode(said))
    assert asyncio.run(_adopt(folders)) == [said]


def test_processes_whose_folder_is_gone_are_ended_before_their_devices_are_offered(tmp_path: Path) -> None:
    """Nobody could adopt them, so the daemon gives their devices to others as soon as it has heard this agent."""
    folders = Folders(tmp_path)
    with _stray(JCT_ATTEMPT_DIR=str(folders.path((1, 1)))) as lost, _stray(JCT_ATTEMPT_DIR="/elsewhere/1.1") as other:
        Shims(folders, "127.0.0.1").adopt(lambda report: None)
        assert lost.wait(10) == -9
        assert other.poll() is None
        other.kill()


async def _adopt(folders: Folders, ends: int = 0) -> list[Report]:
    """What a new agent knows at once, or the ends it hears of."""
    shims, told = Shims(folders, "127.0.0.1"), asyncio.Queue[Report]()
    known = shims.adopt(told.put_nowait)
    heard = [await asyncio.wait_for(told.get(), 10) for _ in range(ends)]
    await shims.close()
    return heard or known
