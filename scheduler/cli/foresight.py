"""`jct eta`, `jct why`, `jct prio` and `jct plan --at-cluster`: what will become of a job, and what keeps it."""

from pathlib import Path
from typing import Any

from scheduler.cli.client import Client
from scheduler.cli.grid import Grid, grid
from scheduler.cli.options import Id, Json
from scheduler.cli.output import age_s, local_time, print_facts, print_json, utc_now, visible
from scheduler.cli.table import short_duration
from scheduler.core.errors import Code, JctError
from scheduler.durations import format_duration

Facts = list[tuple[str, str]]
PARTS = (
    ("queueing", "queueing_s"), ("start-up", "startup_s"), ("training", "training_s"),
    ("preempted", "preemptions_s"), ("clean-up", "cleanup_s"),
)  # fmt: skip


def eta(id: Id, json: Json = False) -> None:
    """Tell when a job starts and ends: a range that shall hold nine times in ten, or `unknown`."""
    seen = Client.from_config().call("GET", f"jobs/{id}/eta").json()
    if json:
        print_json(eta=seen)
        return
    print_facts(eta_facts(seen))
    if seen["estimates"]:
        print()
        ledger_grid(seen["estimates"], seen["so_far"], over=bool(seen["ended"])).print()


def why(id: Id, json: Json = False) -> None:
    """Tell why a job is where it is: the binding reason, its numbers, and what would let the job go on."""
    found = Client.from_config().call("GET", f"jobs/{id}/why").json()
    if json:
        print_json(why=found)
        return
    print_facts(why_facts(found))


def plan_at_cluster(jobfile: Path | None, json: bool) -> None:
    """When the job would start and end if it were submitted now. Raises JctError."""
    from scheduler.cli.submit import read_document, spec_key_of

    if jobfile is None:
        raise JctError(Code.BAD_SPEC, "--at-cluster needs a job file", hint="jct plan job.yaml --at-cluster")
    document = read_document(str(jobfile))
    seen = Client.from_config().call("POST", "plan", body={"job": document, **spec_key_of(document)}).json()
    if json:
        print_json(plan=seen)
        return
    print_facts(plan_facts(seen, utc_now()))


def plan_facts(seen: dict[str, Any], now: str) -> Facts:
    """Titles and values."""
    places = ", ".join(f"{count} on {node}" for node, count in seen["nodes"].items())
    lines = [
        ("Start", _range(seen["start"], now) if seen["start"] else "unknown"),
        ("On", f"{sum(seen['nodes'].values())} GPUs: {places}" if places else ""),
        ("Pipeline", f"{seen['plan']} (stages × micro-batches)" if seen["plan"] else ""),
        ("End", _range(seen["end"], now) if seen["end"] else f"unknown: {seen['unknown']}"),
        ("Foreseen", parts(seen["parts"]) if seen["end"] else ""),
        ("Confidence", f"{seen['confidence']:.0%}, from {seen['futures']} futures run ahead; nothing was submitted"),
    ]
    return [(title, value) for title, value in lines if value]


def eta_facts(seen: dict[str, Any]) -> Facts:
    """Titles and values."""
    now = seen["now"]
    lines: list[tuple[str, str | None]] = [("Job", f"{seen['job']} {seen['state']}")]
    if seen["ended"]:
        lines.append(("Ended", local_time(seen["ended"])))
    else:
        lines += [
            (_start_title(seen["state"]), _range(seen["start"], now) if seen["start"] else None),
            ("End", _range(seen["end"], now) if seen["end"] else f"unknown: {seen['unknown']}"),
            ("Confidence", _confidence(seen, now)),
            ("Foreseen", parts(seen["parts"]) if seen["parts"] else None),
            ("Preemptions", f"{seen['preemptions']:.1f} expected" if seen["preemptions"] else None),
        ]
    if not seen["estimates"]:
        lines.append(("So far" if not seen["ended"] else "Truth", parts(seen["so_far"])))
    lines.append(("Record", record(seen["coverage"])))
    return [(title, value) for title, value in lines if value is not None]


def _range(range_: dict[str, str], now: str) -> str:
    early, likely, late = (max(0.0, -age_s(range_[end], now)) for end in ("earliest", "likely", "latest"))
    return (
        f"in {short_duration(early)} to {short_duration(late)}, likely {short_duration(likely)} "
        f"({local_time(range_['likely'])})"
    )


def _start_title(state: str) -> str:
    """A job that runs starts once more where it is preempted in most futures; one that is probed is STARTING."""
    return "Start" if state in ("PENDING", "HELD", "REQUEUED", "STARTING") else "Starts again"


def _confidence(seen: dict[str, Any], now: str) -> str | None:
    if not seen["made"]:
        return None
    age = short_duration(age_s(seen["made"], now))
    return f"{seen['confidence']:.0%}, from {seen['futures']} futures run ahead {age} ago"


def parts(found: dict[str, float]) -> str:
    """What is not there is left out; they sum to the total."""
    shown = [(name, round(found[key], 1)) for name, key in PARTS if found[key] >= 0.05]
    said = " + ".join(f"{name} {part_s:.1f} s" for name, part_s in shown)
    return f"{said or '0.0 s'} = {sum(part_s for _, part_s in shown):.1f} s ({format_duration(found['total_s'])})"


def ledger_grid(estimates: list[dict[str, Any]], truth: dict[str, float], *, over: bool) -> Grid:
    """Estimate and truth side by side, part by part; what preemptions cost is expected, and then known."""
    held = {None: "", True: "held", False: "missed"}
    rows = [
        [f"foreseen at {one['moment']}", *_cells(one["parts"]), held[one["inside"]]] for one in estimates
    ]
    rows.append(["truth" if over else "so far", *_cells(truth), ""])
    return grid(("SECONDS", *(name.upper() for name, _ in PARTS), "JCT", "RANGE"), rows)


def _cells(parts: dict[str, float]) -> list[str]:
    return [f"{parts[key]:.0f}" for _, key in (*PARTS, ("", "total_s"))]


def record(coverage: dict[str, Any]) -> str:
    """How often the first range of a job held."""
    ended = sum(coverage[outcome] for outcome in ("inside", "before", "after", "unknown"))
    if not ended:
        return "no job has completed yet"
    return (
        f"{coverage['inside']} of {ended} completed jobs ended in their first range ({coverage['share']:.0%}); "
        f"{coverage['before']} before it, {coverage['after']} after, {coverage['unknown']} had none"
    )


def why_facts(found: dict[str, Any]) -> Facts:
    """Titles and values."""
    since = local_time(found["since"]) if found["since"] else None
    if found["waited_s"] is not None:
        since = f"{since}, {format_duration(found['waited_s'])} ago"
    lines: list[tuple[str, str | None]] = [
        ("Job", f"{found['job']} {found['state']}"),
        ("Why", f"{found['code']}: {found['text']}"),
        ("Since", since),
        ("Unblocked by", found["unblock"]),
    ]
    return [(title, value) for title, value in lines if value]


def prio(id: Id, json: Json = False) -> None:
    """Tell every term of a job's place in the queue, as the policy in force adds them up."""
    found = Client.from_config().call("GET", f"jobs/{id}/prio").json()
    if json:
        print_json(prio=found)
        return
    for line in prio_lines(found):
        print(visible(line))


def prio_lines(found: dict[str, Any]) -> list[str]:
    """Ranks in the order in which they decide, each with its sum."""
    lines = [f"job {found['job']} {found['state']}, policy {found['policy']}"]
    for number, rank in enumerate(found["ranks"], 1):
        lines.append("decides first" if number == 1 else "then, between equals")
        lines += [f"  {term['name']:<40} {term['value']:>16,.3f}" for term in rank["terms"]]
        if len(rank["terms"]) > 1:
            lines.append(f"  {'= sum':<40} {rank['sum']:>16,.3f}")
    if found["position"] is not None:
        lines.append(f"position {found['position']} of {found['waiting']} that wait; the larger sum comes first")
    return lines
