"""`jct up`: a daemon and one agent on this machine, in the foreground."""

import os
import signal
import socket
import threading
from pathlib import Path
from types import FrameType

from scheduler.cli import config
from scheduler.cli.local import LocalCluster
from scheduler.core.errors import Code, JctError

WATCH_S = 0.5
_ELSEWHERE = "--state names another folder; XDG_CONFIG_HOME moves that of the CLI"


def state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "jctd"


def run_up(devices: str | None, state: Path | None, port: int, agents_port: int, node: str | None) -> None:
    """Until Ctrl-C, SIGTERM or the terminal's end. Raises JctError when something does not start or ends by itself."""
    told = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        told.set()

    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # under nohup it goes on
    for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])):
        signal.signal(number, stop)
    cluster = LocalCluster(state or state_folder(), port, agents_port, ends_with_us=True)
    try:
        cluster.start_daemon()
        _tell(cluster)
        cluster.start_agent(node or socket.gethostname(), devices)
        while not told.wait(WATCH_S):
            _check(cluster)
    except OSError as error:
        raise JctError(Code.CONFLICT, f"cannot write {error.filename}: {error.strerror}", hint=_ELSEWHERE) from None
    finally:
        cluster.stop()
    print("stopped. Running jobs go on; `jct up` finds them again.", flush=True)


def _check(cluster: LocalCluster) -> None:
    """Neither program is of use without the other, and one that nobody started again would only look alive."""
    try:
        cluster.check()
    except JctError as error:
        hint = f"so all of it was stopped; running jobs go on, and `jct up` finds them again; {error.hint}"
        raise JctError(error.code, error.message, hint=hint) from None


def _tell(cluster: LocalCluster) -> None:
    """The URL always; the admin token once, on the first start, after which only the CLI's own 0600 file has it."""
    token = cluster.token()
    config.save(cluster.url, token)
    print(f"jctd listens at {cluster.url}; its data is below {cluster.state}", flush=True)
    if token is not None:
        (cluster.daemon_folder / "admin-token").unlink()
        print(f"admin token (shown once; kept for the CLI in {config.config_dir() / 'token'}):\n{token}", flush=True)
    print("try, in another terminal: jct submit examples/gpt-stdlib.yaml. Ctrl-C ends this.", flush=True)
