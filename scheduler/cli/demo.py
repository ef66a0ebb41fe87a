"""`jct demo`: a real little cluster, three real trainings, a preemption, and what became of everyone's time."""

import contextlib
import io
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from scheduler.cli.client import Client
from scheduler.cli.demo_report import report
from scheduler.cli.local import LocalCluster
from scheduler.cli.table import DEMO_COLUMNS, job_table
from scheduler.core.errors import Code, JctError

LOOK_S = 0.5
ABANDON_S = 20.0
PATIENCE_S = 600.0
URGENT_AT = 0.75
STORY_LINES = 8
NODES = ("alpha", "beta")
DEVICES = "cpu:2"
WIDTH = 80

Job = dict[str, Any]


def run_demo(keep: Path | None, svg: Path | None) -> int:
    """The exit code: 0 when every job ended well and one resumed on another stage count."""
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # both end it in order
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    picture = Console(record=True, width=WIDTH + 4, file=io.StringIO(), highlight=False)
    with tempfile.TemporaryDirectory(prefix="jctd-demo-") as folder:
        state = keep or Path(folder)
        cluster = LocalCluster(state, ends_with_us=True)
        try:
            cluster.start_daemon()
            for node in NODES:
                cluster.start_agent(node, DEVICES)
            console.print(f"jctd at {cluster.url}; agents {', '.join(NODES)} offer {DEVICES} each; data in {state}")
            client = Client(cluster.url, cluster.token() or "")
            jobs = _play(console, picture, client, cluster, state / "checkpoints")
            good = report(console, jobs)
            report(picture, jobs)
        finally:
            if keep is None and cluster.facts:
                _abandon(cluster)
            cluster.stop()
    if svg is not None:
        svg.write_text(_without_web_fonts(picture.export_svg(title="make demo")))
    return 0 if good else 1


def _abandon(cluster: LocalCluster) -> None:
    """Nobody comes back to a demo whose folder goes: jobs that have not ended would train on for nothing."""
    with contextlib.suppress(JctError):
        client, deadline = Client(cluster.url, cluster.token() or ""), time.monotonic() + ABANDON_S
        living = [job["id"] for job in client.jobs(None)[0] if not job["result"]]
        for id in living:
            client.act(id, "cancel")
        while any(not client.job(id)["result"] for id in living) and time.monotonic() < deadline:
            time.sleep(LOOK_S)


def _play(
    console: Console, picture: Console, client: Client, cluster: LocalCluster, checkpoints: Path
) -> list[Job]:
    """Submit two jobs, and an urgent one when the first is well under way; watch until all have ended."""
    waiting = _scene(checkpoints)
    _submit(console, client, next(waiting))
    first = _submit(console, client, next(waiting)) - 1
    urgent, story, seen, states = False, _Story(console), 0, [""]
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    deadline = time.monotonic() + PATIENCE_S
    if live is not None:
        live.start()
    try:
        while time.monotonic() < deadline:
            cluster.check()
            jobs, now = client.jobs(None, all="true")
            jobs.reverse()
            seen = story.take(list(client.events("events", seen)), seen)
            new_states = [job["state"] for job in jobs]
            if new_states != states and not {"STARTING", "PENDING"} & set(new_states):
                _print_queue(picture, jobs, now)
            if live is None and new_states != states:
                _print_queue(console, jobs, now)
            states = new_states
            if live is not None:
                live.update(Group(job_table(jobs, now, console.width, DEMO_COLUMNS), *story.last), refresh=True)
            if not urgent and _is_time(next(job for job in jobs if job["id"] == first)):
                urgent = bool(_submit(console, client, next(waiting)))
            elif urgent and all(job["result"] for job in jobs):
                return [client.job(job["id"]) for job in jobs]
            time.sleep(LOOK_S)
    finally:
        if live is not None:
            live.stop()
    raise JctError(Code.INTERNAL, f"the demo did not end within {PATIENCE_S:.0f} s; see {checkpoints.parent}")


def _print_queue(console: Console, jobs: list[Job], now: str) -> None:
    console.print(job_table(jobs, now, console.width, DEMO_COLUMNS))
    console.print()


def _without_web_fonts(svg: str) -> str:
    """A picture that loads nothing from elsewhere."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")


def _is_time(first: Job) -> bool:
    steps = first["total_steps"]
    return bool(first["result"] or (steps and first["step"] and first["step"] >= URGENT_AT * steps))


def _scene(checkpoints: Path) -> Iterator[dict[str, Any]]:
    """Who comes, in order. Sizes in steps; how many stages each gets is the scheduler's choice."""
    yield _job(checkpoints, "short", "research", 50, {"min": 1, "max": 4}, {"steps": 140, "seed": 1})
    yield _job(checkpoints, "long", "product", 50, {"min": 1, "max": 4}, {"steps": 270, "seed": 2})
    yield _job(checkpoints, "urgent", "release", 90, {"min": 4, "max": 4}, {"steps": 30, "seed": 3})


def _job(
    checkpoints: Path, name: str, team: str, priority: int, gpus: dict[str, int], arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name, "team": team, "priority": priority, "gpus": gpus, "workdir": "/",
        "entrypoint": "worker.models.gpt_stdlib:pipeline_job", "arguments": arguments,
        "parallel": {"data": 1}, "checkpoint": {"dir": str(checkpoints / name), "every": "30s"}, "grace": "60s",
    }


def _submit(console: Console, client: Client, job: dict[str, Any]) -> int:
    answer = client.call("POST", "jobs", body={"job": job}).json()
    gpus = job["gpus"]
    console.print(
        f"submitted {job['name']!r} of team {job['team']}: priority {job['priority']}, "
        f"{gpus['min']} to {gpus['max']} devices", style="bold",
    )
    return int(answer["id"])


class _Story:
    """The newest events: printed one by one, or kept for the live view."""

    shown = ("Placed", "Running", "Stopping", "Resumed", "AttemptEnded", "Ended")

    def __init__(self, console: Console) -> None:
        self._console = console
        self.last: list[Text] = []

    def take(self, events: list[dict[str, Any]], seen: int) -> int:
        """Returns the number of the last event."""
        for event in events:
            seen = event["seq"]
            if event["kind"] not in self.shown or event["job"] is None:
                continue
            text = Text(f"job {event['job']} {event['kind']}: {event['message']}", style="dim", no_wrap=True)
            text.overflow = "ellipsis"
            if self._console.is_terminal:
                self.last = [*self.last, text][-STORY_LINES:]
            else:
                self._console.print(text)
        return seen
