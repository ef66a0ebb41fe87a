"""What a user asked for, as it is stored and as it travels to the worker."""

from typing import Any

import msgspec

from policies.model.profile import ModelProfile


class CheckpointSpec(msgspec.Struct, frozen=True, kw_only=True):
    """dir: absolute path. every_s: seconds between periodic saves, 0 for none. keep: checkpoints kept."""

    dir: str
    every_s: float = 600.0
    keep: int = 2
    resume: str = "latest"


class AdaptSpec(msgspec.Struct, frozen=True, kw_only=True):
    """When a running job may change its own cut, and what it asks of a change.

    threshold: a device, a link or the step is slower by more than this share; held_s: for so long. cooldown_s: at least
    so long between two changes. horizon_s: the longest that a change may take to pay for itself. ack_s: how long all
    ranks together may take to prepare. watermark: share of a device's memory above which it is relieved at once.
    """

    threshold: float = 0.2
    held_s: float = 30.0
    cooldown_s: float = 300.0
    horizon_s: float = 1800.0
    ack_s: float = 30.0
    watermark: float = 0.92


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A validated job file, defaults filled in. `scheduler.jobfile` makes it; nothing else does.

    entrypoint: `package.module:function` returning a PipelineJob; or command: an argument list. workdir: absolute.
    total_steps, global_batch and microbatch_size are None where the user's code decides. env and arguments are kept
    literally. batch_rampup: (until step, batch) pairs; empty where the user's code decides. env_from: names of secrets.
    preferred_devices: the count for policies that do not choose one themselves; None for the least allowed.
    priority_class: the name that priority came from. time_limit_s: with devices, over all attempts. begin_us: not
    before this moment. after: jobs to wait for, each with `ok` (must complete) or `any` (must end). array: indices of
    its tasks, in a submission only. max_parallel: tasks of the array that may run at once. progress_timeout_s: a
    command whose progress file is silent for longer has stalled. script: a program as text, whose first line names its
    interpreter; given instead of command. processes: of a command, one `per_gpu` or `per_node`. on_exit: what a
    command's exit code means, `requeue`, `fail` (for good) or `done`. deadline_us: what has not ended by then is ended.
    log_bytes: how much of a member's log is kept, None for the node's own cap. max_preemptions: after so many the job
    keeps its minimum. adapt: the job changes its own cut when a device or link slows down; None: it keeps the cut it
    was given.
    """

    name: str
    workdir: str
    entrypoint: str = ""
    arguments: dict[str, Any] = {}
    env: dict[str, str] = {}
    team: str = "default"
    queue: str = "default"
    priority: int = 50
    priority_class: str = ""
    labels: dict[str, str] = {}
    note: str = ""
    min_devices: int = 1
    max_devices: int = 1
    allowed_devices: tuple[int, ...] = ()
    preferred_devices: int | None = None
    device_kinds: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    microbatches: int | None = None
    microbatch_size: int | None = None
    global_batch: int | None = None
    batch_rampup: tuple[tuple[int, int], ...] = ()
    replicas: int = 1
    schedule: str | None = None
    total_steps: int | None = None
    checkpoint: CheckpointSpec | None = None
    numerics: str = "exact"
    preemptible: bool = True
    signal: str = "SIGTERM"
    grace_s: float = 120.0
    min_runtime_s: float = 0.0
    retries_max: int = 0
    retries_backoff_s: float = 10.0
    profile: str | None = None
    command: tuple[str, ...] = ()
    script: str = ""
    processes: str = "per_gpu"
    on_exit: dict[str, str] = {}
    progress_timeout_s: float | None = None
    env_from: tuple[str, ...] = ()
    time_limit_s: float | None = None
    begin_us: int | None = None
    deadline_us: int | None = None
    after: tuple[tuple[int, str], ...] = ()
    array: tuple[int, ...] = ()
    max_parallel: int | None = None
    log_bytes: int | None = None
    max_preemptions: int | None = None
    adapt: AdaptSpec | None = None

    @property
    def what_runs(self) -> str:
        """Equal for jobs that run the same program."""
        return self.entrypoint or self.script or "\0".join(self.command)

    @property
    def is_command(self) -> bool:
        """A program of its own, and no pipeline."""
        return bool(self.command or self.script)

    def allows(self, devices: int) -> bool:
        """Whether it may have so many devices; a probe takes one in any case."""
        allowed = not self.allowed_devices or devices in self.allowed_devices
        return allowed and self.min_devices <= devices <= self.max_devices


class AttemptSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs to know of its attempt besides the Target's plan. Written to `spec.json` on the node.

    kind: train, probe or command. user: whose job it is. places: node and device of each member. nonce: random, in
    the environment of every process of the attempt, so that strays are found. saved_step: of the newest checkpoint
    the daemon knows of; the checkpoint store itself has the last word. hold_at: steps before which the pilot waits
    for the next generation to be proposed; for scripted changes only. measure_after: steps of warm-up before
    convergence is measured, which doubles the time of a step; None to leave it. profile: the layers at the plan's
    micro-batch size, for a job that adapts.
    """

    kind: str
    job: JobSpec
    user: str = ""
    nonce: str
    saved_step: int | None = None
    spec_key: str = ""
    fingerprint: str | None = None
    start_timeout_s: float = 300.0
    probe_timeout_s: float = 60.0
    hold_at: tuple[int, ...] = ()
    measure_after: int | None = None
    places: tuple[tuple[str, str], ...] = ()
    profile: ModelProfile | None = None
