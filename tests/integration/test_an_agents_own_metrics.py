"""The agent's Prometheus endpoint."""

import urllib.request

import pytest

from agent.telemetry.exporter import serve
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.telemetry import DeviceSample, InterfaceSample, Telemetry

SAMPLE = Telemetry(
    number=1,
    devices=(
        DeviceSample(id="GPU-a", kind="H200", values={"power_w": 250.0, "busy_percent": None}),
        DeviceSample(id="GPU-b", kind="H200", values={"power_w": None}),
        DeviceSample(id="GPU-c", kind="H200", slowdown=Slowdown(
            device="GPU-c", ratio=1.5, low=1.2, high=1.9, confidence=0.6, source=Source.OBSERVED)),
    ),
    interfaces=(InterfaceSample(name="lo", kind="loopback", up=True, values={"rx_bytes_per_s": 7.0}),),
    host={"load_1m": 2.5},
    late=3,
)


@pytest.fixture
def get():
    """The metrics of a sample."""
    closing = []

    def ask(telemetry: Telemetry | None) -> str:
        port, close = serve(0, lambda: telemetry)
        closing.append(close)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return answer.read().decode()

    yield ask
    for close in closing:
        close()


def test_what_is_known_has_a_gauge_and_what_is_null_has_none(get):
    text = get(SAMPLE)
    assert 'jct_agent_device_power_w{device="GPU-a",kind="H200"} 250.0' in text
    assert 'device="GPU-b"' not in text
    assert 'jct_agent_device_slowdown{device="GPU-c",kind="H200"} 1.5' in text
    assert "jct_agent_device_busy_percent{" not in text
    assert 'jct_agent_interface_rx_bytes_per_s{interface="lo",kind="loopback"} 7.0' in text
    assert "jct_agent_host_load_1m 2.5" in text
    assert "jct_agent_late_readings 3.0" in text


def test_before_the_first_sample_there_is_nothing(get):
    assert "jct_agent" not in get(None)
