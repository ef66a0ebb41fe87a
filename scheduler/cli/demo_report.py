"""What the demo shows at its end: everyone's time, attempts, stages and validation losses."""

from typing import Any

from rich.console import Console
from rich.table import Table

Job = dict[str, Any]

PARTS = ("queueing", "startup", "training", "preemptions", "cleanup")


def report(console: Console, jobs: list[Job]) -> bool:
    """Whether all went well: every job completed, learnt, and one resumed on another stage count."""
    console.print()
    console.print(_table(jobs))
    complaints = _complaints(jobs)
    for text in complaints:
        console.print(f"not as it should be: {text}", style="red")
    if not complaints:
        moved = [job for job in jobs if len(set(stage_counts(job))) > 1]
        for job in moved:
            counts = " -> ".join(str(count) for count in stage_counts(job))
            console.print(f"job {job['id']} ({job['name']}) went on from its checkpoint: {counts} stages")
    return not complaints


def stage_counts(job: Job) -> list[int]:
    """Stages of each training attempt that ran, in order."""
    ran = (attempt for attempt in job["attempts"] if attempt["kind"] == "train" and attempt["running"])
    return [attempt["stages"] for attempt in ran]


def _table(jobs: list[Job]) -> Table:
    title = "JCT in seconds = queueing + start-up + training + preemptions + clean-up"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("ID", "NAME", "RESULT"):
        table.add_column(title, no_wrap=True)
    for title in ("JCT", "QUEUE", "START", "TRAIN", "PRE", "CLEAN", "TRIES"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("STAGES", no_wrap=True)
    table.add_column("VAL. LOSS", no_wrap=True)
    for job in jobs:
        ledger, validation = job["ledger"], job["validation"]
        table.add_row(
            str(job["id"]), job["name"], job["state"], f"{ledger['total_s']:.1f}",
            *(f"{ledger[part + '_s']:.1f}" for part in PARTS), str(len(job["attempts"])),
            " → ".join(str(count) for count in stage_counts(job)),
            f"{_loss(validation['first_loss'])} → {_loss(validation['last_loss'])}",
        )
    return table


def _loss(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"


def _complaints(jobs: list[Job]) -> list[str]:
    found = []
    for job in jobs:
        ledger, validation = job["ledger"], job["validation"]
        name = f"job {job['id']} ({job['name']})"
        if job["state"] != "COMPLETED":
            why = job["reason"]["text"] if job["reason"] else "?"
            found.append(f"{name} ended as {job['state']}: {why}")
        elif (validation["last_loss"] or 0.0) >= (validation["first_loss"] or 0.0):
            found.append(f"{name} did not learn: {validation['first_loss']} -> {validation['last_loss']}")
        if abs(sum(ledger[part + "_s"] for part in PARTS) - ledger["total_s"]) > 1e-6:
            found.append(f"the parts of {name} do not sum to its JCT")
    if not any(job["preemptions"] for job in jobs):
        found.append("nobody was preempted")
    if not any(len(set(stage_counts(job))) > 1 for job in jobs):
        found.append("no job ran on two stage counts")
    return found
