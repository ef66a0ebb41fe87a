"""Options that several commands share."""

from typing import Annotated

import typer

Id = Annotated[int, typer.Argument(min=1, metavar="ID", help="The job's id.")]
Ids = Annotated[list[int], typer.Argument(min=1, metavar="ID...", help="Ids of jobs.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts; times in UTC.")]
Width = Annotated[
    int | None,
    typer.Option("-w", "--width", min=0, help="Columns; 0 for everything. By default as wide as the terminal."),
]


def table_width(width: int | None) -> int | None:
    """None for as wide as the content."""
    from scheduler.cli.output import terminal_width

    return terminal_width() if width is None else width or None
