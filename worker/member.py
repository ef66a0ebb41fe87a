"""A member: one process on one device, from its first Target to its last word."""

import contextlib
import os
import signal
import socket
import sys

import torch

from scheduler.protocol.messages import Cause
from worker import entrypoint, life, probe
from worker.control import Control
from worker.errors import Ended


def main(line: socket.socket) -> int:
    """Run the member that the first Target on the line describes; returns the exit code."""
    control = Control(line)
    signal.signal(signal.Signals[control.target.spec.job.signal], _heard)
    torch.set_num_threads(1)
    end = _guarded(control)
    control.last_word(end)
    said = f"{end.cause}: {end.message}" if end.message else f"{end.cause}"
    with contextlib.suppress(OSError, ValueError):  # the log's disk may be full, or the user's code has closed it
        print(f"jctd: member {control.target.member} ends: {said}", flush=True)
    return end.exit_code


def _heard(_number: int, _frame: object) -> None:
    """The job's signal tells the user's code of a stop, if it sets a handler of its own; ours only must not die of it.

    The pilot learns of the stop from its Target and acts at the step boundary.
    """


def _guarded(control: Control) -> Ended:
    """The member's life with every exception turned into an end."""
    try:
        if control.target.spec.kind == "probe":
            return probe.run(control)
        return life.run(control)
    except Ended as end:
        return end
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        return Ended(Cause.USER_EXCEPTION, f"the user's code called sys.exit({error.code!r})", code or 1)
    except BaseException as error:
        return entrypoint.user_exception(error, "training raised")


if __name__ == "__main__":
    # A cold member, exec'd by the shim where a fork would not do: its line is an inherited descriptor.
    code = main(socket.socket(fileno=int(sys.argv[1])))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
