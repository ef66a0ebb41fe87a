"""What if, over REST: other priorities, another policy, more nodes, drained ones, other quotas, one more job."""

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import Response
from msgspec.structs import replace
from pydantic import Field

from policies import registry
from scheduler.api.access import Caller, CallerDep
from scheduler.api.answers import MAX_ID, Body, Plain, answer
from scheduler.api.foresight_shapes import PlannedView, WhatIf
from scheduler.api.ranges import never_starts, parts_of, range_view, why_unknown
from scheduler.api.rehearsal import whatif_view
from scheduler.api.submitting import admit, allowed_priority, past_parents
from scheduler.core.entities import JobState
from scheduler.core.errors import Code, JctError
from scheduler.core.events import Change, CoreEvent, Submit, Write
from scheduler.core.records import Drain, Team
from scheduler.core.state import State
from scheduler.forecast.outlook import CONFIDENCE
from scheduler.forecast.whatif import more_nodes
from scheduler.jobfile import parse_document
from scheduler.jobfile.fields import Name, PriorityOrClass
from scheduler.jobfile.key import spec_key
from scheduler.jobfile.model import NewSize
from scheduler.protocol.spec import JobSpec
from scheduler.store.tokens import Role

router = APIRouter(tags=["foresight"])

MOST_NODES, MOST_DEVICES = 1_000, 64


class NewValues(Body):
    """What is named would be another."""

    job: Annotated[int, Field(ge=1, le=MAX_ID)]
    priority: PriorityOrClass | None = None
    gpus: NewSize = None


class NewNodes(Body):
    """kind: of their devices; may be left out where the cluster has one kind."""

    count: Annotated[int, Field(ge=1, le=MOST_NODES)]
    devices: Annotated[int, Field(ge=1, le=MOST_DEVICES)]
    kind: Name | None = None


class Hypothesis(Body):
    """All of it at once. set: priorities and GPUs of jobs. quota: the most devices of a team; null for no limit."""

    set: list[NewValues] = Field(default_factory=list, max_length=1_000)
    policy: Name | None = None
    add_nodes: list[NewNodes] = Field(default_factory=list, max_length=100)
    drain: list[Name] = Field(default_factory=list, max_length=1_000)
    quota: dict[Name, Annotated[int, Field(ge=0, le=10**6)] | None] = Field(default_factory=dict, max_length=1_000)


@router.post("/whatif", response_model=WhatIf)
async def whatif(hypothesis: Hypothesis, caller: CallerDep, _: Plain) -> Response:
    """Both worlds are run ahead, as it is and as it would be, and compared; nothing is changed.

    Users may ask for the priorities and sizes of jobs that they may change; operators for everything.
    """
    events = await _events(hypothesis, caller)
    if not events and hypothesis.policy is None:
        hint = "set, policy, add_nodes, drain or quota"
        raise JctError(Code.BAD_SPEC, "name at least one thing that would be otherwise", hint=hint)
    if hypothesis.policy is not None:
        _known_policy(hypothesis.policy)
    found = await caller.cluster.forecasts.compare(events, hypothesis.policy)
    return answer(whatif_view(found, caller.team_seen))


async def _events(asked: Hypothesis, caller: Caller) -> list[CoreEvent]:
    """What the core would be told. Raises JctError."""
    state, now_us = caller.cluster.state, caller.cluster.now_us()
    events: list[CoreEvent] = []
    for item in asked.set:
        story = await caller.to_act_on(item.job, "whatif")
        if story.job.state is JobState.DONE:
            told = f"job {item.job} has already ended ({story.job.result}), so nothing changes for it"
            raise JctError(Code.CONFLICT, told, field="set")
        changes: dict[str, Any] = item.gpus.counts if item.gpus is not None else {}
        if item.priority is not None:
            changes["priority"] = await allowed_priority(caller, item.priority, story.job.spec.team)
        if not changes:
            raise JctError(Code.BAD_SPEC, f"name a priority or gpus for job {item.job}", field="set")
        events.append(Change(request=0, job=item.job, actor=caller.user, changes=changes))
    if asked.policy or asked.add_nodes or asked.drain or asked.quota:
        await caller.at_least(Role.OPERATOR, "whatif", "cluster")
    for node in asked.drain:
        if node not in state.nodes:
            raise JctError(Code.NOT_FOUND, f"there is no node {node!r}", field="drain", hint="list them: jct nodes")
        drain = Drain(name=f"node/{node}", reason="what if", by=caller.user, since_us=now_us)
        events.append(Write(request=0, actor=caller.user, record=drain))
    for name, most in asked.quota.items():
        old = state.teams.get(name) or Team(name=name)
        fields = {key: getattr(old, key) for key in old.__slots__} | {"max_devices": most}
        events.append(Write(request=0, actor=caller.user, record=Team(**fields)))
    groups = [(nodes.count, nodes.devices, nodes.kind or _only_kind(state)) for nodes in asked.add_nodes]
    return events + more_nodes(state, groups)


def _only_kind(state: State) -> str:
    kinds = sorted({device.kind for device in state.devices.values()})
    if len(kinds) != 1:
        there = ", ".join(kinds) or "none"
        raise JctError(Code.BAD_SPEC, f"name the kind of the new devices; there are {there}", field="add_nodes")
    return kinds[0]


def _known_policy(name: str) -> None:
    if name not in registry.names():
        raise JctError(Code.BAD_SPEC, f"there is no policy {name!r}; there are {', '.join(registry.names())}",
                       field="policy")  # fmt: skip


class Candidate(Body):
    """job: the job file as JSON, its workdir absolute. spec_key: what the CLI computed of the code it saw."""

    job: dict[str, Any]
    spec_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


@router.post("/plan", response_model=PlannedView)
async def plan(candidate: Candidate, caller: CallerDep, _: Plain) -> Response:
    """When the job would start and end if it were submitted now, and on what; nothing is submitted."""
    spec = await admit(caller, parse_document({"team": caller.token.team, **candidate.job}))
    key = candidate.spec_key or spec_key(spec.what_runs, spec.arguments, spec.global_batch, f"below {spec.workdir}")
    past = await past_parents(caller, spec)
    event = Submit(request=0, spec=_apart(spec), spec_key=key, user=caller.user, past=past)
    seen = await caller.cluster.forecasts.submitted(event)
    never = _never(caller.cluster.state, spec)
    return answer(
        PlannedView(
            start=range_view(seen.start), end=range_view(seen.end), unknown=never or why_unknown(seen),
            nodes=seen.nodes, plan=seen.plan, parts=parts_of(seen), preemptions=seen.preemptions, confidence=CONFIDENCE,
            futures=seen.futures,
        )
    )  # fmt: skip


def _apart(spec: JobSpec) -> JobSpec:
    """With checkpoints in no directory: a job that is only asked about overwrites nobody's."""
    checkpoint = spec.checkpoint
    return replace(spec, checkpoint=replace(checkpoint, dir="")) if checkpoint is not None else spec


def _never(state: State, spec: JobSpec) -> str | None:
    """Of a job that is larger than the cluster."""
    kinds = Counter(d.kind for d in state.devices.values() if not spec.device_kinds or d.kind in spec.device_kinds)
    most = max(kinds.values(), default=0)
    if spec.min_devices <= most:
        return None
    wanted = f" ({', '.join(spec.device_kinds)})" if spec.device_kinds else ""
    return never_starts(f"It needs at least {spec.min_devices} devices of one kind{wanted}; the cluster has {most}.")
