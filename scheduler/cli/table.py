"""The queue as a table: pure functions from job summaries to a grid. `ls`, `ls --watch` and `demo` share it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.cli.grid import Cell, Grid, continued, width_of
from scheduler.cli.output import age_s, visible

Job = dict[str, Any]

_STYLES = {
    "RUNNING": "green", "COMPLETED": "green", "STARTING": "cyan", "CHECKPOINTING": "cyan", "PREEMPTING": "yellow",
    "STOPPING": "yellow", "HELD": "yellow", "FAILED": "red", "OUT_OF_MEMORY": "red", "NODE_LOST": "red",
    "TIMEOUT": "red", "CANCELLED": "dim",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """cell: of a job at a moment (RFC 3339). least: the width it may shrink to, 0 for one that never does.

    keep: columns with the lowest number leave first where all do not fit; None stays always. prose: of the last column,
    which then is not cut, but goes on below itself.
    """

    title: str
    cell: Callable[[Job, str], str]
    right: bool = False
    least: int = 0
    keep: int | None = None
    prose: bool = False


def _gpus(job: Job, _now: str) -> str:
    gpus = job["gpus"]
    wanted = f"{gpus['min']}-{gpus['max']}" if gpus["min"] != gpus["max"] else f"{gpus['max']}"
    return f"{gpus['have']}/{wanted}"


def _pipe(job: Job, _now: str) -> str:
    """Stages × micro-batch count, of what runs now."""
    plan = job["plan"]
    if plan is None or not job["gpus"]["have"]:
        return "-"
    wide = f"×{plan['replicas']}r" if plan["replicas"] > 1 else ""
    return f"{plan['stages']}×{plan['micro_batches']}{wide}"


def _step(job: Job, _now: str) -> str:
    if job["step"] is None:
        return "-"
    return f"{job['step']}/{job['total_steps']}" if job["total_steps"] else f"{job['step']}"


def _loss(job: Job, _now: str) -> str:
    return f"{job['loss']:.3f}" if job["loss"] is not None else "-"


_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def _unit(seconds: float) -> tuple[str, int]:
    """The largest of which there are two."""
    return next((unit for unit in _UNITS if seconds >= 2 * unit[1]), _UNITS[-1])


def short_duration(seconds: float) -> str:
    """One number and one unit: 42s, 7m, 3h, 5d."""
    name, size = _unit(seconds)
    return f"{max(0, round(seconds / size))}{name}"


def _eta(job: Job, now: str) -> str:
    """When it ends, as a range from now on."""
    eta = job["eta"]
    if eta is None or eta["finish_earliest"] is None:
        return "-"
    low_s, high_s = (max(0.0, -age_s(eta[end], now)) for end in ("finish_earliest", "finish_latest"))
    name, size = _unit(high_s)
    low, high = round(low_s / size), round(high_s / size)
    if not low < 1 <= low_s:
        return f"~{high}{name}" if low == high else f"{low}-{high}{name}"
    return f"{short_duration(low_s)}-{high}{name}"


def _where(job: Job, now: str) -> str:
    """Nodes of a job that runs, else why it does not."""
    reason, eta = job["reason"], job["eta"]
    if reason is None:
        return ",".join(job["nodes"])
    if reason["code"] == job["state"]:
        return str(reason["text"])
    start = f" (starts in ~{short_duration(-age_s(eta['start'], now))})" if eta and eta["start"] else ""
    return f"{reason['code']}: {reason['text']}{start}" if reason["text"] else reason["code"]


_TO_END = (
    Column("ID", lambda job, _: str(job["id"]), right=True),
    Column("NAME", lambda job, _: job["name"], least=8),
    Column("TEAM", lambda job, _: job["team"], least=4),
    Column("PRIO", lambda job, _: str(job["priority"]), right=True),
    Column("STATE", lambda job, _: job["state"]),
    Column("GPUS", _gpus),
    Column("PIPE", _pipe),
    Column("STEP", _step, right=True, keep=2),
    Column("LOSS", _loss, right=True, keep=1),
    Column("END~", _eta, right=True, keep=3),
)
DEMO_COLUMNS = _TO_END
LS_COLUMNS = (*_TO_END, Column("WHERE/WHY", _where, least=16))


def job_table(jobs: Sequence[Job], now: str, width: int | None, columns: Sequence[Column] = LS_COLUMNS) -> Grid:
    """A grid at most `width` columns wide, or as wide as its content where width is None."""
    cells = [[visible(column.cell(job, now)) for column in columns] for job in jobs]
    titles = [column.title for column in columns]
    natural = [max(map(width_of, column)) for column in zip(titles, *cells, strict=True)]
    rows: Sequence[Sequence[Cell]] = [
        [(cell, _STYLES.get(cell, "") if title == "STATE" else "") for cell, title in zip(row, titles, strict=True)]
        for row in cells
    ]
    widths = natural if width is None else fit(columns, natural, width)
    if columns[-1].prose and widths[-1] < natural[-1]:
        rows = continued(rows, widths[-1])
    return Grid(titles, rows, widths, [column.right for column in columns])


def fit(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Widths that fit, 0 for a column that is left out: first shrink what may shrink, then leave out, then cut."""
    widths = list(natural)

    def excess() -> int:
        shown = [wide for wide in widths if wide]
        return sum(shown) + len(shown) - 1 - width

    leaving = sorted((c.keep, i) for i, c in enumerate(columns) if c.keep is not None)
    while excess() > 0:
        floor = sum(wide - min(wide, column.least or wide) for wide, column in zip(widths, columns, strict=True))
        if floor >= excess() or not leaving:
            break
        widths[leaving.pop(0)[1]] = 0
    flexible = [i for i, column in enumerate(columns) if column.least]
    while excess() > 0 and (able := [i for i in flexible if widths[i] > columns[i].least]):
        widths[max(able, key=lambda i: widths[i])] -= 1
    while excess() > 0 and max(widths) > 1:
        widths[max(range(len(widths)), key=lambda i: widths[i])] -= 1
    return widths
