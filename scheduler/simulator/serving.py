"""One line of JSON in, one out: policies for other simulators and clusters."""

from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from policies.jct.capacity import Sizes, possible, sizes_of
from policies.jct.problem import Allocator, Grant, JobDemand, NodeRoom, Option, Options, Problem

VERSION = 1
EFFORT = 6_000


class Node(msgspec.Struct, frozen=True):
    id: str
    kind: str
    devices: int
    free: int


class Row(msgspec.Struct, frozen=True):
    kind: str
    per_node: Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(min_length=1)]
    plan: str
    step_time_s: Annotated[float, Meta(gt=0)]
    restart_s: Annotated[float, Meta(ge=0)] = 0.0


class Job(msgspec.Struct, frozen=True):
    """remaining_steps is null where nobody knows. asked: the device count for policies that do not choose one."""

    id: str
    menu: tuple[Row, ...]
    age_s: float = 0.0
    attained_gpu_s: float = 0.0
    remaining_steps: float | None = None
    restarts: int = 0
    since_change_s: float = 0.0
    weight: float = 1.0
    min_devices: int = 1
    max_devices: int = 1 << 30
    placement: dict[str, int] = {}
    plan: str | None = None
    frozen: bool = False
    asked: int | None = None


class Question(msgspec.Struct, frozen=True):
    v: int
    now_s: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]


class Refused(ValueError):
    """A line that cannot be answered, with the code to tell."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def answer(line: str | bytes, allocator: Allocator, effort: int = EFFORT) -> str:
    """The line to write for one that was read."""
    try:
        problem = read(line)
        grants = allocator.allocate(problem, effort)
        reply: dict[str, Any] = {"v": VERSION, "decisions": [_decision(grant) for grant in grants]}
    except Refused as error:
        reply = {"v": VERSION, "error": {"code": error.code, "message": str(error)}}
    except Exception as error:  # a caller's odd question must not end the service for the next one
        reply = {"v": VERSION, "error": {"code": "policy_failed", "message": f"{type(error).__name__}: {error}"}}
    return msgspec.json.encode(reply).decode()


def read(line: str | bytes) -> Problem:
    """Raises Refused."""
    try:
        asked = msgspec.json.decode(line, type=Question)
    except msgspec.ValidationError as error:
        raise Refused("invalid", str(error)) from error
    except msgspec.DecodeError as error:
        raise Refused("not_json", str(error)) from error
    if asked.v != VERSION:
        raise Refused("version", f"v is {asked.v}; this program speaks {VERSION}")
    _check(asked)
    nodes = tuple(NodeRoom(node.id, node.kind, node.devices, node.free) for node in asked.nodes)
    sizes = sizes_of((node.kind, node.devices) for node in asked.nodes)
    return Problem(asked.now_s, nodes, tuple(_demand(job, sizes) for job in asked.jobs))


def _check(asked: Question) -> None:
    nodes = {node.id: node for node in asked.nodes}
    if len(nodes) != len(asked.nodes):
        raise Refused("invalid", "two nodes have the same id")
    if len({job.id for job in asked.jobs}) != len(asked.jobs):
        raise Refused("invalid", "two jobs have the same id")
    held = {node.id: node.free for node in asked.nodes}
    for job in asked.jobs:
        for node, count in job.placement.items():
            if node not in nodes or count < 1:
                raise Refused("invalid", f"job {job.id}: placement {job.placement} names no devices of a known node")
            held[node] += count
        if job.weight <= 0 or (job.remaining_steps is not None and job.remaining_steps < 0):
            raise Refused("invalid", f"job {job.id}: weight must be positive, and remaining_steps not negative")
    for room in asked.nodes:
        if room.free < 0 or held[room.id] > room.devices:
            raise Refused("invalid", f"node {room.id}: free and placed devices are more than its {room.devices}")


def _demand(job: Job, sizes: Sizes) -> JobDemand:
    menu = possible(_menu(job.menu), sizes, job.plan, sum(job.placement.values()))
    return JobDemand(
        id=job.id, age_s=job.age_s, menu=menu, remaining_steps=job.remaining_steps,
        attained_gpu_s=job.attained_gpu_s, restarts=job.restarts, since_change_s=job.since_change_s,
        weight=job.weight, min_devices=job.min_devices, max_devices=job.max_devices, placement=job.placement,
        plan=job.plan, frozen=job.frozen, asked=job.asked,
    )  # fmt: skip


@lru_cache(maxsize=65536)
def _menu(rows: tuple[Row, ...]) -> Options:
    return Options(
        Option(row.kind, sum(row.per_node), row.step_time_s, row.restart_s, row.plan, row.per_node) for row in rows
    )


def _decision(grant: Grant) -> dict[str, Any]:
    return {"id": grant.id, "placement": dict(grant.placement), "plan": grant.plan}
