"""A check that is itself wrong must not empty the cluster: only so many nodes are drained by themselves at once."""

import pytest

from scheduler.api.metrics import Metrics
from scheduler.core.effects import Effects
from scheduler.core.events import Erase, NodeHeard, NodeHello, Write
from scheduler.core.health import drain_budget
from scheduler.core.records import Drain
from scheduler.core.settings import US, CoreSettings
from scheduler.core.snapshot import offered
from scheduler.core.state import State
from scheduler.core.step import step
from scheduler.protocol.messages import DeviceInfo, Health, Hello

NODES = [f"n{number}" for number in range(10)]


class Nodes:
    """Ten nodes with two devices each, and what happened."""

    def __init__(self, share: float = 0.2) -> None:
        self.settings = CoreSettings(auto_drain_share=share)
        self.state, self.beat, self.kinds = State(epoch=1), 0, []
        for node in NODES:
            devices = tuple(DeviceInfo(id=f"{node}-{i}", kind="g", index=i) for i in range(2))
            hello = Hello(node=node, machine=node, boot="b", session="s", address="h", devices=devices)
            self.step(NodeHello(hello=hello, public_key=node))

    def step(self, event) -> Effects:
        out = step(self.state, event, 1_000 * US, self.settings)
        self.kinds += [note.kind for note in out.events]
        return out

    def says(self, node: str, reason: str, **devices: str) -> None:
        self.beat += 1
        devices = {f"{node}-{index[1:]}": why for index, why in devices.items()}
        self.step(NodeHeard(node=node, session="s", beat=self.beat, health=Health(node=reason, devices=devices)))

    @property
    def drained(self) -> list[str]:
        return [name.removeprefix("node/") for name in self.state.drains]

    def metric(self, text: str) -> bool:
        return text.encode() in Metrics(self.state, "0", 1.0).render(1_000 * US)


def test_beyond_the_budget_an_event_and_a_metric_say_so_and_who_is_well_makes_room():
    nodes = Nodes()
    for _ in range(3):
        for node in ("n1", "n3", "n5", "n7"):
            nodes.says(node, "hot")
    assert nodes.drained == ["n1", "n3"]
    assert nodes.kinds.count("DrainBudgetSpent") == 2, "once a node, however often it says so"
    assert nodes.metric("jctd_nodes_unwell_not_drained 2.0")
    assert nodes.metric('jctd_nodes_drained{by="health-check"} 2.0')
    nodes.says("n1", "")
    nodes.says("n7", "hot")
    assert nodes.drained == ["n3", "n7"]
    nodes.says("n5", "")
    assert nodes.metric("jctd_nodes_unwell_not_drained 0.0")


@pytest.mark.parametrize(("share", "most"), [(0.0, 1), (0.05, 1), (0.2, 2), (1.0, 10)])
def test_the_budget_is_a_share_of_the_nodes_and_at_least_one(share, most):
    nodes = Nodes(share)
    assert drain_budget(nodes.state, nodes.settings) == most
    for node in NODES:
        nodes.says(node, "hot")
    assert len(nodes.drained) == most


def test_what_a_person_has_drained_does_not_count_and_is_not_touched():
    nodes = Nodes()
    drain = Drain(name="node/n1", reason="repair", by="op", since_us=1)
    nodes.says("n1", "hot")
    nodes.step(Write(request=1, actor="op", record=drain))
    nodes.says("n1", "")
    assert nodes.state.drains == {"node/n1": drain}
    nodes.says("n1", "hot")
    nodes.says("n3", "hot")
    nodes.says("n5", "hot")
    assert nodes.drained == ["n1", "n3", "n5"]
    nodes.step(Erase(request=2, actor="op", kind="drain", name="node/n1"))
    nodes.says("n1", "hot")
    assert "n1" not in nodes.drained, "the budget is spent on the others"


def test_a_device_that_is_not_well_costs_only_itself():
    nodes = Nodes()
    nodes.says("n1", "", d0="", d1="NVML no longer finds it")
    assert (offered(nodes.state, "n1-0"), offered(nodes.state, "n1-1")) == (True, False)
    assert nodes.drained == []
    nodes.says("n1", "", d0="", d1="")
    assert offered(nodes.state, "n1-1")
    assert nodes.kinds[-2:] == ["DeviceUnwell", "DeviceWell"]


def test_a_node_cannot_speak_of_anothers_devices_and_its_words_are_cut():
    nodes = Nodes()
    nodes.step(NodeHeard(node="n1", session="s", beat=1, health=Health(node="x" * 10_000, devices={"n2-0": "bad"})))
    assert offered(nodes.state, "n2-0")
    assert len(nodes.state.drains["node/n1"].reason) == 500
