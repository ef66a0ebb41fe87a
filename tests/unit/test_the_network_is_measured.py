"""Interfaces as /proc and /sys tell of them."""

from pathlib import Path

import pytest

from agent.telemetry.host import Host
from agent.telemetry.network import Network
from agent.telemetry.rates import FIRST

HEAD = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes ...\n"


class Machine:
    """Files below a folder, and its time."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_s = root, 0.0
        (root / "proc/net").mkdir(parents=True)
        self.network = Network(root, lambda: self.now_s)
        self.tcp(0, 0)

    def interface(self, name: str, type: str = "1", speed: str | None = None, device: bool = False) -> None:
        folder = self.root / "sys/class/net" / name
        folder.mkdir(parents=True)
        (folder / "type").write_text(type)
        (folder / "operstate").write_text("up")
        if speed is not None:
            (folder / "speed").write_text(speed)
        if device:
            (folder / "device").mkdir()

    def counts(self, **numbers: tuple[int, int, int, int, int, int]) -> None:
        """rx bytes, errors, drops, then the same of tx."""
        rows = [f"{name}: {a} 0 {b} {c} 0 0 0 0 {d} 0 {e} {f} 0 0 0 0" for name, (a, b, c, d, e, f) in numbers.items()]
        (self.root / "proc/net/dev").write_text(HEAD + "\n".join(rows) + "\n")

    def tcp(self, out: int, again: int) -> None:
        (self.root / "proc/net/snmp").write_text(f"Tcp: OutSegs RetransSegs\nTcp: {out} {again}\n")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_throughput_errors_and_drops_of_each_interface(machine):
    machine.interface("eth0", speed="10000", device=True)
    machine.interface("lo", type="772")
    machine.interface("docker0", speed="-1")
    nothing = (0, 0, 0, 0, 0, 0)
    machine.counts(eth0=nothing, lo=nothing, docker0=nothing)
    first = machine.network.interfaces()
    assert {one.missing["rx_bytes_per_s"] for one in first} == {FIRST}
    machine.now_s = 2.0
    machine.counts(eth0=(2000, 2, 4, 6000, 8, 10), lo=nothing, docker0=nothing)
    eth0, lo, docker0 = machine.network.interfaces()
    assert eth0.values == {
        "link_bytes_per_s": 1.25e9, "rx_bytes_per_s": 1000, "rx_errors_per_s": 1, "rx_drops_per_s": 2,
        "tx_bytes_per_s": 3000, "tx_errors_per_s": 4, "tx_drops_per_s": 5,
    }  # fmt: skip
    assert eth0.missing == {}
    assert [(one.name, one.kind) for one in (eth0, lo, docker0)] == [
        ("eth0", "physical"), ("lo", "loopback"), ("docker0", "virtual"),
    ]  # fmt: skip
    assert docker0.values["link_bytes_per_s"] is None
    assert "virtual" in docker0.missing["link_bytes_per_s"]


def test_an_interface_that_comes_has_no_rate_yet_and_one_that_went_is_gone(machine):
    machine.counts(a=(1, 0, 0, 0, 0, 0))
    machine.network.interfaces()
    machine.now_s = 1.0
    machine.counts(a=(5, 0, 0, 0, 0, 0), b=(9, 0, 0, 0, 0, 0))
    a, b = machine.network.interfaces()
    assert (a.values["rx_bytes_per_s"], b.values["rx_bytes_per_s"]) == (4, None)
    machine.counts(b=(9, 0, 0, 0, 0, 0))
    assert [one.name for one in machine.network.interfaces()] == ["b"]


def test_what_tcp_sent_again_is_counted(machine):
    machine.network.tcp()
    machine.tcp(100, 5)
    machine.now_s = 5.0
    assert machine.network.tcp() == ({"tcp_segments_per_s": 20.0, "tcp_retransmits_per_s": 1.0}, {})


@pytest.mark.parametrize("text", [None, "", "Tcp: OutSegs\nTcp: x y\n", "Udp: 1\n"])
def test_a_proc_that_tells_nothing_gives_reasons(machine, text):
    file = machine.root / "proc/net/snmp"
    file.unlink() if text is None else file.write_text(text)
    values, missing = machine.network.tcp()
    assert values == {}
    assert "cannot be read" in missing["tcp_retransmits_per_s"]
    assert machine.network.interfaces() == ()


def test_a_host_without_pressure_stalls_says_so(tmp_path):
    values, missing = Host(tmp_path, lambda: 0.0).read()
    assert "load_1m" in values
    assert missing["cpu_pressure_percent"] == "this kernel tells no pressure stalls"
    assert {"busy_percent", "page_faults_per_s"} <= set(missing)
