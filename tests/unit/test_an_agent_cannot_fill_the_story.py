"""What an agent can say at will is written a bounded number of times, and asks for as few passes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import SmallCluster

from scheduler.core import restraint
from scheduler.core.events import NodeHeard, NodeHello, NodeReports
from scheduler.core.restraint import MOST, WINDOW_US, Said, has_room, may_say
from scheduler.core.settings import US
from scheduler.core.snapshot import is_there
from scheduler.protocol.messages import Health, Phase, Report
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.telemetry import DeviceSample, Telemetry

KEY = ("n0", "Told")
FEW, BEATS = 5, 40
"""Instead of MOST, and enough beats to be more."""


@given(st.lists(st.integers(0, WINDOW_US // 10), max_size=1500))
def test_of_one_kind_no_window_has_more_than_twice_the_most(gaps_us: list[int]) -> None:
    """Windows begin with what is said, so that any stretch of a window's length touches two of them at most."""
    book: dict[tuple[str, str], Said] = {}
    now_us, written = 0, []
    for gap_us in gaps_us:
        now_us += gap_us
        room = has_room(book, KEY, now_us)
        allowance = may_say(book, KEY, now_us)
        assert allowance.may is room
        if allowance.may:
            written.append(now_us)
    for first, at_us in enumerate(written):
        assert sum(at_us <= other < at_us + WINDOW_US for other in written[first:]) <= 2 * MOST


class Cluster(SmallCluster):
    """Two nodes with two devices each; n0's agent raves. Every beat is a second after the one before."""

    beats = 0

    def hear(
        self, node: str = "n0", slowed: bool = False, fallback: str = "", health: Health | None = None
    ) -> None:
        told = Slowdown(
            device=f"{node}-0", ratio=2.0, low=1.5, high=2.5, confidence=0.9, source=Source.FOREST, contested=slowed
        )
        self.beats += 1
        self._now_us += US
        devices = (DeviceSample(id=f"{node}-0", kind="fake", age_s=0.1, slowdown=told),)
        telemetry = Telemetry(number=self.beats, devices=devices, fallback=fallback, predictor="a forest")
        session = self.state.said_hello[node]
        self._step(NodeHeard(node=node, session=session, beat=self.beats, telemetry=telemetry, health=health))

    def written(self) -> Counter[str]:
        return Counter(event.kind for event in self.ring.after(0, 100_000))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(restraint, "MOST", FEW)
    small = Cluster(tmp_path)
    yield small
    small.close()


def test_a_device_that_is_contested_and_free_with_every_beat(cluster: Cluster) -> None:
    passes = 0
    for beat in range(BEATS):
        cluster.state.plan_wanted = False
        cluster.hear(slowed=beat % 2 == 0)
        passes += cluster.state.plan_wanted
    written = cluster.written()
    assert written["DeviceContested"] == written["DeviceCalm"] == FEW
    assert written["EventsLeftOut"] == 2
    assert passes == 2 * FEW


def test_it_is_told_that_something_is_left_out_and_what(cluster: Cluster) -> None:
    for beat in range(BEATS):
        cluster.hear(slowed=beat % 2 == 0)
    told = [event for event in cluster.ring.after(0, 100_000) if event.kind == "EventsLeftOut"]
    assert {event.node for event in told} == {"n0"}
    assert told[0].message == (
        f"more than {FEW} events DeviceContested within 10 minutes; further ones are left out until these are over"
    )


def test_when_it_is_over_an_agent_is_heard_again(cluster: Cluster) -> None:
    for beat in range(BEATS):
        cluster.hear(slowed=beat % 2 == 0)
    cluster._now_us += WINDOW_US
    before = cluster.written()["DeviceContested"]
    cluster.hear(slowed=True)
    assert cluster.written()["DeviceContested"] == before + 1


def test_other_nodes_and_other_kinds_are_not_left_out_with_it(cluster: Cluster) -> None:
    for beat in range(BEATS):
        cluster.hear(slowed=beat % 2 == 0)
    cluster.hear("n1", slowed=True)
    cluster.hear(fallback="model.npz: its checksum is wrong")
    written = cluster.written()
    assert written["DeviceContested"] == FEW + 1
    assert written["PredictorFellBack"] == 1


def test_a_model_file_that_is_good_and_bad_with_every_beat(cluster: Cluster) -> None:
    for beat in range(BEATS):
        cluster.hear(fallback="model.npz: cut off" if beat % 2 else "")
    written = cluster.written()
    assert written["PredictorFellBack"] == written["PredictorRestored"] == FEW


def test_of_a_device_that_is_well_and_unwell_with_every_beat_the_bad_news_stands(cluster: Cluster) -> None:
    for beat in range(BEATS):
        cluster.hear(health=Health(devices={"n0-1": f"error {beat}" if beat % 2 == 0 else ""}))
    written = cluster.written()
    assert written["DeviceWell"] == FEW
    assert not is_there(cluster.state, "n0-1")
    cluster._now_us += WINDOW_US
    cluster.hear(health=Health(devices={"n0-1": ""}))
    assert is_there(cluster.state, "n0-1")


def test_a_node_that_is_well_and_unwell_with_every_beat_stays_drained(cluster: Cluster) -> None:
    for beat in range(BEATS):
        cluster.hear(health=Health(node="its disk is full" if beat % 2 == 0 else ""))
    assert cluster.written()["NodeWell"] == FEW
    assert "node/n0" in cluster.state.drains
    cluster._now_us += WINDOW_US
    cluster.hear(health=Health())
    assert "node/n0" not in cluster.state.drains


def test_members_that_nobody_knows(cluster: Cluster) -> None:
    """An invented one for every beat."""
    session = cluster.state.said_hello["n0"]
    for beat in range(BEATS):
        report = Report(job=1000 + beat, attempt=1, member=0, seq=1, phase=Phase.TRAINING)
        cluster._step(NodeReports(node="n0", session=session, reports=(report,)))
    assert cluster.written()["ForeignMember"] == len(cluster.state.foreign) == FEW
    (left_out,) = (event for event in cluster.ring.after(0, 100_000) if event.kind == "EventsLeftOut")
    assert left_out.node == "n0"


def test_a_node_that_says_hello_all_the_time(cluster: Cluster) -> None:
    hello, key = cluster._agents[0].hello(0.0), cluster.state.nodes["n0"].public_key
    for start in range(BEATS):
        again = msgspec.structs.replace(hello, session=f"again-{start}")
        cluster._step(NodeHello(hello=again, public_key=key))
    assert cluster.written()["NodeUp"] == 1 + FEW, "the other node's own among them"


def test_fresh_keys_that_are_refused_are_one_speaker(cluster: Cluster) -> None:
    """Anybody can make one for each word; a node that is known has an allowance of its own."""
    hello, own = cluster._agents[0].hello(0.0), cluster.state.nodes["n0"].public_key
    for number in range(BEATS):
        cluster._step(NodeHello(hello=hello, public_key=f"fresh-{number}"))
    written = cluster.written()
    assert (written["NodeRefused"], written["EventsLeftOut"]) == (FEW, 1)
    cluster._step(NodeHello(hello=msgspec.structs.replace(hello, protocol=0), public_key=own))
    assert cluster.written()["NodeRefused"] == FEW + 1


def test_nodes_that_come_with_a_fresh_name_and_key_each_time(cluster: Cluster) -> None:
    """Beyond an allowance for all of them no table takes more; who is known already is not refused with them."""
    cluster.settings = replace(cluster.settings, new_nodes=2 + FEW)  # the cluster's own two are among them
    hello, own = cluster._agents[0].hello(0.0), cluster.state.nodes["n0"].public_key

    def come(number: int) -> None:
        fresh = msgspec.structs.replace(hello, node=f"fresh-{number}", session=f"s-{number}", devices=())
        cluster._step(NodeHello(hello=fresh, public_key=f"fresh-{number}"))

    for number in range(BEATS):
        come(number)
    assert len(cluster.state.nodes) == len(cluster.repository.load().nodes) == 2 + FEW
    written = cluster.written()
    assert (written["NodeUp"], written["NodeRefused"], written["EventsLeftOut"]) == (2 + FEW, FEW, 1)
    cluster._step(NodeHello(hello=msgspec.structs.replace(hello, session="again"), public_key=own))
    assert cluster.state.said_hello["n0"] == "again"
    cluster._now_us += WINDOW_US
    come(BEATS)
    assert f"fresh-{BEATS}" in cluster.state.nodes


def test_the_book_has_a_bound_however_many_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restraint, "MOST_KNOWN", 3)
    book: dict[restraint.Key, restraint.Said] = {}
    for speaker in ("a", "b", "c", "a", "d"):
        restraint.may_say(book, (speaker, "Told"), 1)
    assert [speaker for speaker, _ in book] == ["b", "c", "d"], "the one that began first is forgotten"
    restraint.may_say(book, ("b", "Told"), 1 + restraint.WINDOW_US)
    restraint.may_say(book, ("e", "Told"), 1 + restraint.WINDOW_US)
    assert [speaker for speaker, _ in book] == ["d", "b", "e"], "a new window begins at the end"
