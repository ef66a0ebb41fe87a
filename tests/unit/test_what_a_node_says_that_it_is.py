"""What an agent says of its node ends neither the daemon nor its passes: it is kept, mended or refused by one rule."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from small_cluster import SmallCluster

from scheduler.core.events import NodeHello
from scheduler.core.nodes import MOST_DEVICES
from scheduler.core.snapshot import take_snapshot
from scheduler.protocol.messages import DeviceInfo, Hello
from scheduler.protocol.plausible import MOST, MOST_SMALL
from scheduler.protocol.plausible_hello import LONGEST_NAME, LONGEST_TEXT, plausible_hello, unusable_name

GPU = DeviceInfo(id="GPU-1", kind="H100", index=0, name="NVIDIA H100", memory_bytes=80 * 2**30)
HELLO = Hello(node="new", machine="m", boot="b", session="s", address="10.0.0.1", devices=(GPU,))
BAD_NAMES = ["", "x" * (LONGEST_NAME + 1), "a\0b", "a\nb", "\x1b[31mred", "\u202eabc"]


def of_device(**changes: object) -> Hello:
    return replace(HELLO, devices=(replace(GPU, **changes),))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SmallCluster]:
    small = SmallCluster(tmp_path)
    yield small
    small.close()


@pytest.mark.parametrize("told", [-1, 0, MOST + 1, 2**63, 2**64 - 1])
def test_a_memory_that_cannot_be_is_unknown(cluster: SmallCluster, told: int) -> None:
    cluster._step(NodeHello(hello=of_device(memory_bytes=told), public_key="key"))
    assert cluster.state.devices["GPU-1"].memory_bytes is None
    assert cluster.repository.load().devices["GPU-1"] == cluster.state.devices["GPU-1"]
    assert "GPU-1" in {device.id for device in take_snapshot(cluster.state, cluster.now_us()).devices}


@pytest.mark.parametrize(("told", "nearest"), [(-7, 0), (2**31, MOST_SMALL), (2**64 - 1, MOST_SMALL)])
def test_an_index_that_cannot_be_is_the_nearest_that_can(cluster: SmallCluster, told: int, nearest: int) -> None:
    cluster._step(NodeHello(hello=of_device(index=told), public_key="key"))
    assert cluster.repository.load().devices["GPU-1"].index == nearest


def test_texts_are_cut(cluster: SmallCluster) -> None:
    long = "x" * 1_000_000
    cluster._step(NodeHello(hello=replace(of_device(name=long, reason=long), address=long), public_key="key"))
    device, node = cluster.state.devices["GPU-1"], cluster.state.nodes["new"]
    assert {len(device.name), len(device.reason), len(node.address)} == {LONGEST_TEXT}


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
@pytest.mark.parametrize("field", ["node", "machine", "boot", "session", "id", "kind"])
def test_a_name_that_is_no_key_for_a_table_is_refused_with_what_to_do(
    cluster: SmallCluster, field: str, name: str
) -> None:
    said = of_device(**{field: name}) if field in ("id", "kind") else replace(HELLO, **{field: name})
    cluster._step(NodeHello(hello=said, public_key="key"))
    assert set(cluster.state.nodes) == {"n0", "n1"}
    (refused,) = (event for event in cluster.ring.after(0, 1000) if event.kind == "NodeRefused")
    assert "must have 1 to 255 characters, all of them printable" in refused.message
    assert refused.node in (None, "new")
    assert len(refused.message) < 300


def test_a_node_with_more_devices_than_there_can_be_is_refused(cluster: SmallCluster) -> None:
    many = tuple(replace(GPU, id=f"GPU-{n}", index=n) for n in range(MOST_DEVICES + 1))
    cluster._step(NodeHello(hello=replace(HELLO, devices=many), public_key="key"))
    assert "new" not in cluster.state.nodes
    cluster._step(NodeHello(hello=replace(HELLO, devices=many[1:]), public_key="key"))
    assert "new" in cluster.state.nodes


def test_what_can_be_true_stays_as_it_is() -> None:
    for hello in (HELLO, of_device(memory_bytes=None, healthy=False, reason="fell off the bus", kind="Jörgs GPU")):
        assert plausible_hello(hello) == hello
        assert unusable_name(hello) is None
