"""Makes the models that jctd comes with: `python -m benchmarks.generic_models [--cpu ROWS.npz ...] [--dynpipe FILE]`.

cpu.npz from the rows of calibrations on CPU devices, for any number of cores; dynpipe.npz from DynPipe's published
measurements. Kept small: few trees, and leaves of several rows.
"""

import argparse
import dataclasses
from functools import reduce
from pathlib import Path

from agent.forest import file, training
from agent.forest.model import ANY, Hardware
from agent.forest.predictor import SHIPPED
from agent.forest.rows import Rows, both, load
from benchmarks.forest import read_dynpipe

TREES = 50


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", type=Path, nargs="+", metavar="ROWS")
    parser.add_argument("--dynpipe", type=Path, metavar="FILE")
    options = parser.parse_args()
    SHIPPED.mkdir(exist_ok=True)
    if options.cpu:
        found = [generic(load(path), Hardware("cpu", ANY)) for path in options.cpu]
        make("cpu", reduce(both, found))
    if options.dynpipe is not None:
        make("dynpipe", generic(read_dynpipe(options.dynpipe), Hardware("unknown GPU", ANY)))


def generic(rows: Rows, hardware: Hardware) -> Rows:
    return dataclasses.replace(rows, hardware=hardware)


def make(name: str, rows: Rows) -> None:
    path = SHIPPED / f"{name}.npz"
    file.write(path, training.train(rows, trees=TREES))
    path.chmod(0o644)
    print(f"{path}: {len(rows)} rows, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
