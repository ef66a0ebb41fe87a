"""What is asked of the policy's process: a snapshot, less the jobs that it has been shown already.

A job that waits looks the same from pass to pass, and its profile makes it large. With 5,000 jobs on 800 devices whole
snapshots were 33 MB; packing one held up every answer of the daemon for 50 ms, and reading it the child for 240.
"""

from dataclasses import dataclass, field, replace

import msgspec

from policies.model.cluster import ClusterSnapshot, JobView


class Question(msgspec.Struct, frozen=True):
    """snapshot: with those of its jobs only that are new or look different. jobs: the ids of all, in order."""

    snapshot: ClusterSnapshot
    jobs: tuple[int, ...]
    effort: int


@dataclass(slots=True)
class Told:
    """The asking side, for the life of one child. A view that is the same object is the same view."""

    _views: dict[int, JobView] = field(default_factory=dict)

    def question(self, snapshot: ClusterSnapshot, effort: int) -> Question:
        different = tuple(job for job in snapshot.jobs if self._views.get(job.id) is not job)
        self._views = {job.id: job for job in snapshot.jobs}
        return Question(replace(snapshot, jobs=different), tuple(self._views), effort)


@dataclass(slots=True)
class Heard:
    """The answering side. It must hear every question, in order."""

    _views: dict[int, JobView] = field(default_factory=dict)

    def snapshot(self, question: Question) -> ClusterSnapshot:
        """Raises KeyError where it was never shown a job: it has missed a question."""
        seen = self._views | {job.id: job for job in question.snapshot.jobs}
        self._views = {id: seen[id] for id in question.jobs}
        return replace(question.snapshot, jobs=tuple(self._views.values()))
