"""Learning from the jobs that run: a window of their newest rows, and now and then a new forest, where that is better.

`python -m agent.forest.refit FOLDER`, in a process of its own, trains on the older rows of FOLDER's window and on those
of its calibration, and tries it on the newest rows. Only if its error there is clearly smaller than that of the present
model is it left in FOLDER as a candidate. It prints `Refitted` as JSON. The agent takes the candidate as its online
model, unless a calibration has begun or ended meanwhile: what it measured is newer.
"""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import structlog

from agent.forest import file, rows
from agent.forest.evaluation import figures
from agent.forest.model import Hardware, Model
from agent.forest.rows import Rows, Situation
from agent.forest.schema import NODE

log = structlog.get_logger()

ONLINE, PRESENT, WINDOW, CALIBRATED = "online.npz", "present.npz", "window.npz", "rows.npz"
CANDIDATE = "candidate.npz"
MOST_ROWS, LEAST_ROWS = 2000, 200
ROW_S, CHUNK_S, PATIENCE_S = 5.0, 300.0, 3600.0
NEWEST_SHARE, BETTER = 0.25, 0.9
SLOWED, LEAST_SLOWED = 1.2, 10
NICE = 19
LIMIT_S = 600.0
TREES = 60


class Refitted(msgspec.Struct, frozen=True):
    """mape: percent, on the newest rows. present: of the model that was in use."""

    rows: int
    mape: float
    present: float
    taken: bool


class Window:
    """The newest rows of one kind of device: features, and the slowdown that step times have shown then. Where a node
    has several, of the first; of another once that has shown nothing for PATIENCE_S."""

    def __init__(self) -> None:
        self.hardware: Hardware | None = None
        self._found: deque[tuple[Mapping[str, float | None], float, Situation]] = deque(maxlen=MOST_ROWS)
        self._taken_s: dict[str, float] = {}
        self._newest_s = -PATIENCE_S

    def __len__(self) -> int:
        return len(self._found)

    def take(
        self, device: str, hardware: Hardware, values: Mapping[str, float | None], slowdown: float, now_s: float,
        every_s: float = ROW_S,
    ) -> None:  # fmt: skip
        """At most one row a device and every_s. Rows of one stretch of time are alike, and are held out together."""
        if now_s - self._taken_s.get(device, -every_s) < every_s:
            return
        if hardware != self.hardware:
            if self.hardware and self.hardware.kind != hardware.kind and now_s - self._newest_s < PATIENCE_S:
                return
            self.hardware = hardware
            self._found.clear()
        self._taken_s[device] = self._newest_s = now_s
        self._found.append((dict(values), slowdown, Situation(f"stretch {int(now_s / CHUNK_S)}", 0)))

    def rows(self) -> Rows:
        assert self.hardware is not None
        return rows.collect(NODE, self.hardware, self._found)


def never() -> bool:
    """No calibration runs."""
    return False


async def refit_regularly(
    folder: Path, window: Window, present: Callable[[], Model | None], every_s: float,
    calibrating: Callable[[], bool] = never,
) -> None:  # fmt: skip
    """Until cancelled. present: the model in use; its error is what a new one has to beat. calibrating: whether a
    calibration runs here."""
    while True:
        await asyncio.sleep(every_s)
        if len(window) < LEAST_ROWS or calibrating():
            continue
        try:
            if (found := await refit(folder, window, present(), calibrating)) is not None:
                log.info("refitted", **msgspec.structs.asdict(found))
        except Exception as error:  # learning must not end what runs
            log.error("refit failed", error=f"{type(error).__name__}: {error}")


async def refit(
    folder: Path, window: Window, present: Model | None, calibrating: Callable[[], bool] = never
) -> Refitted | None:
    """None where it failed. Raises OSError."""
    calibrated = _stamp(folder / CALIBRATED)
    rows.save(folder / WINDOW, window.rows())
    if present is not None:
        file.write(folder / PRESENT, present)
    else:
        (folder / PRESENT).unlink(missing_ok=True)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "agent.forest.refit", str(folder),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, complaint = await asyncio.wait_for(child.communicate(), LIMIT_S)
    except (TimeoutError, asyncio.CancelledError):
        child.kill()
        raise
    if child.returncode:
        log.error("refit failed", error=complaint.decode(errors="replace").strip()[-500:])
        return None
    found = msgspec.json.decode(out, type=Refitted)
    if not found.taken:
        return found
    if calibrating() or _stamp(folder / CALIBRATED) != calibrated:
        (folder / CANDIDATE).unlink()
        return msgspec.structs.replace(found, taken=False)
    (folder / CANDIDATE).replace(folder / ONLINE)
    return found


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes with a file; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def refitted(window: Rows, calibrated: Rows | None, present: Model | None, seed: int = 0) -> tuple[Refitted, Model]:
    """The newest rows are only for judging. Without a present model, 1 for everything has to be beaten. Rows of calm
    times alone teach a forest to say that nobody ever slows anything, and that it is right."""
    from agent.forest.training import train

    older = round(len(window) * (1 - NEWEST_SHARE))
    at = np.arange(len(window))
    learned, newest = window[at < older], window[at >= older]
    if calibrated is not None and calibrated.hardware == window.hardware:
        learned = rows.both(calibrated, learned)
    model = train(learned, seed, TREES)
    mape, before = _mape(model, newest), _mape(present, newest)
    is_told = all((part.slowdowns >= SLOWED).sum() >= LEAST_SLOWED for part in (learned, newest))
    return Refitted(len(window), mape, before, is_told and mape < BETTER * before), model


def _mape(model: Model | None, part: Rows) -> float:
    if model is None:
        return figures(part.slowdowns, np.ones(len(part))).mape
    names = part.schema.names
    said = [model.predict(dict(zip(names, row, strict=True))).slowdown for row in part.features]
    return figures(part.slowdowns, np.array(said)).mape


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 with a line on standard error where the rows are none."""
    (name,) = arguments if arguments is not None else sys.argv[1:]
    folder = Path(name)
    os.nice(NICE)
    try:
        window = rows.load(folder / WINDOW)
        calibrated = rows.load(folder / CALIBRATED) if (folder / CALIBRATED).exists() else None
        present = file.read(folder / PRESENT, NODE) if (folder / PRESENT).exists() else None
        found, model = refitted(window, calibrated, present)
        if found.taken:
            file.write(folder / CANDIDATE, model)
    except (ValueError, OSError, KeyError) as error:
        print(f"refit: {error}", file=sys.stderr)
        return 1
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
