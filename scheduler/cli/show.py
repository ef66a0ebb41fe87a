"""`jct show`: all that is known of one job, for a person to read."""

import shlex
from functools import partial
from typing import Any

from scheduler.cli.client import Client
from scheduler.cli.foresight import ledger_grid
from scheduler.cli.options import Id, Json
from scheduler.cli.output import local_time, print_facts, print_json, terminal_width
from scheduler.cli.table import Column, job_table
from scheduler.durations import format_duration

MOST_SIZES = 8


def show(id: Id, json: Json = False) -> None:
    """Show all that is known of a job."""
    job = Client.from_config().job(id)
    if json:
        print_json(job=job)
        return
    print_facts(facts(job))
    if job["estimates"]:
        print()
        ledger_grid(job["estimates"], job["ledger"], over=job["ended"] is not None).print()
    if job["attempts"]:
        print()
        job_table(job["attempts"], "", terminal_width(), ATTEMPTS).print()


def facts(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Titles and values; what is unknown is left out."""
    gpus, plan, validation = job["gpus"], job["plan"], job["validation"]
    lines: list[tuple[str, str | None]] = [
        ("Job", f"{job['id']} {job['name']}"),
        ("Team, user", f"{job['team']}, {job['user']}"),
        ("State", job["state"]),
        ("Reason", f"{job['reason']['code']}: {job['reason']['text']}" if job["reason"] else None),
        ("Ended by", job["ended_by"]),
        ("Exit", _exit(job)),
        ("Priority", str(job["priority"])),
        ("GPUs", f"{gpus['have']} of {_range(gpus['min'], gpus['max'])}"),
        ("Pipeline", plan_line(plan) if plan else None),
        ("Step", _of(job["step"], job["total_steps"])),
        ("Neighbours", _neighbours(job["neighbours"])),
        ("Loss", _number(job["loss"])),
        ("Validation", _validation(validation)),
        ("Checkpoint", f"step {job['checkpoint_step']}" if job["checkpoint_step"] is not None else None),
        ("Start", _start(job["eta"])),
        ("Finish", _finish(job["eta"])),
        ("Submitted", local_time(job["submitted"])),
        ("Ended", local_time(job["ended"]) if job["ended"] else None),
        ("Time", _ledger(job["ledger"])),
        ("Counted", ", ".join(counted(job[f"{what}s"], what) for what in ("preemption", "failure", "fault"))),
        ("Command" if job["command"] else "Entry point", f"{_program(job)} in {job['workdir']}"),
        ("Note", job["note"] or None),
    ]
    return [(title, value) for title, value in lines if value is not None]


def _neighbours(found: list[dict[str, Any]]) -> str | None:
    """The costliest first."""
    costly = sorted(found, key=lambda one: -one["costs_percent"])
    return "; ".join(
        f"slowed {1 + one['costs_percent'] / 100:.2f}x on {one['node']}/{one['index']}, "
        f"since {local_time(one['since'])}"
        for one in costly
    ) or None  # fmt: skip


def _exit(job: dict[str, Any]) -> str | None:
    if job["signal"] is not None:
        return f"signal {job['signal']}"
    return str(job["exit_code"]) if job["exit_code"] is not None else None


def plan_line(plan: dict[str, Any]) -> str:
    """A plan of the REST in one line."""
    wide = f", {plan['replicas']} replicas" if plan["replicas"] > 1 else ""
    return (
        f"{counted(plan['stages'], 'stage')} × {counted(plan['micro_batches'], 'micro-batch', 'es')} of "
        f"{counted(plan['micro_batch_size'], 'sample')}"
        f"{wide}, {plan['schedule']}{_sizes(plan['bounds'])}{_saving(plan)}"
    )


def _sizes(bounds: list[list[int]]) -> str:
    """Layers of each stage; a job that adapts moves them."""
    return f", layers {'+'.join(str(stop - first) for first, stop in bounds)}" if 1 < len(bounds) <= MOST_SIZES else ""


def _saving(plan: dict[str, Any]) -> str:
    """What makes it fit the memory of its devices."""
    again = ", with recompute" if plan["recompute"] else ""
    return again + (", optimizer in host memory" if plan["offload"] else "")


def counted(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else plural}"


def _range(low: int, high: int) -> str:
    """As people say it: 4, or 1 to 4."""
    return str(low) if low == high else f"{low} to {high}"


def _of(step: int | None, total: int | None) -> str | None:
    if step is None:
        return None
    return f"{step} of {total}" if total else str(step)


def _number(value: float | None) -> str | None:
    return f"{value:.4f}" if value is not None else None


def _validation(validation: dict[str, Any]) -> str | None:
    first, last = _number(validation["first_loss"]), _number(validation["last_loss"])
    return f"{first} first, {last} last" if first and last else first or last


def _start(eta: dict[str, Any] | None) -> str | None:
    return f"about {local_time(eta['start'])}" if eta is not None and eta["start"] else None


def _finish(eta: dict[str, Any] | None) -> str | None:
    if eta is None or eta["finish_earliest"] is None:
        return None
    return f"between {local_time(eta['finish_earliest'])} and {local_time(eta['finish_latest'])}"


def _ledger(ledger: dict[str, float]) -> str:
    parts = [
        ("queueing", "queueing_s"),
        ("start-up", "startup_s"),
        ("training", "training_s"),
        ("preempted", "preemptions_s"),
        ("clean-up", "cleanup_s"),
    ]
    said = " + ".join(f"{name} {ledger[key]:.1f} s" for name, key in parts if ledger[key] or name != "preempted")
    return f"{said} = {ledger['total_s']:.1f} s ({format_duration(ledger['total_s'])})"


def _program(job: dict[str, Any]) -> str:
    return shlex.join(job["command"]) if job["command"] else job["entrypoint"]


def _text(name: str, attempt: dict[str, Any], _now: str) -> str:
    return "-" if attempt[name] is None else str(attempt[name])


ATTEMPTS = (
    Column("#", partial(_text, "attempt"), right=True),
    Column("KIND", partial(_text, "kind")),
    Column("STATE", partial(_text, "state")),
    Column("CAUSE", partial(_text, "cause")),
    Column("STAGES", partial(_text, "stages"), right=True, keep=1),
    Column("FROM", partial(_text, "resumed_step"), right=True),
    Column("TO", partial(_text, "last_step"), right=True),
    Column("STARTED", lambda attempt, _: local_time(attempt["starting"])[5:16], keep=2),
    Column("NODES", lambda attempt, _: ",".join(attempt["nodes"]), least=5),
    Column("MESSAGE", lambda attempt, _: attempt["message"], least=20, prose=True),
)
