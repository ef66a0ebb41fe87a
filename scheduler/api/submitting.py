"""What a submission must pass before the core sees it: team, queue, priority class, jobs it waits for, secrets."""

from msgspec.structs import replace

from scheduler.api.access import Caller
from scheduler.core.entities import Job, JobState
from scheduler.core.errors import Code, JctError
from scheduler.core.records import PriorityClass
from scheduler.core.requests import task_of
from scheduler.jobfile.fields import MAX_PRIORITY
from scheduler.protocol.spec import JobSpec
from scheduler.store.tokens import Role

MAX_SECRET_BYTES = 32_768


async def admit(caller: Caller, spec: JobSpec) -> JobSpec:
    """The spec with its priority as a number. Raises JctError where the caller may not submit it."""
    await caller.at_least(Role.USER, "submit", f"team {spec.team}")
    if caller.team_seen not in (None, spec.team):
        await caller.record("submit", f"team {spec.team}", allowed=False)
        raise JctError(Code.NOT_ALLOWED, f"you may submit for team {caller.team_seen!r} only", field="team")
    await check_queue(caller, spec.queue, spec.team)
    return replace(spec, priority=await allowed_priority(caller, spec.priority_class or spec.priority, spec.team))


async def check_queue(caller: Caller, name: str, team: str) -> None:
    """Raises JctError where there is no such queue, or it is for other teams."""
    queue = caller.cluster.state.queues.get(name)
    if queue is None:
        known = ", ".join(sorted(caller.cluster.state.queues))
        raise JctError(Code.BAD_SPEC, f"there is no queue {name!r}", field="queue", hint=f"there are: {known}")
    if queue.teams and team not in queue.teams:
        await caller.record("submit", f"queue {name}", allowed=False)
        raise JctError(Code.NOT_ALLOWED, f"queue {name!r} is not for team {team!r}", field="queue")


async def allowed_priority(caller: Caller, wanted: int | str, team: str) -> int:
    """A class's value, or the number itself. Who may not use a class may not ask for a number as high as its value."""
    classes = caller.cluster.state.classes
    if isinstance(wanted, str):
        found = classes.get(wanted)
        if found is None:
            known = ", ".join(sorted(classes)) or "there are none"
            message = f"there is no priority class {wanted!r}"
            raise JctError(Code.BAD_SPEC, message, field="priority", hint=f"classes: {known}")
        if not _may_use(caller, found, team):
            await caller.deny("use class", f"class {wanted}", f"priority class {wanted!r} is not for you")
        return found.value
    ceiling = min((item.value for item in classes.values() if not _may_use(caller, item, team)), default=None)
    if ceiling is not None and wanted >= ceiling:
        what = f"priority {wanted} is as high as a class that is not for you; the highest for you is {ceiling - 1}"
        await caller.deny("set priority", f"priority {wanted}", what)
    return min(wanted, MAX_PRIORITY)


def _may_use(caller: Caller, item: PriorityClass, team: str) -> bool:
    free = not item.teams and not item.users
    return free or team in item.teams or caller.user in item.users or caller.token.role.rank >= Role.OPERATOR.rank


async def past_parents(caller: Caller, spec: JobSpec) -> tuple[tuple[int, str], ...]:
    """Results of the jobs it waits for that have left memory. Raises NOT_FOUND for those the caller may not see."""
    past = []
    for parent, _ in spec.after:
        story = await caller.story(parent, "wait for")
        if story.job.state is JobState.DONE:
            past.append((parent, str(story.job.result)))
    return tuple(past)


def check_secrets(spec: JobSpec, secrets: dict[str, str]) -> None:
    """Raises JctError BAD_SPEC, without any value: exactly the names of env_from must be given."""
    missing = [name for name in spec.env_from if name not in secrets]
    if missing:
        hint = "set it where `jct submit` runs"
        raise JctError(Code.BAD_SPEC, f"env_from: no value was given for {missing[0]}", field="env_from", hint=hint)
    if unasked := sorted(secrets.keys() - set(spec.env_from)):
        raise JctError(Code.BAD_SPEC, f"secrets: {unasked[0][:100]!r} is not in env_from", field="secrets")
    for name, value in secrets.items():
        if "\0" in value or len(value.encode("utf-8", "surrogatepass")) > MAX_SECRET_BYTES:
            what = f"secrets: {name} holds NUL or more than {MAX_SECRET_BYTES} bytes"
            raise JctError(Code.BAD_SPEC, what, field="secrets")


def same(job: Job, spec: JobSpec) -> bool:
    """Whether a job is what this submission makes, whatever was changed since."""
    asked = spec
    if spec.array:
        asked = task_of(Job(id=job.id, spec=spec, user="", priority=0, submitted_us=0), 0, spec.array[0]).spec
    return replace(job.spec, team=asked.team, queue=asked.queue, time_limit_s=asked.time_limit_s) == asked
