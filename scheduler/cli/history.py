"""`jct history`: jobs that have ended, as a table; exported, as a workload that `jct simulate` plays again."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from scheduler.cli.client import PAGE, Client
from scheduler.cli.grid import grid
from scheduler.cli.options import Json, Width, table_width
from scheduler.cli.output import local_time, print_json, say
from scheduler.cli.table import short_duration

Row = dict[str, Any]


def history(
    limit: Annotated[int, typer.Option(min=1, help="How many, the newest; of an export: all.")] = 50,
    export: Annotated[
        Path | None, typer.Option(help="Write all of them to this file: .csv, else JSON lines; - for stdout.")
    ] = None,
    width: Width = None,
    json: Json = False,
) -> None:
    """List jobs that have ended, newest first; or export them for `jct simulate`, oldest first."""
    client = Client.from_config()
    if export is not None:
        rows = list(pages(client))[::-1]
        if str(export) == "-":
            write_lines(rows, sys.stdout)
        else:
            with export.open("w", newline="") as file:
                (write_csv if export.suffix == ".csv" else write_lines)(rows, file)
            say(f"{len(rows)} jobs in {export}; play them again with: jct simulate {export}")
        return
    rows = [row for row, _ in zip(pages(client), range(limit), strict=False)]
    if json:
        print_json(jobs=rows)
    else:
        grid(TITLES, [cells(row) for row in rows], table_width(width)).print()


def pages(client: Client) -> Iterator[Row]:
    """All there are, newest first."""
    before: int | None = None
    while True:
        page = client.call("GET", "history", {"before": before, "limit": PAGE}).json()
        yield from page["jobs"]
        before = page["next"]
        if before is None:
            return


TITLES = ("ID", "TEAM", "RESULT", "ENDED", "WAITED", "JCT", "GPU-H", "PRE", "IN ETA", "NAME")


def cells(row: Row) -> list[str]:
    return [
        str(row["job"]), row["team"], row["result"], local_time(row["ended"])[:16],
        short_duration(row["queueing_s"]), short_duration(row["jct_s"]), f"{row['gpu_s'] / 3600:.2f}",
        str(row["preemptions"]), _held(row), row["name"],
    ]  # fmt: skip


def _held(row: Row) -> str:
    """Whether its first range held its end. Completion is what was foreseen: no other end can be in or out of time."""
    foreseen = row["foreseen"]
    if foreseen is None or row["result"] != "COMPLETED":
        return "-"
    return "yes" if foreseen["earliest"] <= row["ended"] <= foreseen["latest"] else "no"


def write_lines(rows: Iterable[Row], file: TextIO) -> None:
    """One JSON object a line."""
    for row in rows:
        file.write(json.dumps(row) + "\n")


def write_csv(rows: Iterable[Row], file: TextIO) -> None:
    """Flat columns; the range that was foreseen in three of them; what was estimated, and the runs, as JSON."""
    writer: Any = None
    for row in rows:
        foreseen = row["foreseen"] or {}
        flat = {key: value for key, value in row.items() if key not in ("foreseen", "estimates", "runs")}
        flat |= {f"foreseen_{end}": foreseen.get(end) for end in ("earliest", "likely", "latest")}
        flat |= {key: json.dumps(row[key]) for key in ("estimates", "runs")}
        if writer is None:
            writer = csv.DictWriter(file, flat)
            writer.writeheader()
        writer.writerow(flat)
