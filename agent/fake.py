"""Fake gangs inside the agent, behind the same interface as real shims. Their state lies in the attempt folders."""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.folders import Attempt, Folders, write_durably
from agent.gangs import OnReport, refusal
from policies.model.families import FAMILIES, family
from policies.model.profile import ModelProfile
from policies.model.profile_document import profile_document
from scheduler.protocol.fake import START_S, FakeMember, next_news_s, report_at
from scheduler.protocol.messages import Cause, Phase, Report, Target

EVERY_S = 0.05
Key = tuple[int, int, int]


def boot_time_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class FakeGangs:
    """Looks at every member a few times a second and tells what has changed."""

    def __init__(
        self, folders: Folders, kinds: dict[str, str], clock_s: Callable[[], float] = boot_time_s,
        start_s: float = START_S, every_s: float = EVERY_S,
    ) -> None:
        """kinds: device id -> kind. start_s: what a member's start-up takes. every_s: between two looks at all members,
        in real time."""
        self._folders = folders
        self._kinds = kinds
        self._clock_s = clock_s
        self._start_s = start_s
        self._every_s = every_s
        self._members: dict[Key, FakeMember] = {}
        self._said: dict[Key, Report] = {}
        self._on_report: OnReport = lambda report: None
        self._task: asyncio.Task[None] | None = None

    def adopt(self, on_report: OnReport) -> list[Report]:
        self._on_report = on_report
        self._task = asyncio.create_task(self._watch())
        for attempt in self._folders.unfinished(fake=True):
            for file in sorted(self._folders.path(attempt).glob("fake-*.json")):
                member = msgspec.json.decode(file.read_bytes(), type=FakeMember)
                self._members[member.target.key] = member
                self._said[member.target.key] = report_at(member, self._clock_s())
        return list(self._said.values())

    def spawn(self, target: Target, secrets: dict[str, str]) -> None:
        """A fake has no use for secrets."""
        attempt = (target.job, target.attempt)
        try:
            self._folders.make(attempt, target.spec)
            self._log(attempt, target)
            profile = _read_profile(target.spec.job.profile)
            kind, now_s = self._kinds[target.device], self._clock_s()
            born = FakeMember(target=target, kind=kind, spawned_s=now_s, profile=profile, start_s=self._start_s)
            self._keep(born.told(target, now_s))
        except ValueError as error:
            self._on_report(refusal(target, str(error), Cause.BAD_SPEC))
        except OSError as error:
            self._members.pop(target.key, None)
            self._on_report(refusal(target, f"cannot start: {error}"))

    def knows(self, key: Key) -> bool:
        return key in self._members

    def deliver(self, target: Target) -> None:
        if (member := self._members.get(target.key)) is None:
            return
        with contextlib.suppress(OSError):  # the next agent gets the same Target again
            self._keep(member.told(target, self._clock_s()))

    def forget(self, key: Key) -> None:
        self._members.pop(key, None)
        self._said.pop(key, None)
        if not any(other[:2] == key[:2] for other in self._members):
            self._folders.done(key[:2])

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _keep(self, member: FakeMember) -> None:
        key = member.target.key
        self._members[key] = member
        write_durably(self._folders.path(key[:2]) / f"fake-{key[2]}.json", msgspec.json.encode(member))

    def _log(self, attempt: Attempt, target: Target) -> None:
        with open(self._folders.open_log(attempt, target.member), "wb") as log:
            log.write(f"fake member {target.member} of {target.spec.job.name!r}: nothing is computed\n".encode())

    async def _watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(self._every_s)

    def look(self) -> None:
        """Tell what has changed."""
        now_s = self._clock_s()
        for key, member in self._living():
            said, report = self._said.get(key), report_at(member, now_s)
            if said is None or msgspec.structs.replace(report, seq=said.seq) != said:
                self._said[key] = report
                self._on_report(report)

    def next_news_s(self) -> float:
        """When a member will have more to tell than progress; infinity where none will."""
        now_s = self._clock_s()
        return min((next_news_s(member, now_s) for _, member in self._living()), default=math.inf)

    def _living(self) -> list[tuple[Key, FakeMember]]:
        gone = {key for key, said in self._said.items() if said.phase is Phase.GONE}
        return [(key, member) for key, member in self._members.items() if key not in gone]


def _read_profile(path: str | None) -> ModelProfile | None:
    """A profile file, or a built-in model by its name. Raises ValueError: neither can be had."""
    if path is None:
        return None
    if not path.endswith(".json"):
        if path not in FAMILIES:
            raise ValueError(f"profile {path!r} is neither a .json file nor one of {', '.join(FAMILIES)}")
        return family(path, 1)
    try:
        return profile_document(json.loads(Path(path).read_text()), Path(path).stem).profile
    except (OSError, ValueError) as error:
        raise ValueError(f"profile {path}: {error}") from error
