"""`jct up` and `jct demo`: their options; what they do is in `up.py` and `demo.py`."""

from pathlib import Path
from typing import Annotated

import typer

Port = Annotated[int, typer.Option(min=0, max=65_535, help="0 lets the system choose.")]


def up(
    devices: Annotated[
        str | None, typer.Option(help="nvml, cpu:N or fake:N (simulated); by default the GPUs found, else CPUs.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(file_okay=False, help="Data folder; by default $XDG_STATE_HOME/jctd.")
    ] = None,
    port: Port = 7740,
    agents_port: Port = 7741,
    node: Annotated[str | None, typer.Option(help="This node's name; by default the host's.")] = None,
) -> None:
    """Start a daemon and one agent on this machine, in the foreground; Ctrl-C ends them, not the jobs."""
    from scheduler.cli.up import run_up

    run_up(devices, state.resolve() if state else None, port, agents_port, node)


def demo(
    keep: Annotated[Path | None, typer.Option(file_okay=False, help="Keep the cluster's data in this folder.")] = None,
    svg: Annotated[Path | None, typer.Option(dir_okay=False, help="Also draw the output into this file.")] = None,
) -> int:
    """Run three real trainings on a small cluster of processes: one preempts the others, which resume elsewhere."""
    from scheduler.cli.demo import run_demo

    return run_demo(keep.resolve() if keep else None, svg)
