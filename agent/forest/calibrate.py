"""`jct-agent calibrate`: measures this machine beside interference of its own making, and keeps a model of it."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent.forest import campaign, isolation
from agent.forest.calibrating import calibration
from agent.forest.evaluation import Evaluation
from agent.forest.model import Hardware
from agent.forest.refit import ONLINE
from agent.forest.rows import Rows, both, load, save
from agent.forest.training import Trained
from agent.forest.workbench import BrokenBench

EX_FAILED, EX_USAGE = 1, 2
JSON_VERSION = "v1"
QUICK_MINUTES, QUICK_TREES, TREES = 0.8, 30, 100
MODEL, ROWS, REPORT, PICTURE = "model.npz", "rows.npz", "evaluation.json", "evaluation.svg"
SHOWN = 10


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 where it cannot be measured here, 2 for bad usage."""
    options = _options().parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0))[: options.stages]
    if len(cores) < 2:
        return _complain("a pipeline needs two cores, and this process may use only one", EX_FAILED)
    with calibration() as alone:
        if not alone:
            print("another calibration runs on this machine: both are worse for it", file=sys.stderr)
        return _calibrate(options, cores)


def _calibrate(options: argparse.Namespace, cores: Sequence[int]) -> int:
    no_links = isolation.isolate()
    try:
        options.out.mkdir(parents=True, exist_ok=True, mode=0o700)
        before = load(options.out / ROWS) if options.add and (options.out / ROWS).exists() else None
        rows = _measure(cores, options, not no_links)
        rows = both(before, rows) if before is not None else rows
        save(options.out / ROWS, rows)
        trained = train(options.out, QUICK_TREES if options.quick else TREES, evaluate=True, seed=options.seed)
        paint(options.out, trained)
        (options.out / ONLINE).unlink(missing_ok=True)  # learned before
    except (BrokenBench, TrainingFailed, OSError, ValueError) as error:
        return _complain(str(error), EX_FAILED)
    report = _report(options.out, trained, rows.hardware, no_links)
    (options.out / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2) if options.json else "\n".join(_lines(trained, report)))
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jct-agent calibrate",
        description="Runs a small pipeline alone and beside interference, and keeps a model that predicts slowdowns "
        "from counters. Needs no daemon. Other work on the machine meanwhile makes the model worse.",
    )  # fmt: skip
    parser.add_argument("--out", required=True, type=Path, metavar="DIR",
                        help="an agent's state folder, for its model.npz; or any other")
    parser.add_argument("--minutes", type=_minutes, default=15.0, help="of measuring, default 15")
    parser.add_argument("--quick", action="store_true", help="within a minute or so; good for a first look only")
    parser.add_argument("--add", action="store_true", help="to the rows that DIR has from earlier calibrations")
    parser.add_argument("--stages", type=int, default=2, choices=range(2, 9), help="of the pipeline, one a core")
    parser.add_argument("--seed", type=int, default=0, help="of the situations that are drawn")
    parser.add_argument("--json", action="store_true", help="JSON for scripts")
    return parser


def _minutes(text: str) -> float:
    value = float(text)
    if not 0 < value <= 24 * 60:
        raise argparse.ArgumentTypeError("must be above 0 and at most a day")
    return value


def _measure(cores: Sequence[int], options: argparse.Namespace, shapes_links: bool) -> Rows:
    minutes = QUICK_MINUTES if options.quick else options.minutes
    record = campaign.Record()
    for record in campaign.measure(cores, minutes, options.seed, shapes_links):
        print(f"{len(record.moments)} samples", file=sys.stderr, flush=True)
    return campaign.as_rows(record, cpu_hardware())


def cpu_hardware() -> Hardware:
    return Hardware("cpu", f"{os.cpu_count()} cores")


class TrainingFailed(RuntimeError):
    """The training process ended without a model."""


def train(folder: Path, trees: int, evaluate: bool, seed: int = 0, nice: int = 0) -> Trained:
    """From ROWS to MODEL in a process of its own. Raises TrainingFailed, OSError."""
    command = [
        sys.executable, "-P", "-m", "agent.forest.training", str(folder / ROWS), str(folder / MODEL),
        "--trees", str(trees), "--seed", str(seed), "--nice", str(nice), *(["--evaluate"] if evaluate else []),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise TrainingFailed(done.stderr.decode(errors="replace").strip()[-500:])
    return msgspec.json.decode(done.stdout, type=Trained)


def paint(folder: Path, trained: Trained) -> None:
    """Importances, and errors beside the mean's and the ridge's, as a picture. In a process of its own, too."""
    command = [sys.executable, "-P", "-m", "agent.forest.painting", str(folder / PICTURE)]
    done = subprocess.run(command, input=msgspec.json.encode(trained), capture_output=True, check=False)
    if done.returncode:
        raise TrainingFailed(f"no picture: {done.stderr.decode(errors='replace').strip()[-500:]}")


def _report(folder: Path, trained: Trained, hardware: Hardware, no_links: str) -> dict[str, object]:
    return {
        "apiVersion": JSON_VERSION,
        "hardware": msgspec.to_builtins(hardware),
        "leftOut": {"link": no_links} if no_links else {},
        **msgspec.to_builtins(trained),
        "model": str(folder / MODEL),
        "rowsFile": str(folder / ROWS),
        "picture": str(folder / PICTURE),
    }


def _lines(trained: Trained, report: dict[str, object]) -> list[str]:
    top = list(trained.importances.items())[:SHOWN]
    return [
        f"{trained.rows} rows of {trained.situations} situations",
        "",
        f"{'HELD OUT':<10}{'FOREST':>8}{'MEAN':>8}{'RIDGE':>8}{'R2':>7}{'IN 90%':>8}",
        *(_line(found) for found in trained.evaluations),
        "",
        *(f"{name:<30}{100 * part:5.1f}%" for name, part in top),
        "",
        *(f"left out: {kind} ({why})" for kind, why in dict(report["leftOut"]).items()),  # type: ignore[call-overload]
        f"model    {report['model']}",
        f"picture  {report['picture']}",
    ]


def _line(found: Evaluation) -> str:
    errors = "".join(f"{getattr(found, name).mape:7.1f}%" for name in ("forest", "mean", "ridge"))
    return f"{found.split:<10}{errors}{found.forest.r2:7.2f}{found.coverage:7.0f}%"


def _complain(text: str, code: int) -> int:
    print(f"jct-agent calibrate: {text}", file=sys.stderr)
    return code
