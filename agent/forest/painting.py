"""The picture of a calibration. `python -m agent.forest.painting OUT.svg` reads a `Trained` as JSON."""

import sys
from pathlib import Path

import msgspec

from agent.forest.training import Trained

SHOWN = 12


def paint(trained: Trained, out: Path) -> None:
    """As SVG or whatever the file's name ends in. Raises OSError."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "jctd"
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    top = list(trained.importances.items())[:SHOWN][::-1]
    left.barh([name for name, _ in top], [100 * part for _, part in top], color="#4878a8")
    left.set_xlabel("importance, %")
    ways = {"forest": "#4878a8", "ridge": "#d0884a", "mean": "#a0a0a0"}
    for number, (way, color) in enumerate(ways.items()):
        places = [at + 0.27 * (number - 1) for at in range(len(trained.evaluations))]
        errors = [getattr(found, way).mape for found in trained.evaluations]
        right.bar(places, errors, width=0.25, label=way, color=color)
    names = [f"{found.split}\n{found.coverage:.0f}% in 90%" for found in trained.evaluations]
    right.set_xticks(range(len(names)), names)
    right.set_xlabel("what was held out, and truths inside the 90% interval")
    right.set_ylabel("MAPE, %")
    right.legend()
    figure.suptitle(f"{trained.rows} rows of {trained.situations} situations")
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def main() -> None:
    paint(msgspec.json.decode(sys.stdin.buffer.read(), type=Trained), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
