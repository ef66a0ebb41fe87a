"""`jct-agent sample`, a process of its own, with a stand-in for NVML on its library path."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from standin import Standin

TIMEOUT_S = 60


@pytest.fixture
def script(tmp_path: Path) -> Standin:
    return Standin(tmp_path / "nvml-script")


@pytest.fixture
def sample(nvml_library, script):
    """Runs it: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        environment = os.environ | script.environment | {"LD_LIBRARY_PATH": str(nvml_library.parent)}
        done = subprocess.run(
            [sys.executable, "-m", "agent.main", "sample", *map(str, arguments)],
            env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


def nulls_without_a_reason(part: dict) -> list[str]:
    values = part.get("values", part.get("host"))
    return [name for name, value in values.items() if value is None and not part["missing"].get(name)]


def test_every_device_and_interface_is_there_and_every_null_has_a_reason(sample, script):
    script.say("error nvmlDeviceGetPowerUsage GPU-b 3", "process GPU-a 4711 1024")
    code, out, _ = sample("--json")
    document = json.loads(out)
    assert (code, document["apiVersion"]) == (0, "v1")
    a, b = document["devices"]
    assert (a["id"], a["values"]["power_w"], a["values"]["sm_active_percent"]) == ("GPU-a", 250.0, 2.0)
    assert (b["values"]["power_w"], b["missing"]["power_w"]) == (None, "not supported here")
    assert a["values"]["pcie_replays_per_s"] == 0
    assert a["processes"] == [
        {"pid": 4711, "whose": a["processes"][0]["whose"], "job": None, "name": a["processes"][0]["name"],
         "memory_bytes": 1024, "draws": False}
    ]  # fmt: skip
    assert "lo" in {interface["name"] for interface in document["interfaces"]}
    for part in (a, b, document, *document["interfaces"]):
        assert nulls_without_a_reason(part) == []
    assert document["health"] == {"node": "", "devices": {"GPU-a": "", "GPU-b": ""}}


def test_b54_a_mismatch_is_told_and_is_no_crash(sample, script):
    script.say("error nvmlInit * 18")
    code, out, _ = sample("--json")
    assert (code, json.loads(out)["devices"]) == (0, [])
    assert "version mismatch" in json.loads(out)["health"]["node"]
    assert "cannot be used: NVML version mismatch" in sample()[1]


def test_a_gpu_that_blocks_is_null_and_the_other_is_read(sample, script):
    script.say("block nvmlDeviceGetPowerUsage GPU-a")
    code, out, _ = sample("--json")
    a, b = json.loads(out)["devices"]
    assert code == 0
    assert set(a["values"].values()) == {None}
    assert nulls_without_a_reason(a) == []
    assert b["values"]["power_w"] == 250.0


def test_fake_readings_and_cpus_are_printed_for_people_too(sample, tmp_path):
    file = tmp_path / "readings.json"
    file.write_text('{"0": [{"values": {"busy_percent": 42}}]}')
    out = sample("--devices", "fake:2", "--fake-readings", file)[1]
    assert "busy_percent                42" in out
    assert "(a fake device measures nothing)" in out
    assert "memory_used_bytes" in sample("--devices", "cpu:1")[1]


@pytest.mark.parametrize("arguments", [("--devices", "gpu"), ("--devices", "fake:1", "--fake-readings", "/none")])
def test_bad_usage_is_told(sample, arguments):
    code, out, err = sample(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("jct-agent sample: ")
