"""How the CLI speaks: data on stdout, talk on stderr, nothing that could move a terminal's cursor."""

import json
import os
import sys
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TextIO

from scheduler.core.errors import BadSpec, JctError

JSON_VERSION = "v1"
TITLE = 14
"""Columns of a fact's title."""

_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"


def visible(text: str) -> str:
    """Control characters, escapes and bidirectional marks as `\\x1b`; joiners of letters and emoji stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode()
        if unicodedata.category(char) in _HIDDEN and char not in _JOINERS
        else char
        for char in text
    )


def print_json(**data: Any) -> None:
    print(json.dumps({"apiVersion": JSON_VERSION, **data}, indent=2, ensure_ascii=False))


def say(text: str) -> None:
    """To the person, not into the data; on a terminal long lines go on below themselves, indented."""
    width = _columns(sys.stderr)
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        first, *more = [line.lstrip()] if width is None else folded(line, width - len(indent) - 2)
        print("\n".join([indent + first, *(f"{indent}  {part}" for part in more)]), file=sys.stderr)


def print_error(error: JctError) -> None:
    """What, why, what to do, and the request to quote."""
    problems = error.problems if isinstance(error, BadSpec) else [error]
    for problem in problems:
        say(f"jct: {visible(problem.message)}" + (f"\n  {visible(problem.hint)}" if problem.hint else ""))
    if request_id := getattr(error, "request_id", None):
        say(f"  (request {visible(str(request_id))})")


def print_facts(facts: Iterable[tuple[str, str]], width: int | None = None) -> None:
    """A title and a value a line; on a terminal, or at a given width, long values go on below themselves."""
    width = width or terminal_width()
    for title, value in facts:
        shown = visible(value)
        for number, line in enumerate(folded(shown, width - TITLE) if width else [shown]):
            print(f"{title if number == 0 else '':<{TITLE}}{line}")


def folded(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns of the display, and of 20 at least. Only a word that is longer is cut in two."""
    from rich.cells import cell_len, chop_cells

    width = max(20, width)
    lines = [""]
    for piece in (piece for word in text.split() for piece in chop_cells(word, width)):
        if not lines[-1]:
            lines[-1] = piece
        elif cell_len(lines[-1]) + 1 + cell_len(piece) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def local_time(text: str | None) -> str:
    """For people: this machine's zone, named."""
    return parse_time(text).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if text else "-"


def age_s(since: str, now: str) -> float:
    return (parse_time(now) - parse_time(since)).total_seconds()


def utc_now() -> str:
    return datetime.now(UTC).isoformat()


def terminal_width() -> int | None:
    """Columns of the terminal; None where output is no terminal, and nothing need be cut."""
    return _columns(sys.stdout)


def _columns(stream: TextIO) -> int | None:
    if not stream.isatty():
        return None
    return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns
