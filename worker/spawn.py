"""Starting processes from the shim: members by fork (or exec, where a fork would not do), the store by fork."""

import datetime
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from scheduler.protocol.messages import Target
from worker import command, processes

KEPT = ("PATH", "HOME", "LANG", "USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
COLD_PREFIXES = ("LD_", "PYTHON", "MALLOC_", "OMP_", "MKL_", "TORCH", "OPENBLAS_")


def environment(target: Target, folder: Path) -> dict[str, str]:
    """All of a member's environment, made from nothing: the job's own variables, then ours."""
    spec = target.spec
    job = spec.job
    rank = target.ranks.index(target.member) if target.member in target.ranks else 0
    variables = {name: os.environ[name] for name in KEPT if name in os.environ}
    variables |= job.env
    variables |= {
        "JCT_NONCE": spec.nonce,
        "JCT_JOB_ID": str(target.job),
        "JCT_ATTEMPT": str(target.attempt),
        "JCT_MEMBER": str(target.member),
        "JCT_DEVICE": target.device,
        "JCT_ATTEMPT_DIR": str(folder),
        "JCT_GRACE_SECONDS": f"{job.grace_s:g}",
        "JCT_NUM_GPUS": str(len(target.ranks)),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(target.ranks)),
        "LOCAL_RANK": "0",
        "CUDA_VISIBLE_DEVICES": target.device if target.device.startswith(("GPU-", "MIG-")) else "",
    }
    variables.setdefault("OMP_NUM_THREADS", "1")
    if job.checkpoint is not None:
        variables["JCT_CHECKPOINT_DIR"] = job.checkpoint.dir
    if target.plan is not None:
        variables["JCT_STAGES"] = str(len(target.plan.stages))
        variables["JCT_MICRO_BATCHES"] = str(target.plan.microbatches)
        variables["JCT_GLOBAL_BATCH"] = str(target.plan.global_batch)
    return variables


def must_be_cold(env: Mapping[str, str]) -> bool:
    """A fork cannot honour variables that libraries read when they are loaded, nor copy more than one thread."""
    return processes.thread_count() != 1 or any(name.startswith(COLD_PREFIXES) for name in env)


def start_member(
    target: Target, folder: Path, log: int, secrets: Mapping[str, str] | None = None
) -> tuple[int, socket.socket]:
    """Fork a member with this log as its output. Returns its pid and the shim's end of its line.

    secrets: into its environment and nowhere else.
    """
    ours, theirs = socket.socketpair()
    variables = environment(target, folder) | dict(secrets or {})
    is_command = target.spec.kind == "command"
    if is_command:
        variables |= command.variables(target, folder)
    cold = must_be_cold(target.spec.job.env)

    def child() -> int:
        null = os.open(os.devnull, os.O_RDONLY)
        for source, place in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, place)
        _close_all_but({theirs.fileno()})
        os.environ.clear()
        os.environ.update(variables)
        processes.rename(f"jct {target.job}.{target.attempt}/{target.member}")
        if is_command and command.leader_of(target) != target.member:
            return command.hold_place(theirs, target)
        if is_command:
            return command.become(theirs, variables)
        if cold:
            # -P: a user's scheduler.py in the work directory must not shadow ours.
            theirs.set_inheritable(True)
            cold_member = [sys.executable, "-P", "-m", "worker.member", str(theirs.fileno())]
            os.execve(sys.executable, cold_member, variables)  # noqa: S606
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        from worker import member

        return member.main(theirs)

    pid = _fork(child, None if is_command else signal.Signals[target.spec.job.signal])
    theirs.close()
    return pid, ours


def start_store(host: str) -> tuple[int, str]:
    """Fork a TCPStore server on a free port of `host`. Returns its pid and "host:port"; clients may connect at once."""
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen(128)
    port = listener.getsockname()[1]

    def child() -> int:
        _close_all_but({0, 1, 2, listener.fileno()})
        from torch._C._distributed_c10d import TCPStore

        _server = TCPStore(
            host,
            port,
            None,
            True,
            datetime.timedelta(days=1),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        while True:
            signal.pause()

    pid = _fork(child)
    listener.close()
    return pid, f"{host}:{port}"


def _fork(child: Callable[[], int], ignored: signal.Signals | None = None) -> int:
    """Run `child` in a session of its own that dies with the shim. It never returns into the shim's code.

    ignored: a signal that must not kill it before it has set a handler, over an exec too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()
    parent = os.getpid()
    # No signal may find the child half-way: with the shim's handlers, or with none.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return pid
    code = 70
    try:
        processes.die_with_parent(parent)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if ignored is not None:
            signal.signal(ignored, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = child()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _close_all_but(kept: Collection[int]) -> None:
    """The shim's lock, sockets and other members' lines are not this process's business."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in kept:
            try:
                os.close(number)
            except OSError:  # the listing's own descriptor
                continue
