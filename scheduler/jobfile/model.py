"""The fields of a job file, as pydantic checks them. `NOT_YET` names those that are known but not honoured yet."""

import re
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from policies.schedules.catalogue import FAMILIES
from scheduler.core.records import DEFAULT_QUEUE
from scheduler.jobfile.fields import (
    MAX_GRACE_S,
    AbsolutePath,
    Argument,
    Bytes,
    Count,
    Devices,
    ExitCode,
    Name,
    Place,
    PriorityOrClass,
    Script,
    Seconds,
    Text,
    one_or_list,
)
from scheduler.jobfile.ordering import After, Array, Moment, TimeLimit

HONOURED_SCHEDULES = tuple(name for name, family in FAMILIES.items() if not family.asynchronous and not family.sliced)
OnExit = dict[ExitCode, Literal["requeue", "fail", "done"]]
Signals = Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"]
MAX_LABELS = 64
MAX_SECRETS = 64
MIN_LOG_BYTES = 1 << 20


class Part(BaseModel):
    """Strict types, no unknown keys. NOT_YET: keys of the published list that are refused for now."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    NOT_YET: ClassVar[frozenset[str]] = frozenset()


def _auto_is_none(value: Any) -> Any:
    return None if value == "auto" else value


def _schedule(name: str | None) -> str | None:
    if name is None or name in HONOURED_SCHEDULES:
        return name
    if name in FAMILIES:
        raise ValueError(f"the schedule {name} is not supported yet; use one of {', '.join(HONOURED_SCHEDULES)}")
    raise ValueError(f"there is no such schedule; use auto or one of {', '.join(HONOURED_SCHEDULES)}")


def whole_is_range(value: Any) -> Any:
    """`gpus: 4` means exactly four."""
    return {"min": value, "max": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Gpus(Part):
    """How many devices: exactly n, or min..max, or the allowed counts; and of which kinds."""

    NOT_YET: ClassVar[frozenset[str]] = frozenset({"preferred", "multiple_of", "min_memory"})
    min: Devices | None = None
    max: Devices | None = None
    allowed: Annotated[list[Devices], Field(min_length=1, max_length=1_024)] | None = None
    type: Annotated[list[Name], Field(max_length=64), BeforeValidator(one_or_list)] = []

    @property
    def range(self) -> tuple[int, int]:
        """(min, max), with what was left out filled in: by the allowed counts, else min is 1 and max is min."""
        counts = sorted(self.allowed or ())
        low = self.min or (counts[0] if counts else 1)
        high = self.max or (counts[-1] if counts else low)
        return low, high

    @property
    def counts(self) -> dict[str, Any]:
        """By the names of JobSpec."""
        low, high = self.range
        allowed = tuple(sorted(set(self.allowed or ())))
        return {"min_devices": low, "max_devices": high, "allowed_devices": allowed}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        low, high = self.range
        if low > high:
            raise ValueError(f"min {low} is more than max {high}")
        outside = [count for count in self.allowed or () if not low <= count <= high]
        if outside:
            raise ValueError(f"allowed names {outside[0]}, which is outside {low} to {high}")
        return self


def _without_kinds(gpus: Gpus | None) -> Gpus | None:
    if gpus is not None and gpus.type:
        raise ValueError("the kinds of a job's GPUs cannot be changed")
    return gpus


NewSize = Annotated[Gpus | None, AfterValidator(_without_kinds), BeforeValidator(whole_is_range)]
"""Another number of devices for a job that is there."""


class Parallel(Part):
    """The shape inside the job; what is `auto` the scheduler chooses. data: replicas of the whole pipeline.

    batch_rampup: [until step, batch] pairs.
    """

    NOT_YET: ClassVar[frozenset[str]] = frozenset({"tensor", "layers", "staleness"})
    pipeline_stages: Annotated[
        list[Devices] | None, BeforeValidator(lambda value: None if value == "auto" else one_or_list(value))
    ] = None
    micro_batches: Annotated[Count | None, BeforeValidator(_auto_is_none)] = None
    micro_batch_size: Annotated[Count | None, BeforeValidator(_auto_is_none)] = None
    global_batch: Count | None = None
    batch_rampup: list[Annotated[list[Count], Field(min_length=2, max_length=2)]] = []
    data: Devices = 1
    schedule: Annotated[str | None, AfterValidator(_schedule), BeforeValidator(_auto_is_none)] = None

    @model_validator(mode="after")
    def _batches_fit(self) -> Self:
        for (until, batch), (later, larger) in pairwise(self.batch_rampup):
            if until >= later or batch >= larger:
                raise ValueError(f"batch_rampup must grow, but {[later, larger]} follows {[until, batch]}")
        count, size, whole = self.micro_batches, self.micro_batch_size, self.global_batch
        if whole is not None and self.batch_rampup and self.batch_rampup[-1][1] > whole:
            raise ValueError(f"batch_rampup ends at {self.batch_rampup[-1][1]}, above global_batch {whole}")
        if whole is None:
            return self
        if count and size and count * size != whole:
            raise ValueError(
                f"micro_batches {count} × micro_batch_size {size} is {count * size}, not global_batch {whole}"
            )
        for name, part in (("micro_batches", count), ("micro_batch_size", size)):
            if part and whole % part:
                raise ValueError(f"global_batch {whole} is no multiple of {name} {part}")
        return self


def _steps(value: Any) -> Any:
    """`300 steps` -> 300. Work in samples, epochs or tokens is refused by name."""
    found = re.fullmatch(r"([0-9]{1,12})\s*(\w+)", value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be a number and a unit, such as `300 steps`")
    count, unit = found.groups()
    if unit in {"samples", "epochs", "tokens"}:
        raise ValueError(f"work in {unit} is not supported yet; give it in steps")
    if unit not in {"steps", "step"}:
        raise ValueError(f"{unit!r} is no unit of work; write `{count} steps`")
    return int(count)


class Work(Part):
    NOT_YET: ClassVar[frozenset[str]] = frozenset({"progress"})
    total: Annotated[Count, BeforeValidator(_steps)]


class Checkpoint(Part):
    NOT_YET: ClassVar[frozenset[str]] = frozenset({"max_time", "reshapeable", "min_free_disk"})
    dir: Place
    every: Seconds = 600
    keep: Annotated[int, Field(ge=1, le=1_000)] = 2
    resume: Literal["latest", "none"] = "latest"


class Retries(Part):
    NOT_YET: ClassVar[frozenset[str]] = frozenset({"on", "not_on_exit"})
    max: Annotated[int, Field(ge=0, le=1_000)] = 0
    backoff: Seconds = 10


class Adapt(Part):
    """When the running job may change its own cut. threshold, watermark: shares; the rest are durations."""

    threshold: Annotated[float, Field(ge=0.05, le=100)] = 0.2
    held: Annotated[Seconds, Field(ge=1)] = 30
    cooldown: Annotated[Seconds, Field(ge=1)] = 300
    horizon: Annotated[Seconds, Field(ge=1)] = 1_800
    watermark: Annotated[float, Field(ge=0.5, le=1)] = 0.92


def _adapt(value: Any) -> Any:
    """`adapt: true` takes the defaults; `adapt: false` is none at all."""
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


class Logs(Part):
    """max: bytes of log that a member keeps; of what is older, only the length is remembered."""

    NOT_YET: ClassVar[frozenset[str]] = frozenset({"path", "append", "per_rank"})
    max: Annotated[Bytes, Field(ge=MIN_LOG_BYTES)] | None = None


def signal_name(value: Any) -> Any:
    return value if not isinstance(value, str) or value.startswith("SIG") else f"SIG{value}"


def _identifiers(value: str) -> str:
    module, _, function = value.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise ValueError("must be written package.module:function")
    return value


def _whole_as_text(value: Any) -> Any:
    """`OMP: 1` is plainly "1"; of true or 1.0 the text is not plain, so those want quotes."""
    if not isinstance(value, dict):
        return value
    return {key: str(item) if type(item) is int else item for key, item in value.items()}


class JobFile(Part):
    """One job. Order matters where a check of one field looks at an earlier one."""

    NOT_YET: ClassVar[frozenset[str]] = frozenset(
        {
            "setup", "pre", "post", "nodes", "gpus_per_node", "cpus", "memory", "shm", "disk",
            "signal_before_end", "rendezvous", "notify", "image", "sensitive", "extends", "min_memory",
        }
    )  # fmt: skip
    api_version: Annotated[Literal["v1"], Field(alias="apiVersion")] = "v1"
    name: Name
    team: Name = "default"
    queue: Name = DEFAULT_QUEUE
    priority: PriorityOrClass = 50
    labels: Annotated[dict[Name, Text], Field(max_length=MAX_LABELS), BeforeValidator(_whole_as_text)] = {}
    note: Annotated[Text, Field(max_length=2_000)] = ""
    entrypoint: Annotated[str, Field(max_length=500), AfterValidator(_identifiers)] | None = None
    command: Annotated[list[Argument], Field(min_length=1, max_length=10_000)] | None = None
    script: Script | None = None
    processes: Literal["per_gpu", "per_node"] = "per_gpu"
    arguments: dict[str, Any] = {}
    workdir: AbsolutePath
    env: Annotated[dict[str, str], BeforeValidator(_whole_as_text)] = {}
    env_from: Annotated[list[Text], Field(max_length=MAX_SECRETS)] = []
    gpus: Annotated[Gpus, BeforeValidator(whole_is_range)] = Gpus()
    parallel: Parallel = Parallel()
    numerics: Literal["exact", "statistical"] = "exact"
    work: Work | None = None
    checkpoint: Checkpoint | None = None
    preemptible: bool = True
    signal: Annotated[Signals, BeforeValidator(signal_name)] = "SIGTERM"
    grace: Annotated[Seconds, Field(ge=0, le=MAX_GRACE_S)] = 120
    min_runtime: Seconds = 0
    max_preemptions: Annotated[int, Field(ge=0, le=1_000)] | None = None
    time_limit: TimeLimit | None = None
    begin: Moment | None = None
    deadline: Moment | None = None
    after: After = ()
    array: Array = ((), None)
    max_parallel: Count | None = None
    progress_timeout: Annotated[Seconds, Field(ge=1)] | None = None
    retries: Annotated[Retries, BeforeValidator(lambda value: {"max": value} if type(value) is int else value)] = (
        Retries()
    )
    on_exit: OnExit = {}
    logs: Logs = Logs()
    adapt: Annotated[Adapt | None, BeforeValidator(_adapt)] = None
    profile: Annotated[Text, Field(min_length=1, max_length=4_096)] | None = None

    @field_validator("parallel", mode="after")
    @classmethod
    def _fits_devices(cls, parallel: Parallel, info: ValidationInfo) -> Parallel:
        gpus = info.data.get("gpus")
        if not isinstance(gpus, Gpus):
            return parallel
        most = gpus.range[1]
        for stages in parallel.pipeline_stages or [1]:
            if stages * parallel.data > most:
                wide = f" × {parallel.data} replicas" if parallel.data > 1 else ""
                raise ValueError(
                    f"{stages} pipeline stages{wide} need {stages * parallel.data} GPUs; gpus allows at most {most}"
                )
        return parallel
