"""Exit codes, once: of errors, and of the jobs that were waited for."""

from typing import Any

from scheduler.core.errors import Code

OK, FAILED, BAD_USAGE, NOT_FOUND, NOT_ALLOWED, UNREACHABLE, REFUSED, TIMED_OUT = range(8)
WHATIF_ERROR = 255
INTERRUPTED = 130
BROKEN_PIPE = 141

OF_CODE = {
    Code.BAD_SPEC: BAD_USAGE,
    Code.NOT_SUPPORTED_YET: BAD_USAGE,
    Code.TOO_LARGE: BAD_USAGE,
    Code.NOT_FOUND: NOT_FOUND,
    Code.NOT_ALLOWED: NOT_ALLOWED,
    Code.NOT_LOGGED_IN: NOT_ALLOWED,
    Code.UNREACHABLE: UNREACHABLE,
    Code.CONFLICT: REFUSED,
    Code.QUOTA: REFUSED,
    Code.TOO_MANY_REQUESTS: FAILED,
    Code.BUSY: FAILED,
    Code.INTERNAL: FAILED,
}

_BY_STATE = {"COMPLETED": 0, "CANCELLED": 103, "TIMEOUT": 104, "DEADLINE": 104, "PREEMPTED": 105, "NODE_LOST": 106}
STATE_FAILED, STATE_NOT_FINISHED, STATE_NOT_FOUND = 100, 101, 102


def of_job(job: dict[str, Any]) -> int:
    """A finished job's own code: 128+n for a signal, its exit code, and never 0 unless it completed."""
    if job["result"] == "COMPLETED":
        return OK
    if job["signal"] is not None:
        return 128 + int(job["signal"])
    return int(job["exit_code"] or FAILED)


def of_job_state(job: dict[str, Any]) -> int:
    """One code a state, for scripts that ask what happened rather than what the program said."""
    if job["result"] is None:
        return STATE_NOT_FINISHED
    return _BY_STATE.get(job["result"], STATE_FAILED)
