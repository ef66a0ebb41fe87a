"""`jct eta` and `jct why`: what will become of a job, and what keeps it."""

from typing import Any

from scheduler.cli.client import Client
from scheduler.cli.options import Id, Json
from scheduler.cli.output import age_s, local_time, print_facts, print_json
from scheduler.cli.table import short_duration
from scheduler.durations import format_duration

Facts = list[tuple[str, str]]
PARTS = (
    ("queueing", "queueing_s"), ("start-up", "startup_s"), ("training", "training_s"),
    ("preemptions", "preemptions_s"), ("clean-up", "cleanup_s"),
)  # fmt: skip


def eta(id: Id, json: Json = False) -> None:
    """Tell when a job starts and ends: a range that shall hold nine times in ten, or `unknown`."""
    seen = Client.from_config().call("GET", f"jobs/{id}/eta").json()
    if json:
        print_json(eta=seen)
        return
    print_facts(eta_facts(seen))


def why(id: Id, json: Json = False) -> None:
    """Tell why a job is where it is: the binding reason, its numbers, and what would let the job go on."""
    found = Client.from_config().call("GET", f"jobs/{id}/why").json()
    if json:
        print_json(why=found)
        return
    print_facts(why_facts(found))


def eta_facts(seen: dict[str, Any]) -> Facts:
    """Titles and values."""
    now = seen["now"]
    lines: list[tuple[str, str | None]] = [("Job", f"{seen['job']} {seen['state']}")]
    if seen["ended"]:
        lines.append(("Ended", local_time(seen["ended"])))
    else:
        lines += [
            ("Start", _range(seen["start"], now) if seen["start"] else None),
            ("End", _range(seen["end"], now) if seen["end"] else f"unknown: {seen['unknown']}"),
            ("Confidence", _confidence(seen, now)),
            ("Foreseen", parts(seen["parts"]) if seen["parts"] else None),
            ("Preemptions", f"{seen['preemptions']:.1f} expected" if seen["preemptions"] else None),
        ]
    lines.append(("So far" if not seen["ended"] else "Truth", parts(seen["so_far"])))
    lines += [(f"At {one['moment']}", _earlier(one)) for one in seen["estimates"]]
    lines.append(("Record", record(seen["coverage"])))
    return [(title, value) for title, value in lines if value is not None]


def _range(range_: dict[str, str], now: str) -> str:
    early, likely, late = (max(0.0, -age_s(range_[end], now)) for end in ("earliest", "likely", "latest"))
    return (
        f"in {short_duration(early)} to {short_duration(late)}, likely {short_duration(likely)} "
        f"({local_time(range_['likely'])})"
    )


def _confidence(seen: dict[str, Any], now: str) -> str | None:
    if not seen["made"]:
        return None
    age = short_duration(age_s(seen["made"], now))
    return f"{seen['confidence']:.0%}, from {seen['futures']} futures run ahead {age} ago"


def parts(found: dict[str, float]) -> str:
    """What is not there is left out; they sum to the total."""
    said = " + ".join(f"{name} {found[key]:.1f} s" for name, key in PARTS if found[key] >= 0.05)
    return f"{said or '0.0 s'} = {found['total_s']:.1f} s ({format_duration(found['total_s'])})"


def _earlier(one: dict[str, Any]) -> str:
    held = {None: "", True: "; it held", False: "; it did not hold"}[one["inside"]]
    return f"{local_time(one['end']['earliest'])} to {local_time(one['end']['latest'])}{held}"


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
    since = f"{local_time(found['since'])}, {format_duration(found['waited_s'])} ago" if found["since"] else None
    lines: list[tuple[str, str | None]] = [
        ("Job", f"{found['job']} {found['state']}"),
        ("Why", f"{found['code']}: {found['text']}"),
        ("Since", since),
        ("Unblocked by", found["unblock"]),
    ]
    return [(title, value) for title, value in lines if value]
