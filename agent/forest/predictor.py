"""The slowdown of each device of a node, from its newest sample: by a forest that fits, else as step times show it."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from msgspec.structs import replace

from agent.damping import Damping
from agent.forest import file
from agent.forest.contested import Contest
from agent.forest.features import Features, Values
from agent.forest.felt import at_least_waited, computed, felt
from agent.forest.file import BadModel
from agent.forest.model import LEAST_CONFIDENCE, Hardware, Model
from agent.forest.observed import Observed, Ratio
from agent.forest.refit import ONLINE, ROW_S, Window, never
from agent.forest.schema import NODE
from agent.telemetry.members import Members
from scheduler.protocol.messages import Report, Target
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.telemetry import DeviceSample, Telemetry

log = structlog.get_logger()

MODEL = "model.npz"
SHIPPED = Path(__file__).parent / "models"
LOOK_S = 10.0
FREE_CHANGES = 5
"""Of model files within ten minutes: more than that is no work of a person."""
OBSERVED_CONFIDENCE = 0.6
STEP_TIMES = "observed step times"
NOT_SLOWED, CALM_ROW_S = 1.05, 60.0
"""A job whose steps take no longer than this is not slowed by any of its devices. Of these a row is learned from now
and then: they are most, and would leave no room for others."""
NOTICEABLE_WAIT_PERCENT, NOTICEABLE_FOREIGN_PERCENT = 5.0, 10.0
NO_GANG = (0, 0)


@dataclass(frozen=True, slots=True)
class Choice:
    """The models by device kind. about: which they are; fallback: why not the node's own, empty where there is none."""

    models: Mapping[str, Model]
    about: str
    fallback: str = ""


def choose(folder: Path | None, kinds: Mapping[str, Hardware], shipped: Path = SHIPPED) -> Choice:
    """What this node has learned online; else its own calibration; else the model that came with this program, which is
    for any topology; else none.

    folder: of the node's own models. kinds: the hardware of each device kind that is here.
    """
    models: dict[str, Model] = {}
    about, fallback = [], []
    owners = (Path(__file__).stat().st_uid,)  # who could change the model could change this program
    for kind, hardware in kinds.items():
        for path, what in _candidates(folder, shipped / f"{Path(kind).name}.npz"):
            try:
                models[kind] = file.read(path, NODE, hardware, owners)
                about.append(f"{kind}: {what}")
                break
            except BadModel as error:
                fallback.append(f"{path}: {error}")
        else:
            about.append(f"{kind}: {STEP_TIMES}")
    said = "; ".join(fallback)
    return Choice(models, ", ".join(about), f"{said}. Instead {', '.join(about)}" if said else "")


def _candidates(folder: Path | None, generic: Path) -> list[tuple[Path, str]]:
    """Those that exist."""
    found = [(generic, "a generic forest")]
    if folder is not None:
        found = [(folder / ONLINE, "a forest learned online"), (folder / MODEL, "this node's own forest"), *found]
    return [(path, what) for path, what in found if path.exists()]


def hardware_of(devices: Iterable[DeviceSample]) -> dict[str, Hardware]:
    """By kind. How devices hang together is told by their number; of cores it is the machine's."""
    count: dict[str, int] = defaultdict(int)
    for device in devices:
        if not device.kind.startswith("fake"):
            count[device.kind] += 1
    cores = f"{os.cpu_count()} cores"
    return {kind: Hardware(kind, cores if kind == "cpu" else f"{number} devices") for kind, number in count.items()}


class Predictor:
    """`of` is called with every sample. folder: of this node's own models, looked at again every LOOK_S, less often
    where they change all the time. window: what the step times of jobs have shown, to learn from; not while
    `calibrating`, which disturbs them by ever other means and on purpose."""

    def __init__(
        self, folder: Path | None, clock_s: Callable[[], float] = time.monotonic, members: Members | None = None,
        shipped: Path = SHIPPED, calibrating: Callable[[], bool] = never,
    ) -> None:  # fmt: skip
        self._folder, self._clock_s, self._shipped = folder, clock_s, shipped
        self._calibrating = calibrating
        self.window = Window()
        self._members, self._features, self._observed = members or Members(clock_s=clock_s), Features(), Observed()
        self._contests: dict[str, Contest] = defaultdict(Contest)
        self._choice = Choice({}, "")
        self._hardware: dict[str, Hardware] = {}
        self._stamp: object = None
        self._damping = Damping(LOOK_S, FREE_CHANGES)
        self._looked_s = -LOOK_S

    def of(self, telemetry: Telemetry, members: Iterable[tuple[Target, Report]]) -> Telemetry:
        """The same sample with the slowdown of each device of which one is known. members: those that run here."""
        now_s, running = self._clock_s(), list(members)
        self._choose(telemetry, now_s)
        pids = {target.device: report.pid for target, report in running}
        gangs = {target.device: (target.job, target.attempt) for target, _ in running}
        own = self._members.read(pids)
        values = self._features.of(telemetry, now_s, own, gangs)
        ratios = self._observed.take(running, {device.id: device.kind for device in telemetry.devices})
        found = []
        alone = {target.device for target, _ in running if len(target.ranks) == 1}
        for device in telemetry.devices:
            shown = ratios.get(gangs.get(device.id, NO_GANG))
            # a step time does not tell which of a gang's devices is slow: some sign of it has to
            ratio = shown if device.id in alone or is_disturbed(values[device.id]) else None
            slowdown = self._forest(device, values[device.id], device.id in gangs) or _as_shown(device.id, ratio)
            found.append(replace(device, slowdown=self._contested(device.id, slowdown, now_s)))
            every_s = ROW_S
            if ratio is None and shown is not None and shown.middle <= NOT_SLOWED:
                ratio, every_s = shown, CALM_ROW_S  # none of them is slow then, and that is to be learned as well
            if ratio is not None and device.kind in self._hardware and not self._calibrating():
                self._learn(device, values[device.id], ratio.middle, now_s, every_s)
        self._forget(device.id for device in telemetry.devices)
        return replace(
            telemetry, devices=tuple(found), predictor=self._choice.about, fallback=self._choice.fallback
        )

    def present(self) -> Model | None:
        """The model in use for what the window is of."""
        return self._choice.models.get(self.window.hardware.kind) if self.window.hardware is not None else None

    def _forest(self, device: DeviceSample, values: Values, is_held: bool) -> Slowdown | None:
        """None where no model fits, or it does not trust itself. Nor of a CPU slot that has no member: nothing pins the
        next one to its core, so that core's load says little."""
        model = self._choice.models.get(device.kind)
        if model is None or device.age_s is None or (device.kind == "cpu" and not is_held):
            return None
        found = model.predict(values, self._hardware[device.kind])
        if found.confidence < LEAST_CONFIDENCE:
            return None
        of_stage = of_step = [found.slowdown, found.low, found.high]
        if device.kind == "cpu":
            of_stage = [at_least_waited(one, values) for one in of_stage]
            of_step = [felt(one, values) for one in of_stage]
        ratio, low, high = of_step
        return Slowdown(
            device=device.id, ratio=ratio, low=low, high=high, confidence=found.confidence, source=Source.FOREST,
            stage_ratio=of_stage[0], stage_low=of_stage[1],
        )  # fmt: skip

    def _learn(self, device: DeviceSample, values: Values, ratio: float, now_s: float, every_s: float) -> None:
        of_stage = computed(ratio, values) if device.kind == "cpu" else ratio
        if of_stage is not None:
            self.window.take(device.id, self._hardware[device.kind], values, of_stage, now_s, every_s)

    def _contested(self, id: str, slowdown: Slowdown | None, now_s: float) -> Slowdown | None:
        contest = self._contests[id]
        return contest.take(slowdown, now_s) if slowdown is not None else contest.lose(now_s)

    def _choose(self, telemetry: Telemetry, now_s: float) -> None:
        """Anew where the devices or the model file have changed; ever more seldom where they do so all the time."""
        if now_s - self._looked_s < self._damping.wait_s(now_s):
            return
        self._looked_s = now_s
        hardware = hardware_of(telemetry.devices)
        stamp = hardware, [_stamp(self._folder / name) for name in (ONLINE, MODEL)] if self._folder else []
        if stamp != self._stamp:
            self._stamp, self._hardware = stamp, hardware
            self._choice = choose(self._folder, hardware, self._shipped)
            self._damping.turned(now_s)
            log.info("predictor", about=self._choice.about or "none", fallback=self._choice.fallback)

    def _forget(self, present: Iterable[str]) -> None:
        for id in self._contests.keys() - set(present):
            del self._contests[id]


def is_disturbed(values: Values) -> bool:
    """Whether some counter says that others use the device, or that it is held back."""
    signs = (
        ("own_wait_percent", NOTICEABLE_WAIT_PERCENT), ("foreign_busy_percent", NOTICEABLE_FOREIGN_PERCENT),
        ("foreign_processes", 1.0), ("throttle_reasons", 1.0), ("steal_percent", NOTICEABLE_WAIT_PERCENT),
    )  # fmt: skip
    return any((values[name] or 0.0) >= least for name, least in signs)


def _as_shown(device: str, ratio: Ratio | None) -> Slowdown | None:
    if ratio is None:
        return None
    return Slowdown(
        device=device, ratio=ratio.middle, low=ratio.low, high=ratio.high, confidence=OBSERVED_CONFIDENCE,
        source=Source.OBSERVED,
    )  # fmt: skip


def _stamp(path: Path) -> object:
    """What changes with a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid
