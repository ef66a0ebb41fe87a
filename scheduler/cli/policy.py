"""`jct policy serve`: one JSON line in, one out, so that other simulators and clusters can drive our policies."""

import sys
from enum import StrEnum
from typing import Annotated

import typer


class Action(StrEnum):
    SERVE = "serve"


def policy(
    action: Annotated[Action, typer.Argument(help="serve: answer questions on standard input until it ends.")],
    policy: Annotated[str, typer.Option(help="Which policy decides.")] = "jct",
) -> None:
    """Serve a policy: each line of standard input is a question, each line of standard output its answer."""
    from policies.registry import find_allocator
    from scheduler.cli.quiet import stdout_is_ours
    from scheduler.simulator.serving import answer

    try:
        allocator = find_allocator(policy)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with stdout_is_ours() as out:
        for line in sys.stdin.buffer:
            if line.strip():
                print(answer(line, allocator), file=out, flush=True)
