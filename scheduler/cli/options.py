"""Options that several commands share."""

from typing import Annotated, Any

import typer

from scheduler.core.errors import Code, JctError

Id = Annotated[int, typer.Argument(min=1, metavar="ID", help="The job's id.")]
Ids = Annotated[list[int], typer.Argument(min=1, metavar="ID...", help="Ids of jobs.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts; times in UTC.")]
Width = Annotated[
    int | None,
    typer.Option("-w", "--width", min=0, help="Columns; 0 for everything. By default as wide as the terminal."),
]


def gpu_range(text: str | None) -> Any:
    """What the job file means by N or MIN-MAX. Raises JctError BAD_SPEC."""
    if text is None:
        return None
    low, dash, high = text.partition("-")
    if not low.isdecimal() or (dash and not high.isdecimal()):
        raise JctError(Code.BAD_SPEC, f"--gpus {text!r} is neither N nor MIN-MAX", field="gpus")
    return {"min": int(low), "max": int(high)} if dash else int(low)


def table_width(width: int | None) -> int | None:
    """None for as wide as the content."""
    from scheduler.cli.output import terminal_width

    return terminal_width() if width is None else width or None
