"""Rows of every kind, for tests of databases."""

from policies.ir.plan import ParallelPlan, StagePlan
from policies.model.profile import LayerProfile, ModelProfile
from scheduler.core.entities import (
    Attempt,
    AttemptKind,
    AttemptState,
    Device,
    Event,
    Generation,
    GenerationState,
    Job,
    JobState,
    Lease,
    LeaseState,
    Member,
    Node,
    ProfileRecord,
    Wanted,
)
from scheduler.protocol.messages import Cause
from scheduler.protocol.spec import CheckpointSpec, JobSpec
from scheduler.store.repository import Repository

SPEC = JobSpec(
    name="дата 🚀", entrypoint="pkg.mod:build", workdir="/w", team="nlp", arguments={"x": [1, None, {"y": 0.5}]},
    env={"A": "`id`\n"}, allowed_devices=(1, 2), checkpoint=CheckpointSpec(dir="/c"),
)  # fmt: skip
PLAN = ParallelPlan(
    stages=(StagePlan(0, 3, (0,), (4,)), StagePlan(3, 5, (1,), (4,))), microbatches=4, microbatch_size=2
)
JOB = Job(
    id=7, spec=SPEC, user="eva", priority=90, submitted_us=2**52 + 1, state=JobState.ACTIVE, wanted=Wanted.HOLD,
    reason_code="Priority", reason="behind 3 jobs", spec_key="k", last_attempt=1, avoid=("n1",), total_steps=300,
    first_validation_loss=5.25,
)  # fmt: skip
ATTEMPT = Attempt(
    job=7, number=1, kind=AttemptKind.TRAIN, created_us=1, state=AttemptState.RUNNING, nonce="abc", stop_save=True,
)  # fmt: skip
GENERATION = Generation(job=7, attempt=1, number=1, plan=PLAN, ranks=(0, 1), state=GenerationState.ACTIVE)
MEMBERS = [Member(job=7, attempt=1, number=n, node="n0", device=f"d{n}", cause=Cause.SIGNAL) for n in range(2)]
LEASES = [
    Lease(id=3 + n, device=f"d{n}", job=7, attempt=1, member=n, state=LeaseState.HELD, created_us=5) for n in range(2)
]
NODE = Node(id="n0", public_key="z", machine="m", address="127.0.0.1", boot="b", session="s", first_seen_us=9)
DEVICES = [Device(id=f"d{n}", node="n0", kind="cpu", index=n, memory_bytes=2**40) for n in range(2)]
LAYER = LayerProfile("l", 0.1, 0.2, 0.3, 1, 2, 3, atomic_with_next=True)
PROFILE = ProfileRecord(
    spec_key="k", device_kind="cpu", fingerprint="f", profiles=(ModelProfile("m", 2, "cpu", (LAYER,)),),
    total_steps=None, global_batch=8,
)  # fmt: skip
EVENTS = [
    Event(seq=n, time_us=n, kind="job.submitted", actor="eva", message="submitted", job=7, data={"n": [n, None]})
    for n in range(1, 4)
]
ALL = [JOB, ATTEMPT, GENERATION, *MEMBERS, *LEASES, NODE, *DEVICES, PROFILE]


def reopened(store: Repository, url: str) -> Repository:
    store.close()
    return Repository.open(url)
