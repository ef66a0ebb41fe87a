"""`jct whatif`: what would move, whom it would cost, before anything is changed. Exit 0: nothing; 1: something."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from scheduler.cli.client import Client
from scheduler.cli.exits import WHATIF_ERROR
from scheduler.cli.grid import grid
from scheduler.cli.options import Json, gpu_range, table_width
from scheduler.cli.output import age_s, print_error, print_json, utc_now, visible
from scheduler.cli.show import counted
from scheduler.cli.submit import priority_of
from scheduler.cli.table import short_duration
from scheduler.core.errors import Code, JctError

NOTHING, SOMETHING = 0, 1

_SETTABLE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "prio": ("priority", priority_of), "priority": ("priority", priority_of), "gpus": ("gpus", gpu_range),
}  # fmt: skip
"""What `--set` takes: its name over REST, and how its value is read."""


def whatif(
    set_: Annotated[
        tuple[str, str] | None,
        typer.Option("--set", metavar="WHAT JOB=N", help="`prio 12=90` or `gpus 12=2-4`, or several by commas."),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Another policy for the cluster.")] = None,
    add_nodes: Annotated[str | None, typer.Option(help="NODESxGPUS more, such as 4x8 or 4x8:A100,2x4:V100.")] = None,
    drain: Annotated[list[str] | None, typer.Option(help="A node that takes nothing new; may be repeated.")] = None,
    quota: Annotated[list[str] | None, typer.Option(help="TEAM=N devices at most, or TEAM=none.")] = None,
    json: Json = False,
) -> int:
    """Tell what would change: moved starts and ends, who is preempted, JCT by team. Exits 0, 1, or 255 for errors."""
    try:
        body = _hypothesis(set_, policy, add_nodes, drain or [], quota or [])
        found = Client.from_config().call("POST", "whatif", body=body).json()
    except JctError as error:
        print_error(error)
        return WHATIF_ERROR
    if json:
        print_json(whatif=found)
    else:
        print_changes(found, utc_now(), table_width(None))
    return SOMETHING if found["changes"] else NOTHING


def _hypothesis(
    set_: tuple[str, str] | None, policy: str | None, add_nodes: str | None, drain: list[str], quota: list[str]
) -> dict[str, Any]:
    """Raises JctError BAD_SPEC."""
    body: dict[str, Any] = {}
    if set_ is not None:
        body["set"] = _set(*set_)
    if policy is not None:
        body["policy"] = policy
    if add_nodes is not None:
        body["add_nodes"] = [_nodes(part) for part in add_nodes.split(",")]
    if drain:
        body["drain"] = drain
    if quota:
        body["quota"] = {team: _limit(value) for team, value in (_pair(part, "--quota") for part in quota)}
    if not body:
        hint = "--set prio 12=90, --policy las, --add-nodes 4x8, --drain NODE or --quota TEAM=32"
        raise JctError(Code.BAD_SPEC, "name at least one thing that would be otherwise", hint=hint)
    return body


def _set(what: str, values: str) -> list[dict[str, Any]]:
    if what not in _SETTABLE:
        message = f"--set {what}: only `prio` and `gpus` can be set"
        raise JctError(Code.BAD_SPEC, message, hint="--set prio 12=90, or --set gpus 12=2-4")
    pairs = [_pair(part, f"--set {what}") for part in values.split(",")]
    if bad := next((job for job, _ in pairs if not job.isdecimal()), None):
        raise JctError(Code.BAD_SPEC, f"--set {what}: {bad!r} is no job's id", hint=f"such as --set {what} 12=2")
    name, read = _SETTABLE[what]
    return [{"job": int(job), name: read(value)} for job, value in pairs]


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise JctError(Code.BAD_SPEC, f"{option} {text!r}: write NAME=VALUE")
    return name, value


def _nodes(text: str) -> dict[str, Any]:
    size, _, kind = text.partition(":")
    count, _, devices = size.partition("x")
    if not (count.isdecimal() and devices.isdecimal()):
        raise JctError(Code.BAD_SPEC, f"--add-nodes {text!r}: write NODESxGPUS, such as 4x8 or 4x8:A100")
    return {"count": int(count), "devices": int(devices), **({"kind": kind} if kind else {})}


def _limit(text: str) -> int | None:
    if text != "none" and not text.isdecimal():
        raise JctError(Code.BAD_SPEC, f"--quota: {text!r} is neither a number nor `none`")
    return None if text == "none" else int(text)


def print_changes(found: dict[str, Any], now: str, width: int | None = None) -> None:
    """A table of what moves, and a sentence a team."""
    if not found["changes"]:
        print("Nothing would change.")
    elif found["moved"]:
        grid(("JOB", "TEAM", "START~", "END~", "SHIFT", "PREEMPTED", "NAME"), _rows(found, now), width).print()
    else:
        print("Only jobs of other teams would move.")
    moved = {one["team"] for one in found["moved"]}
    for team in found["teams"]:
        for line in _team_lines(team, team["team"] in moved):
            print(line)
    print(f"Medians of {found['futures']} futures run ahead; nothing has been changed.")


def _team_lines(team: dict[str, Any], moves: bool) -> list[str]:
    """moves: a job of its would."""
    name, before, after = visible(team["team"]), team["jct_before_s"], team["jct_after_s"]
    lines = []
    if before is not None and abs(after - before) >= 0.5:
        change = f" ({(after - before) / before:+.0%})" if before else ""
        lines.append(
            f"team {name}: mean completion time {short_duration(before)} -> {short_duration(after)}{change} over "
            f"{counted(team['jobs'], 'job')}"
        )
    if team["left_out"] and (lines or moves):
        lines.append(f"team {name}: {counted(team['left_out'], 'job')} of unknown length left out of the mean")
    return lines


def _rows(found: dict[str, Any], now: str) -> list[list[str]]:
    return [
        [
            str(one["job"]), one["team"], _move(one, "start", now), _move(one, "end", now), _shift(one),
            "yes" if one["preempted"] else "", one["name"],
        ]
        for one in found["moved"]
    ]  # fmt: skip


def _move(one: dict[str, Any], what: str, now: str) -> str:
    """From when to when, from now on. A job that will end without starting runs already; so does one of unknown length
    that runs and is not stopped."""

    def said(world: str) -> str:
        if moment := one[f"{what}_{world}"]:
            return short_duration(max(0.0, -age_s(moment, now)))
        goes_on = one["unknown"] and one["runs"] and not (world == "after" and one["preempted"])
        if not (one[f"start_{world}"] or one[f"end_{world}"] or goes_on):
            return "never"
        if what == "start":
            return "runs"
        return "unknown" if one["unknown"] else "never"

    old, new = said("before"), said("after")
    return old if old == new else f"{old} -> {new}"


def _shift(one: dict[str, Any]) -> str:
    """How much later it ends, with its sign."""
    if one["end_before"] is None or one["end_after"] is None:
        return ""
    later_s = age_s(one["end_before"], one["end_after"])
    return f"{'+' if later_s >= 0 else '-'}{short_duration(abs(later_s))}"
