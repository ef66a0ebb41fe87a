"""Devices that somebody slows down: told once when it begins and ends, weighed by passes, avoided by new jobs."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from small_cluster import SmallCluster

from policies import registry
from policies.model.cluster import DeviceView
from scheduler.core.contention import slowdown_of
from scheduler.core.entities import NodeState
from scheduler.core.events import NodeHeard
from scheduler.core.snapshot import take_snapshot
from scheduler.jobfile import parse_document
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.telemetry import DeviceSample, Telemetry

JOB = {"name": "gpt", "entrypoint": "m:f", "workdir": "/w", "work": {"total": "100000 steps"}}


class Cluster(SmallCluster):
    """Beats of node n0 with what it says of its devices."""

    beats = 0

    def hear(self, fallback: str = "", node: str = "n0", **ratios: float) -> None:
        """ratios: of contested devices by number; the other one is well."""
        devices = tuple(sample(f"n0-{at}", ratios.get(f"d{at}")) for at in range(2))
        self.beats += 1
        telemetry = Telemetry(number=self.beats, devices=devices, predictor="cpu: a forest", fallback=fallback)
        self._step(NodeHeard(node=node, session=self.state.said_hello[node], beat=self.beats, telemetry=telemetry))

    def told(self, *kinds: str) -> list[tuple[str, str | None, int | None, str]]:
        events = self.ring.after(0, 1000)
        return [(one.kind, one.node, one.job, one.message) for one in events if one.kind in kinds]

    def seen(self) -> dict[str, DeviceView]:
        return {device.id: device for device in take_snapshot(self.state, self.now_us()).devices}


def sample(id: str, ratio: float | None) -> DeviceSample:
    well = Slowdown(device=id, ratio=1.02, low=1.0, high=1.1, confidence=0.9, source=Source.FOREST)
    found = well if ratio is None else msgspec.structs.replace(well, ratio=ratio, contested=True)
    return DeviceSample(id=id, kind="fake", age_s=0.1, slowdown=found)


@pytest.fixture
def cluster(tmp_path):
    small = Cluster(tmp_path)
    yield small
    small.close()


def test_it_is_told_once_when_it_begins_and_once_when_it_ends(cluster):
    for _ in range(3):
        cluster.hear(d0=1.234)
    cluster.advance(65)
    for _ in range(3):
        cluster.hear()
    assert cluster.told("DeviceContested", "DeviceCalm") == [
        ("DeviceContested", "n0", None, "GPU 0: slowed 1.23x by a neighbour, predicted from counters"),
        ("DeviceCalm", "n0", None, "GPU 0: nobody slows it any more; it lasted 00:01:05"),
    ]


def test_the_job_on_it_has_it_in_its_story(cluster):
    id = asyncio.run(cluster.submit(parse_document({**JOB, "gpus": 4}), "k", "eva", None))
    cluster.advance(10)
    cluster.hear(d1=2.0)
    assert cluster.told("DeviceContested")[0][1:3] == ("n0", id)


def test_policies_see_the_slowdown_of_contested_devices_only(cluster):
    cluster.hear(d1=1.4567)
    assert {id: device.slowdown for id, device in cluster.seen().items()} == {
        "n0-0": 1.0, "n0-1": 1.5, "n1-0": 1.0, "n1-1": 1.0,
    }  # fmt: skip


def test_a_ratio_that_sways_is_no_news_for_a_pass(cluster):
    cluster.hear(d0=1.51)
    before = cluster.seen()
    cluster.state.plan_wanted = False
    cluster.hear(d0=1.49)
    assert cluster.seen() == before
    assert not cluster.state.plan_wanted


def test_what_begins_and_ends_wants_a_pass(cluster):
    for ratios in ({"d0": 2.0}, {}):
        cluster.state.plan_wanted = False
        cluster.hear(**ratios)
        assert cluster.state.plan_wanted


def test_a_new_job_is_placed_beside_a_contested_device(cluster):
    """Of two nodes that have room, on the one that nobody slows down."""
    cluster._policy = registry.find("jct")
    cluster.hear(d0=2.0, d1=2.0)
    id = asyncio.run(cluster.submit(parse_document({**JOB, "gpus": 2}), "k", "eva", None))
    cluster.advance(10)
    assert {lease.device for lease in cluster.state.leases_of(id, cluster.state.jobs[id].last_attempt)} == {
        "n1-0", "n1-1"
    }  # fmt: skip


def test_a_node_speaks_only_of_its_own_devices(cluster):
    cluster.hear(node="n1", d0=2.0)
    assert cluster.state.contested == {}


@pytest.mark.parametrize(
    ("told", "weighed"), [(float("nan"), 1.0), (float("inf"), 1.0), (0.2, 1.0), (1.05, 1.0), (1e9, 100.0)]
)
def test_numbers_that_are_none_do_no_harm(cluster, told, weighed):
    cluster.hear(d0=told)
    assert slowdown_of(cluster.state, "n0-0") == weighed


def test_of_a_lost_node_nothing_is_known(cluster):
    cluster.hear(d0=2.0)
    cluster._agents = [agent for agent in cluster._agents if agent.node != "n0"]
    cluster.advance(200)
    assert cluster.state.contested == {}


def test_b59_a_model_that_a_node_cannot_use_is_an_event_and_so_is_its_return(cluster):
    why = "model.npz: its checksum is wrong. Instead cpu: a generic forest"
    for fallback in ("", why, why, "", ""):
        cluster.hear(fallback)
    assert cluster.told("PredictorFellBack", "PredictorRestored") == [
        ("PredictorFellBack", "n0", None, why), ("PredictorRestored", "n0", None, "cpu: a forest"),
    ]  # fmt: skip


def test_agents_that_share_a_machine_do_not_flee_from_each_others_cores(cluster):
    """Told all the same."""
    cluster.hear(d0=2.0)
    device = cluster.state.devices["n0-0"]
    assert slowdown_of(cluster.state, "n0-0") == 2.0
    cluster.state.devices["n0-0"] = replace(device, kind="cpu")
    assert slowdown_of(cluster.state, "n0-0") == 1.0, "both simulated nodes have one boot id"
    other = cluster.state.nodes["n1"]
    for apart in (replace(other, boot="another"), replace(other, state=NodeState.LOST)):
        cluster.state.nodes["n1"] = apart
        assert slowdown_of(cluster.state, "n0-0") == 2.0
    assert "n0-0" in cluster.state.contested


def test_gauges_tell_the_worst_of_each_node_and_how_many_are_contested(cluster):
    cluster.hear(d1=1.75)
    text = cluster.metrics().decode()
    assert 'jctd_device_slowdown{kind="fake",node="n0"} 1.75' in text
    assert 'jctd_devices_contested{kind="fake",node="n0"} 1.0' in text


def test_a_job_that_waits_for_calmer_devices_says_so(cluster):
    """The calm node is taken; on the other a step would take three times as long."""
    cluster._policy = registry.find("jct")
    cluster.hear(d0=3.0, d1=3.0)
    for name in ("first", "second"):
        gpus = {"min": 1, "max": 2}
        asyncio.run(cluster.submit(parse_document({**JOB, "name": name, "gpus": gpus}), "k", "eva", None))
        cluster.advance(10)
        cluster.hear(d0=3.0, d1=3.0)
    waiting = cluster.state.jobs[2]
    assert (waiting.reason_code, waiting.state) == ("Interference", "QUEUED")
    assert "neighbours slow 2 of them (n0): a step takes up to 3 times as long" in waiting.reason


def test_a_job_that_fits_beside_the_slow_device_of_a_node_does_not_wait_for_a_calm_node(cluster):
    """What a step would take on a device that it would not get is no reason."""
    cluster._policy = registry.find("jct")
    cluster.hear(d0=3.0)
    for name in ("fills the calm node", "has room on half of the other"):
        gpus = {"min": 1, "max": 2}
        asyncio.run(cluster.submit(parse_document({**JOB, "name": name, "gpus": gpus}), name, "eva", None))
        cluster.advance(10)
        cluster.hear(d0=3.0)
    placed = {lease.job: lease.device for lease in cluster.state.leases.values()}
    assert placed == {1: placed[1], 2: "n0-1"}
    assert placed[1].startswith("n1")


def test_a_device_for_which_the_message_had_no_room_stays_as_it_was(cluster):
    cluster.hear(d0=2.0)
    for beat, left_out, known in ((8, 1, True), (9, 0, False)):
        telemetry = Telemetry(number=beat, left_out=left_out)
        cluster._step(NodeHeard(node="n0", session="s0", beat=beat, telemetry=telemetry))
        assert ("n0-0" in cluster.state.contested) is known
