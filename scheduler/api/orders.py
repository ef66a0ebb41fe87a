"""Orders to jobs over REST: requeue, signal, checkpoint now, preempt, go to the top of the queue."""

from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BeforeValidator

from scheduler.api.access import Caller, CallerDep
from scheduler.api.acts import CanBeTried
from scheduler.api.answers import Body, JobId, answer
from scheduler.api.foresight_shapes import WhatIf
from scheduler.api.shapes import JobView
from scheduler.api.views import Moment, job_view
from scheduler.core.events import Order, Verb
from scheduler.jobfile.model import Signals, signal_name
from scheduler.store.tokens import Role

router = APIRouter(prefix="/jobs", tags=["jobs"])


class Signal(Body):
    signal: Annotated[Signals, BeforeValidator(signal_name)]


@router.post("/{id}/requeue", response_model=JobView | WhatIf)
async def requeue(id: JobId, caller: CallerDep, _: CanBeTried) -> Response:
    """Save, stop and queue again; it goes on from its newest checkpoint."""
    return await _order(caller, id, Verb.REQUEUE)


@router.post("/{id}/signal", response_model=JobView | WhatIf)
async def signal(id: JobId, signal: Signal, caller: CallerDep, _: CanBeTried) -> Response:
    """To every process of the job that jctd started."""
    return await _order(caller, id, Verb.SIGNAL, signal.signal)


@router.post("/{id}/checkpoint", response_model=JobView | WhatIf)
async def checkpoint(id: JobId, caller: CallerDep, _: CanBeTried) -> Response:
    """Save at the next step; the job's events tell when it is done."""
    return await _order(caller, id, Verb.CHECKPOINT)


@router.post("/{id}/preempt", response_model=JobView | WhatIf)
async def preempt(id: JobId, caller: CallerDep, _: CanBeTried) -> Response:
    """As for a more important job: saved, stopped, queued again, and counted as a preemption."""
    await caller.at_least(Role.OPERATOR, "preempt", f"job {id}")
    return await _order(caller, id, Verb.PREEMPT)


@router.post("/{id}/top", response_model=JobView | WhatIf)
async def top(id: JobId, caller: CallerDep, _: CanBeTried) -> Response:
    """Before all that wait in its queue."""
    await caller.at_least(Role.OPERATOR, "top", f"job {id}")
    return await _order(caller, id, Verb.TOP)


async def _order(caller: Caller, id: int, verb: Verb, signal: str = "") -> Response:
    before = await caller.to_act_on(id, verb)
    await caller.cluster.ask(
        lambda number: Order(request=number, job=id, actor=caller.user, verb=verb, signal=signal)
    )
    story = await caller.story(id, "show")
    old, new = {"priority": before.job.priority}, {"priority": story.job.priority}
    await caller.record(verb, f"job {id}", old=old, new={**new, **({"signal": signal} if signal else {})})
    return answer(job_view(story, Moment.at(caller.cluster)))
