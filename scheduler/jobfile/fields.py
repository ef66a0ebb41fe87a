"""Field types shared by the parts of the job file: names, durations, paths, environment keys, counts."""

import re
import unicodedata
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from scheduler.durations import BadDuration, parse_duration

MAX_NAME = 200
MAX_SCRIPT = 131_072
MAX_DEVICES = 65_536
MAX_GRACE_S = 3_600
MIN_PRIORITY, MAX_PRIORITY = 0, 1_000
_BIDI_CONTROLS = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
NAME_RULE = (
    f"1 to {MAX_NAME} characters, at least one of them visible; any Unicode but control characters, line separators "
    "and bidirectional overrides"
)


def is_control(char: str) -> bool:
    """Characters that could break a row, a log line or a terminal: never kept in names."""
    return unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} or char in _BIDI_CONTROLS


def check_name(value: str) -> str:
    """Raises ValueError with the whole rule."""
    visible = any(not char.isspace() and unicodedata.category(char) not in {"Cf", "Mn"} for char in value)
    if not 1 <= len(value) <= MAX_NAME or not visible or any(map(is_control, value)):
        raise ValueError(f"must be {NAME_RULE}")
    return value


def _check_text(value: str) -> str:
    """Free text of several lines: only what UTF-8 or a terminal cannot take is refused."""
    if any(is_control(char) and char not in "\n\t" for char in value):
        raise ValueError("must not hold control characters other than newline and tab")
    return value


def _check_path(value: str) -> str:
    if not value.startswith("/") or "\0" in value or any(unicodedata.category(char) == "Cs" for char in value):
        raise ValueError("must be an absolute path (the CLI resolves it against the job file's folder)")
    return value


def _seconds(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a duration such as 120 (seconds), 90s, 10m or 1:00:00")
    try:
        return parse_duration(str(value), bare="seconds")
    except BadDuration as error:
        raise ValueError(str(error)) from None


def one_or_list(value: Any) -> Any:
    """A single value where a list may stand is a list of one."""
    return value if isinstance(value, list) else [value]


_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(r"JCT_.*|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|CUDA_VISIBLE_DEVICES")
_FOR_SHELLS = re.compile(r"BASH_ENV|ENV|BASH_FUNC.*|PROMPT_COMMAND|IFS|SHELLOPTS|BASHOPTS")
COLD_START = re.compile(r"(LD_|PYTHON|MALLOC_|OMP_|MKL_|TORCH).*")
"""Read once, when a process starts: a worker forked from a warm one cannot honour them (LIFECYCLE 51)."""


def check_env_key(key: str) -> str | None:
    """What is wrong with a key of `env`, or None; keys that need a cold start are judged by the caller."""
    if not _ENV_KEY.fullmatch(key) or len(key) > 256:
        return "is no name of an environment variable (letters, digits and _, not beginning with a digit)"
    if _OURS.fullmatch(key):
        return "is set by jctd and cannot be set by a job"
    if _FOR_SHELLS.fullmatch(key):
        return "makes every shell run foreign code and is refused"
    return None


def _check_argument(value: str) -> str:
    if "\0" in value or any(unicodedata.category(char) == "Cs" for char in value):
        raise ValueError("must not hold NUL or lone surrogates")
    return value


def _check_script(value: str) -> str:
    """The kernel finds the interpreter in the first line; a carriage return there would be part of its name."""
    first = value.partition("\n")[0]
    if not first.startswith("#!") or not first[2:].strip().startswith("/"):
        raise ValueError("must begin with the line that names its interpreter, such as #!/bin/bash")
    if first.endswith("\r"):
        raise ValueError("has DOS line ends, with which no interpreter is found; save it with Unix line ends")
    return value


def _check_exit_code(value: str) -> str:
    if not value.isascii() or not value.isdecimal() or int(value[:4]) > 255 or str(int(value)) != value:
        raise ValueError("must be an exit code, 0 to 255")
    return value


def _bytes(value: Any) -> Any:
    """A number of bytes, or with a unit: K, M, G are powers of 1024, as are KiB and its like; KB and MB of 1000."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([KMGT]?)(i?B?)", value) if isinstance(value, str) else None
    if found is None and type(value) is not int:
        raise ValueError("must be a size such as 100MB, 64MiB or 1G")
    if found is None:
        return value
    count, unit, kind = found.groups()
    if kind == "i" or (kind == "iB" and not unit):
        raise ValueError("must be a size such as 100MB, 64MiB or 1G")
    return int(count) * (1000 if unit and kind == "B" else 1024) ** " KMGT".index(unit or " ")


def _check_place(value: str) -> str:
    """An absolute path, or a URL as fsspec chains them: `s3://bucket/folder`, `dir::sftp://host/folder`."""
    if "://" not in value:
        return _check_path(value)
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*(::[a-z][a-z0-9+.-]*)*://[^\s\x00-\x1f]+", value):
        raise ValueError("must be an absolute path, or a URL such as s3://bucket/folder")
    return value


Name = Annotated[str, AfterValidator(check_name)]
Text = Annotated[str, AfterValidator(_check_text)]
Argument = Annotated[str, Field(max_length=131_072), AfterValidator(_check_argument)]
Script = Annotated[str, Field(max_length=MAX_SCRIPT), AfterValidator(_check_argument), AfterValidator(_check_script)]
ExitCode = Annotated[str, AfterValidator(_check_exit_code)]
Bytes = Annotated[int, BeforeValidator(_bytes)]
Place = Annotated[str, Field(max_length=4_096), AfterValidator(_check_place)]
AbsolutePath = Annotated[str, Field(max_length=4_096), AfterValidator(_check_path)]
Seconds = Annotated[int, BeforeValidator(_seconds)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Devices = Annotated[int, Field(ge=1, le=MAX_DEVICES)]
Priority = Annotated[int, Field(ge=MIN_PRIORITY, le=MAX_PRIORITY)]


def _number_or_class(value: Any, check: ValidatorFunctionWrapHandler) -> int | str:
    """One error, instead of one for each of the two that it might have been."""
    try:
        found: int | str = check(value)
        return found
    except ValidationError:
        raise ValueError(f"must be from {MIN_PRIORITY} to {MAX_PRIORITY}, or the name of a priority class") from None


PriorityOrClass = Annotated[Priority | Name, WrapValidator(_number_or_class)]
