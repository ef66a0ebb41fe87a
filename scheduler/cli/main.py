"""`jct`: finds the command's module and loads only that, so that every call feels instant."""

import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from scheduler.cli import exits
from scheduler.core.errors import JctError

Entry = tuple[str, str, str]

COMMANDS: dict[str, Entry] = {
    "up": ("start", "up", "Start a daemon and an agent on this machine."),
    "demo": ("start", "demo", "Run three real trainings, a preemption and a resume."),
    "submit": ("submit", "submit", "Submit a job file."),
    "run": ("run", "run", "Run any program as a job: jct run -- PROGRAM ..."),
    "ls": ("queue", "ls", "List jobs."),
    "show": ("show", "show", "Show all that is known of a job."),
    "logs": ("logs", "logs", "Print a job's logs, byte for byte."),
    "events": ("story", "events", "Tell what happened, to a job or to the cluster."),
    "wait": ("wait", "wait", "Wait for jobs to end, and exit as they did."),
    "cancel": ("act", "cancel", "Cancel jobs, in whatever state they are."),
    "hold": ("act", "hold", "Keep jobs from running."),
    "release": ("act", "release", "Let held jobs run."),
    "update": ("act", "update", "Change jobs: priority, team, queue, limits, GPUs."),
    "requeue": ("act", "requeue", "Save, stop and queue jobs again."),
    "checkpoint": ("act", "checkpoint", "Have jobs save now."),
    "signal": ("act", "signal", "Send a signal to jobs' processes."),
    "why": ("foresight", "why", "Tell why a job waits, and what would let it go on."),
    "eta": ("foresight", "eta", "Tell when a job starts and ends, as a range."),
    "prio": ("foresight", "prio", "Tell every term of a job's place in the queue."),
    "whatif": ("whatif", "whatif", "Tell what an act would change, and change nothing."),
    "nodes": ("inventory", "nodes", "List nodes."),
    "gpus": ("gpus", "gpus", "List devices: load, memory, power, and who has them."),
    "top": ("top", "top", "Watch what a job's devices and nodes do."),
    "history": ("history", "history", "List jobs that have ended, or export them for jct simulate."),
    "usage": ("tokens", "usage", "GPU-hours by team and user."),
    "preempt": ("act", "preempt", "Stop jobs as for more important ones."),
    "top-of-queue": ("act", "top", "Put a job before all that wait."),
    "drain": ("upkeep", "drain", "Start nothing new on a node or device."),
    "resume": ("upkeep", "resume", "Give a drained node or device work again."),
    "reserve": ("upkeep", "reserve", "Keep nodes for a team, or for nobody."),
    "team": ("records", "team", "List teams, or set their caps and weights."),
    "user": ("records", "user", "List users, or set their caps."),
    "queues": ("records", "queues", "List queues, or set who may use them."),
    "class": ("records", "priority_class", "List priority classes, or set who may use them."),
    "token": ("tokens", "token", "List, make or revoke tokens."),
    "webhook": ("webhooks", "webhook", "List, make or remove webhooks."),
    "audit": ("tokens", "audit", "Every admin act and every denied act."),
    "admin": ("admin", "admin", "Back up, restore; the broker's ACL file."),
    "train": ("training", "train", "Train one job on this machine, without a daemon."),
    "checkpoints": ("training", "checkpoints", "Explain or check a checkpoint directory."),
    "plan": ("plan", "plan", "Plan stages, micro-batches and schedule, offline."),
    "timeline": ("timeline", "timeline", "Draw when each stage works in one step."),
    "probe": ("probe", "probe", "Tell how much more work a stage could take, offline."),
    "simulate": ("simulate", "simulate", "Simulate a workload under one or more policies, offline."),
    "policy": ("policy", "policy", "Serve a policy to another simulator or cluster, line by line."),
    "login": ("login", "login", "Keep a URL and a token for the next calls."),
    "config": ("login", "show_config", "Show this shell's settings, and where each comes from."),
    "doctor": ("doctor", "doctor", "Check this machine: GPUs, clock, ports, disk, keys, packages."),
    "completion": ("completion", "completion", "Print a script that makes a shell complete jct's words."),
    "version": ("version", "version", "Print the version."),
}
HEADINGS = {
    "up": "Start here", "submit": "Jobs", "why": "Why, when, what if", "nodes": "Cluster",
    "preempt": "For operators and admins", "train": "Without a daemon", "login": "This shell",
}  # fmt: skip
"""What the help says before a command."""
ALIASES = {"queue": "ls", "squeue": "ls", "ps": "ls", "sbatch": "submit", "scancel": "cancel", "quota": "team"}


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit code of one call. A reader that has gone away is no error worth a word."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _dispatch(list(arguments))
        sys.stdout.flush()
    except (BrokenPipeError, _ReaderGone):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.BROKEN_PIPE
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    return code


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in {"--help", "-h", "help"}:
        print(help_text())
        return exits.OK
    managed = name == "queue" and arguments[1:2] and arguments[1] in ("create", "set", "rm")
    name = "version" if name == "--version" else "queues" if managed else ALIASES.get(name, name)
    if name not in COMMANDS:
        return _unknown(name)
    try:
        return _invoke(name, arguments[1:])
    except JctError as error:
        from scheduler.cli.output import print_error

        print_error(error)
        return exits.OF_CODE[error.code]


class _ReaderGone(Exception):
    """A broken pipe, under a name that typer does not turn into an exit code of its own."""


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def run_it(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except BrokenPipeError:
            raise _ReaderGone from None

    return run_it


def _invoke(name: str, arguments: list[str]) -> int:
    import typer

    module, function, _ = COMMANDS[name]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    command: Callable[..., Any] = getattr(importlib.import_module(f"scheduler.cli.{module}"), function)
    app.command(name, context_settings={"help_option_names": ["--help", "-h"]})(_guarded(command))
    usage_error: Any = typer.BadParameter.__base__
    try:
        return int(app(args=arguments, prog_name=f"jct {name}", standalone_mode=False) or 0)
    except usage_error as error:
        error.show()
        return exits.WHATIF_ERROR if name == "whatif" else exits.BAD_USAGE
    except typer.Abort:
        return exits.INTERRUPTED


def _unknown(name: str) -> int:
    import difflib

    near = difflib.get_close_matches(name, [*COMMANDS, *ALIASES], 1)
    hint = f"did you mean `jct {near[0]}`?" if near else "`jct --help` lists the commands"
    print(f"jct: there is no command {name!r}\n  {hint}", file=sys.stderr)
    return exits.BAD_USAGE


def help_text() -> str:
    wide = max(map(len, COMMANDS))
    lines = []
    for name, (_, _, text) in COMMANDS.items():
        lines += ["", f"{HEADINGS[name]}:"] if name in HEADINGS else []
        lines.append(f"  {name:<{wide}}  {text}")
    habits = {name: [alias for alias in ALIASES if ALIASES[alias] == name] for name in ALIASES.values()}
    aliases = "; ".join(f"{', '.join(names)} = {name}" for name, names in habits.items())
    return "\n".join(
        [
            "Usage: jct COMMAND [OPTIONS]",
            "",
            "A cluster scheduler for pipeline-parallel training.",
            *lines,
            "",
            f"Also: {aliases}.",
            "`jct COMMAND --help` tells more.",
            "JCT_URL and JCT_TOKEN say where jctd is and who you are.",
        ]
    )
