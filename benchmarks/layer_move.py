"""A layer of 25 MB of state moves to the neighbouring stage while training goes on: what either side pauses for it.

Wanted: at most a tenth of a warm restart (from a zygote, as benchmarks/resize.py has it). The pilot's member tells the
pause; it holds the last stage, so that it is source in one direction and destination in the other. What the step before
takes longer is told too; it is no pause, but it is not free.

    python -m benchmarks.layer_move
"""

import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.resize import change, zygote

LEFT, MIDDLE = (0, 4, 10), (0, 5, 10)
REPEATS = 5


def main() -> None:
    moves = {"source": (LEFT, MIDDLE), "destination": (MIDDLE, LEFT)}
    found: dict[str, list[tuple[float, float, float]]] = {side: [] for side in moves}
    restarts = []
    for _ in range(REPEATS):
        folder = Path(tempfile.mkdtemp(prefix="move-"))
        try:
            restarts.append(zygote(folder))
            for side, (old, new) in moves.items():
                shutil.rmtree(folder / "checkpoints")
                found[side].append(change(folder, old, new))
        finally:
            shutil.rmtree(folder)
    restart_s = statistics.median(restarts)
    print(f"warm restart: {restart_s:.2f} s")
    for side, times in found.items():
        longer_s, pause_s, _ = (statistics.median(column) for column in zip(*times, strict=True))
        print(
            f"{side}: pause {pause_s * 1e3:.0f} ms, 1/{restart_s / pause_s:.0f} of a warm restart; the step before "
            f"took {longer_s * 1e3:.0f} ms longer"
        )


if __name__ == "__main__":
    main()
