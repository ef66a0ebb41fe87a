"""`jct completion SHELL` prints what makes a shell complete commands, ids of jobs, queues, teams and nodes."""

from collections.abc import Iterable
from typing import Annotated

import typer

from scheduler.cli.client import Client
from scheduler.core.errors import Code, JctError

_BASH = """_jct() {
    local words; words=$(jct completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")
}
complete -o default -F _jct jct
"""
_ZSH = """#compdef jct
_jct() { compadd -- ${(f)"$(jct completion words "${(@)words[2,CURRENT]}" 2>/dev/null | tr ' ' '\\n')"}; }
compdef _jct jct
"""
_FISH = """complete -c jct -f -a '(jct completion words (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

WITH_IDS = frozenset(
    {
        "show", "logs", "events", "wait", "cancel", "hold", "release", "update", "requeue", "signal", "checkpoint",
        "preempt", "top-of-queue", "why", "eta", "prio", "scancel",
    }
)  # fmt: skip
_OF_RECORDS = {"team": "teams", "user": "users", "queues": "queues", "class": "priority-classes", "quota": "teams"}
_OF_OPTIONS = {"--queue": "queues", "--team": "teams"}


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="Whose language to speak.")],
    line: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Print a script for a shell; for bash: source <(jct completion bash)."""
    if shell == "words":
        print(" ".join(words(line or [""])))
    elif shell in SCRIPTS:
        print(SCRIPTS[shell], end="")
    else:
        what = f"there is no completion for {shell!r}"
        raise JctError(Code.BAD_SPEC, what, hint=f"there is for {', '.join(SCRIPTS)}")


def words(line: list[str]) -> Iterable[str]:
    """What may stand at the end of the line, of which the last word is begun. Names with spaces are left out."""
    from scheduler.cli.main import ALIASES, COMMANDS

    command, last, before = line[0], line[-1], line[-2] if len(line) > 1 else ""
    if len(line) == 1:
        return sorted([*COMMANDS, *ALIASES])
    try:
        if before in _OF_OPTIONS:
            return _names(Client.from_config(), _OF_OPTIONS[before])
        if command in WITH_IDS and not last.startswith("-"):
            return [str(job["id"]) for job in Client.from_config().jobs(200)[0]]
        if command in _OF_RECORDS:
            return ["ls", "set", "rm"] if len(line) == 2 else _names(Client.from_config(), _OF_RECORDS[command])
        if command in ("drain", "resume"):
            nodes = Client.from_config().call("GET", "nodes").json()["nodes"]
            return [node["id"] for node in nodes if " " not in node["id"]]
    except JctError:
        return []
    return []


def _names(client: Client, plural: str) -> list[str]:
    found = [record["name"] for record in client.call("GET", plural).json()["records"]]
    return [name for name in found if " " not in name]
