"""`jct simulate`: a workload under one or more policies, by the daemon's own core under a virtual clock. Offline."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from policies.jct.policy import Policy
    from scheduler.simulator.simulate import Run
    from scheduler.simulator.workload import Nodes


def simulate(
    workload: Annotated[
        Path, typer.Argument(help="List of jobs: Rubick's format, Philly's (rigid jobs), or `jct history --export`.")
    ],
    profiles: Annotated[
        Path | None, typer.Option(help="Folder of <application>-placements.csv, or of one folder a GPU kind.")
    ] = None,
    nodes: Annotated[str, typer.Option(help="Nodes x GPUs, such as 8x8 or 8x4:a100,4x8:v100.")] = "8x8",
    policy: Annotated[str, typer.Option(help="Policies, separated by commas.")] = "jct",
    round_: Annotated[float, typer.Option("--round", min=1.0, help="Seconds between passes.")] = 60.0,
    restart_cost: Annotated[float, typer.Option(min=0.0, help="Seconds a job stands still after a change.")] = 260.0,
    remaining: Annotated[str, typer.Option(help="What policies know of remaining work: exact or unknown.")] = "exact",
    noise: Annotated[float, typer.Option(min=0.0, help="Error of remaining work and step times: 0.3 for 30 %.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="A summary of each policy as JSON.")] = False,
    decisions: Annotated[Path | None, typer.Option(help="Log every placement to this file, as JSON lines.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw completion times and GPUs in use to this file.")] = None,
) -> None:
    """Simulate a workload and tell what each policy makes of it."""
    import json

    from scheduler.cli.quiet import stdout_is_ours
    from scheduler.simulator.charts import draw
    from scheduler.simulator.exported import is_export, read_export
    from scheduler.simulator.simulate import Simulation
    from scheduler.simulator.summary import summarise
    from scheduler.simulator.workload import BadWorkload, on_nodes, read_workload

    if remaining not in ("exact", "unknown"):
        raise typer.BadParameter(f"--remaining is exact or unknown, not {remaining!r}")
    try:
        groups = parse_nodes(nodes)
        chosen = [(name, _policy(name, noise, seed)) for name in policy.split(",")]
        kinds = {group.kind: group.count * group.devices for group in groups}
        if is_export(workload):
            found = on_nodes(read_export(workload, kinds), groups)
        else:
            found = read_workload(workload, profiles, groups, restart_cost)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {error.filename}: {error.strerror}") from error
    except (BadWorkload, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for path in (decisions, svg):
        if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise typer.BadParameter(f"cannot write {path}: {path.parent} is no folder that may be written")
    summaries: dict[str, dict[str, Any]] = {}
    runs: dict[str, Run] = {}
    for name, chosen_policy in chosen:
        with stdout_is_ours():
            runs[name] = Simulation(found, groups, chosen_policy, round_, exact=remaining == "exact").play()
        summaries[name] = summarise(found, groups, runs[name])
    if decisions is not None:
        for name, run in runs.items():
            _write_decisions(run, decisions if len(runs) == 1 else decisions.with_suffix(f".{name}{decisions.suffix}"))
    if svg is not None:
        svg.write_text(draw(found, runs))
    typer.echo(json.dumps(summaries, indent=2) if json_ else "\n".join(_table(summaries)))


def parse_nodes(text: str) -> "list[Nodes]":
    """ "8x8" or "8x4:a100,4x8:v100". Raises ValueError."""
    from scheduler.simulator.workload import Nodes

    groups: list[Nodes] = []
    for part in text.split(","):
        size, _, kind = part.partition(":")
        count, _, devices = size.partition("x")
        if not (count.isdigit() and devices.isdigit() and int(count) and int(devices)):
            raise ValueError(f"--nodes {part!r}: write nodes x GPUs, such as 8x8 or 8x4:a100")
        groups.append(Nodes(int(count), int(devices), kind or "gpu"))
    return groups


def _policy(name: str, noise: float, seed: int) -> "Policy":
    import random

    from policies.registry import find, names
    from scheduler.simulator.noise import Misinformed

    if name == "priority":  # it gives every job a probe first, which no gang of the simulator can run
        others = ", ".join(other for other in names() if other != name)
        raise ValueError(f"policy 'priority' probes each job, and nothing here can be probed; choose one of {others}")
    policy = find(name)
    return Misinformed(policy, noise, random.Random(seed)) if noise else policy


def _write_decisions(run: "Run", path: Path) -> None:
    import json

    with path.open("w") as file:
        for change in run.changes:
            line = {"time_s": change.time_s, "job": change.job, "placement": change.placement, "plan": change.plan}
            file.write(json.dumps(line) + "\n")


def _table(summaries: dict[str, dict[str, Any]]) -> list[str]:
    """At most 80 columns, as long as nothing takes a year."""
    from scheduler.cli.grid import Grid
    from scheduler.simulator.exported import told

    columns = ("avg", "median", "p90", "p99", "makespan")
    titles = ["policy", *(f"{name} s" for name in columns), "restarts", "used", "pass ms", "x bound"]
    rows = []
    for name, found in summaries.items():
        times = [found[f"{column}_jct_s" if column != "makespan" else "makespan_s"] for column in columns]
        bound = found["avg_jct_s"] / found["lower_bound_s"]
        last = (f"{found['restarts_per_job']:.2f}", f"{found['utilisation']:.0%}", f"{found['pass_ms']['mean']:.1f}")
        rows.append([name, *(f"{seconds:,.0f}" for seconds in times), *last, f"{bound:.2f}"])
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    cells = [[(text, "") for text in row] for row in rows]
    lines = Grid(titles, cells, widths, [False, *[True] * (len(titles) - 1)]).lines()
    first = next(iter(summaries.values()))
    least = f"{first['jobs']} jobs; no average can be below {first['lower_bound_s']:,.0f} s"
    missing = told(first["left_out"])
    return [*(" ".join(text for text, _ in line) for line in lines), least, *([missing] if missing else [])]
