"""One base for every error a user can meet: a stable code, mapped once to an HTTP status and once to an exit code.

The message says what is wrong, why, and what to do.
"""

from enum import StrEnum


class Code(StrEnum):
    """Stable error codes; `scheduler.api.problems` and `scheduler.cli.exits` map them."""

    BAD_SPEC = "bad-spec"
    NOT_SUPPORTED_YET = "not-supported-yet"
    NOT_FOUND = "not-found"
    NOT_ALLOWED = "not-allowed"
    NOT_LOGGED_IN = "not-logged-in"
    CONFLICT = "conflict"
    QUOTA = "quota"
    TOO_MANY_REQUESTS = "too-many-requests"
    TOO_LARGE = "too-large"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    INTERNAL = "internal"


class JctError(Exception):
    """Something a user did or met; `code` says which kind, `field` which part of the input, `hint` what to do."""

    def __init__(self, code: Code, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.hint = hint


class BadSpec(JctError):
    """A job file with everything that is wrong with it, so that one round is enough to mend it."""

    def __init__(self, problems: list[JctError]) -> None:
        only_unsupported = all(problem.code is Code.NOT_SUPPORTED_YET for problem in problems)
        code = Code.NOT_SUPPORTED_YET if only_unsupported else Code.BAD_SPEC
        first, more = problems[0], len(problems) - 1
        message = first.message + (f" (and {more} more problem{'s' if more > 1 else ''})" if more else "")
        super().__init__(code, message, field=first.field, hint=first.hint)
        self.problems = problems
