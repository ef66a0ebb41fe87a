"""Prometheus metrics: counts by queue, state, team and node; of jobs that run, how they get on, by number only."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from scheduler.api.device_metrics import device_families
from scheduler.api.job_metrics import job_families
from scheduler.core.accounts import shares
from scheduler.core.caps import use_of
from scheduler.core.entities import Event, JobState, LeaseState, NodeState
from scheduler.core.invariants import violations
from scheduler.core.reserved import drain_of
from scheduler.core.shown import shown_state
from scheduler.core.state import State
from scheduler.core.story import story_of
from scheduler.forecast import truth

_SECONDS = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400, 259_200, 604_800)
Family = GaugeMetricFamily | CounterMetricFamily


class Metrics(Collector):
    """Counts what is committed as it happens; the rest is looked at when it is asked for."""

    def __init__(self, state: State, version: str, half_life_s: float) -> None:
        self._state, self._version, self._half_life_s = state, version, half_life_s
        self._now_us = 0
        self._events: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._registry = CollectorRegistry()
        self._waited = Histogram("jctd_job_wait_seconds", "Submission to the first start.", buckets=_SECONDS,
                                 registry=self._registry)  # fmt: skip
        self._lasted = Histogram("jctd_job_completion_seconds", "Submission to the end.", buckets=_SECONDS,
                                 registry=self._registry)  # fmt: skip
        self._registry.register(self)

    def take(self, events: Iterable[Event]) -> None:
        """After their commit. An attempt counts once, however many ranks it has."""
        for event in events:
            self._events[event.kind] += 1
            job = self._state.jobs.get(event.job) if event.job is not None else None
            if event.kind == "AttemptEnded":
                self._causes[str(event.data.get("cause"))] += 1
            elif event.kind == "Ended" and job is not None:
                self._ended[str(job.result)] += 1
                self._lasted.observe((event.time_us - job.submitted_us) / 1e6)
            elif event.kind == "Starting" and event.attempt == 1 and job is not None:
                self._waited.observe((event.time_us - job.submitted_us) / 1e6)

    def render(self, now_us: int) -> bytes:
        self._now_us = now_us
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Family]:
        """Nothing ahead: registering must not look at a state that is not there yet."""
        return ()

    def collect(self) -> Iterator[Family]:
        yield _gauge("jctd_build_info", "The version that runs.", ["version"], {(self._version,): 1})
        yield _counter("jctd_events", "Committed events.", "kind", self._events)
        yield _counter("jctd_jobs_ended", "Jobs that ended.", "result", self._ended)
        yield _counter("jctd_attempts_ended", "Attempts that ended, preemptions and resizes among them.", "cause",
                       self._causes)  # fmt: skip
        yield from self._jobs()
        yield from self._devices()
        yield from device_families(self._state)
        yield from job_families(self._state)
        yield from self._tenants()
        yield from self._forecasts()
        broken = len(violations(self._state))
        yield _gauge("jctd_invariant_violations", "Promises of the core that do not hold now: 0.", [], {(): broken})

    def _jobs(self) -> Iterator[Family]:
        states: Counter[tuple[str, ...]] = Counter()
        reasons: Counter[tuple[str, ...]] = Counter()
        for job in self._state.jobs.values():
            if job.state is JobState.DONE:
                continue
            shown = shown_state(job, story_of(self._state, job).attempts, self._state.progress.get(job.id))
            states[job.spec.queue, shown] += 1
            if job.state is JobState.QUEUED:
                reasons[job.spec.queue, job.reason_code] += 1
        yield _gauge("jctd_jobs", "Jobs that have not ended.", ["queue", "state"], states)
        yield _gauge("jctd_jobs_waiting", "Waiting jobs by their reason.", ["queue", "reason"], reasons)

    def _devices(self) -> Iterator[Family]:
        state = self._state
        lease_of = {lease.device: lease.state for lease in state.leases.values()}
        counts: Counter[tuple[str, ...]] = Counter()
        for device in state.devices.values():
            node = state.nodes.get(device.node)
            if (lease := lease_of.get(device.id)) is not None:
                shown = "quarantined" if lease is LeaseState.QUARANTINED else "allocated"
            elif node is None or node.state is NodeState.LOST:
                shown = "lost"
            elif drain_of(state, device.id) is not None:
                shown = "drained"
            else:
                shown = "idle" if device.healthy else "unhealthy"
            counts[device.kind, shown] += 1
        yield _gauge("jctd_devices", "Devices.", ["kind", "state"], counts)
        reasons = [bool(drain.automatic) for drain in state.drains.values() if drain.name.startswith("node/")]
        drained = {("health-check",): sum(reasons), ("person",): len(reasons) - sum(reasons)}
        yield _gauge("jctd_nodes_drained", "Drained nodes.", ["by"], drained)
        yield _gauge("jctd_nodes_unwell_not_drained", "Nodes that are not well, but beyond the drain budget.", [],
                     {(): len(state.undrained)})  # fmt: skip
        seen = {(node,): (self._now_us - at) / 1e6 for node, at in state.heard_us.items()}
        yield _gauge("jctd_node_last_seen_seconds", "Since a node was heard.", ["node"], seen)

    def _forecasts(self) -> Iterator[Family]:
        found = truth.outcomes(self._state)
        yield _gauge("jct_eta_outcomes", "Completed jobs in memory by how their first range stood the truth.",
                     ["outcome"], {(outcome,): count for outcome, count in found.items()})  # fmt: skip
        if (share := truth.coverage(self._state)) is not None:
            yield _gauge("jct_eta_coverage", "Part of them that ended in their 90% range; unknown is a miss.", [],
                         {(): share})  # fmt: skip

    def _tenants(self) -> Iterator[Family]:
        state, use = self._state, use_of(self._state)
        have = {holder: len(devices) for holder, devices in use.devices.items()}
        yield _gauge("jctd_devices_used", "Devices held or promised.", ["holder", "name"], have)
        books = {"team": state.teams, "user": state.users, "queue": state.queues}
        limits = {
            (kind, name): cap.max_devices
            for kind, book in books.items()
            for name, cap in book.items()  # type: ignore[attr-defined]
            if cap.max_devices is not None
        }
        yield _gauge("jctd_devices_limit", "Caps on devices.", ["holder", "name"], limits)
        share = {(team,): value for team, value in shares(state, self._now_us, self._half_life_s).items()}
        yield _gauge("jctd_team_share", "Part of what was used of late.", ["team"], share)


def _gauge(name: str, text: str, labels: list[str], values: Mapping[Any, float]) -> Family:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, label: str, values: Counter[str]) -> Family:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
