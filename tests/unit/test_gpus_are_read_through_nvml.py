"""What the agent makes of NVML's answers: values, and for what is missing a reason. The real pynvml asks a stand-in."""

import pynvml
import pytest
from standin import Standin

from agent.devices.nvml import Nvml

VALUE_ERRORS = {2, 3, 4, 5, 6, 7, 10, 13, 14, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 29, 30, 999}
DEVICE_ERRORS = {8, 11, 15, 16, 28}
NODE_ERRORS = {1, 9, 12, 18}
CODES = sorted({getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")})
HIDDEN = 2**64 - 1
QUERIES = {
    "nvmlDeviceGetUtilizationRates": ("busy_percent", "memory_busy_percent"),
    "nvmlDeviceGetMemoryInfo": ("memory_used_bytes", "memory_total_bytes"),
    "nvmlDeviceGetPowerUsage": ("power_w",),
    "nvmlDeviceGetEnforcedPowerLimit": ("power_limit_w",),
    "nvmlDeviceGetTemperature": ("temperature_c",),
    "nvmlDeviceGetClockInfo": ("sm_clock_hz", "memory_clock_hz"),
    "nvmlDeviceGetTotalEccErrors": ("ecc_corrected", "ecc_uncorrected"),
    "nvmlDeviceGetPcieReplayCounter": ("pcie_replays_per_s",),
    "nvmlDeviceGetCurrentClocksEventReasons": ("throttled",),
    "nvmlDeviceGetComputeRunningProcesses_v3": ("processes",),
    "nvmlDeviceGetFieldValues": ("memory_temperature_c",),
    "nvmlGpmQueryDeviceSupport": ("sm_active_percent", "dram_active_percent"),
    "nvmlDeviceRegisterEvents": ("xid",),
}


@pytest.fixture
def provider(nvml: Standin) -> Nvml:
    return Nvml()


def test_b16_gpus_are_known_by_uuid_and_bus_whatever_their_order(nvml, provider):
    first = provider.find().devices
    assert [info.id for info in first] == ["GPU-a", "GPU-b"]
    assert all(info.healthy and info.memory_bytes == 2**37 and info.kind == "H200" for info in first)
    buses = {id: provider.read(id).bus for id in ("GPU-a", "GPU-b")}
    assert len(set(buses.values())) == 2
    nvml.offer("GPU-b", "GPU-a")
    nvml.say("value nvmlDeviceGetPowerUsage GPU-a 100000")
    assert [info.id for info in provider.find().devices] == ["GPU-b", "GPU-a"]
    assert {id: provider.read(id).bus for id in buses} == buses
    assert provider.read("GPU-a").values["power_w"] == 100.0


def test_mig_devices_stand_in_place_of_their_gpu(nvml, provider):
    nvml.say("mig GPU-a MIG-1", "mig GPU-a MIG-2", "error nvmlDeviceGetUtilizationRates MIG-1 3")
    found = provider.find().devices
    assert [(info.id, info.kind) for info in found] == [
        ("MIG-1", "H200 MIG 1g.18gb"), ("MIG-2", "H200 MIG 1g.18gb"), ("GPU-b", "H200"),
    ]  # fmt: skip
    assert [info.index for info in found] == [0, 1, 2]
    reading = provider.read("MIG-1")
    assert (reading.parent, reading.values.get("busy_percent"), reading.unwell) == ("GPU-a", None, "")
    assert reading.missing["busy_percent"] == "not supported here"
    assert reading.bus


def test_every_value_has_its_unit_and_gpm_tells_what_the_units_do(nvml, provider):
    nvml.say("value nvmlDeviceGetPcieReplayCounter * 7", "process GPU-a 4711 1000", "value xid GPU-a 79")
    provider.find()
    first, second = provider.read("GPU-a"), provider.read("GPU-a")
    assert "nothing yet to compare" in first.missing["sm_active_percent"]
    assert first.values["pcie_tx_bytes_per_s"] == 1e6
    assert second.values["sm_active_percent"] == 2.0
    assert second.values["pcie_tx_bytes_per_s"] == 20 * 2**20
    assert second.values["power_w"] == 250.0
    assert second.values["sm_clock_hz"] == 1.98e9
    assert second.values["memory_used_bytes"] == 2**30
    assert second.values["xid"] == 79
    assert second.counters["pcie_replays"] == 7
    assert second.throttled == ("power cap",)
    assert second.processes is not None
    assert [(one.pid, one.memory_bytes) for one in second.processes] == [(4711, 1000)]
    assert second.missing == {}


def test_a_desktop_is_told_apart_from_what_computes(nvml, provider):
    nvml.say("process GPU-a 1 100", "desktop GPU-a 2 200", "process GPU-a 3 300", "desktop GPU-a 3 300")
    provider.find()
    processes = provider.read("GPU-a").processes
    assert processes is not None
    assert {one.pid: one.draws for one in processes} == {1: False, 2: True, 3: False}


def test_no_xid_is_null_and_not_zero(nvml, provider):
    provider.find()
    reading = provider.read("GPU-a")
    assert "xid" not in reading.values
    assert reading.missing["xid"] == "none since the agent's start"


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_UNKNOWN])
@pytest.mark.parametrize(
    "query",
    ["nvmlDeviceGetPowerUsage", "nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlGpmQueryDeviceSupport"],
)
def test_a_gpu_whose_first_look_failed_tells_all_once_it_is_well(nvml, provider, query, code):
    provider.find()
    nvml.say(f"error {query} * {code}")
    provider.read("GPU-a")
    nvml.say()
    provider.read("GPU-a")
    assert provider.read("GPU-a").missing == {"xid": "none since the agent's start"}
    nvml.say("value xid GPU-a 79")
    assert provider.read("GPU-a").values["xid"] == 79


@pytest.mark.parametrize("code", sorted(VALUE_ERRORS - {3, 4, 13, 25}))
def test_a_gpu_in_mig_mode_is_never_offered_as_a_whole(nvml, provider, code):
    mig = "mig GPU-a MIG-1"
    nvml.say(mig)
    provider.find()
    nvml.say(mig, f"error nvmlDeviceGetMigMode GPU-a {code}")
    assert [info.id for info in provider.find().devices] == ["GPU-b"]
    nvml.say(mig)
    assert [info.id for info in provider.find().devices] == ["MIG-1", "GPU-b"]


@pytest.mark.parametrize("code", [3, 4, 13, 25])
def test_a_gpu_that_knows_no_mig_mode_is_offered_as_a_whole(nvml, provider, code):
    nvml.say(f"error nvmlDeviceGetMigMode GPU-a {code}")
    assert [info.id for info in provider.find().devices] == ["GPU-a", "GPU-b"]


def test_a_mig_device_whose_instance_is_unknown_shows_no_other_ones_counters(nvml, provider):
    nvml.say("mig GPU-a MIG-1", f"error nvmlDeviceGetGpuInstanceId MIG-1 {pynvml.NVML_ERROR_UNKNOWN}")
    provider.find()
    provider.read("MIG-1")
    reading = provider.read("MIG-1")
    assert "sm_active_percent" not in reading.values
    assert reading.missing["sm_active_percent"] == "NVML does not tell its GPU instance"
    nvml.say("mig GPU-a MIG-1")
    provider.find()
    provider.read("MIG-1")
    assert "sm_active_percent" in provider.read("MIG-1").values


@pytest.mark.parametrize("query", QUERIES)
def test_b56_each_value_that_is_not_supported_is_null_with_a_reason(nvml, provider, query):
    nvml.say(f"error {query} * {pynvml.NVML_ERROR_NOT_SUPPORTED}")
    assert len(provider.find().devices) == 2
    provider.read("GPU-a")
    reading = provider.read("GPU-a")
    for name in QUERIES[query]:
        assert reading.missing.pop(name) == "not supported here"
        assert name not in reading.values
    others = [name for each, names in QUERIES.items() if each != query for name in names]
    assert not [name for name in others if name in reading.missing and name != "xid"]
    assert reading.unwell == ""


def test_b56_a_gpu_that_supports_nothing_can_still_be_used(nvml, provider):
    nvml.say(*(f"error {query} * {pynvml.NVML_ERROR_NOT_SUPPORTED}" for query in QUERIES),
             "error nvmlDeviceGetPcieThroughput * 3")  # fmt: skip
    found = provider.find()
    assert [(info.healthy, info.memory_bytes) for info in found.devices] == [(True, None)] * 2
    reading = provider.read("GPU-a")
    assert (reading.values, reading.counters, reading.processes, reading.unwell) == ({}, {}, None, "")
    assert set(provider.names) <= set(reading.missing)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"value memory.used * {HIDDEN}", "memory_used_bytes"),
        (f"value utilization.gpu * {HIDDEN}", "busy_percent"),
        (f"value nvmlDeviceGetPowerUsage * {2**32 - 1}", "power_w"),
        (f"value ecc.corrected * {HIDDEN}", "ecc_corrected"),
        (f"value field.82 * {HIDDEN}", "memory_temperature_c"),
        (f"value nvmlDeviceGetPcieReplayCounter * {2**32 - 1}", "pcie_replays_per_s"),
        ("value gpm.2 * nan", "sm_active_percent"),
    ],
)
def test_b56_a_value_with_all_bits_set_is_null_with_a_reason(nvml, provider, line, name):
    nvml.say(line)
    provider.find()
    provider.read("GPU-a")
    reading = provider.read("GPU-a")
    assert name not in reading.values
    assert reading.missing[name]


def test_b56_hidden_memory_of_a_process_is_null(nvml, provider):
    nvml.say(f"process GPU-a 4711 {HIDDEN}")
    provider.find()
    processes = provider.read("GPU-a").processes
    assert processes is not None
    assert [one.memory_bytes for one in processes] == [None]


@pytest.mark.parametrize("code", CODES)
def test_every_error_of_a_query_leads_to_the_stated_behaviour(nvml, provider, code):
    """One value is null, or one device is unwell; the other device is read as ever, and all is well again after it."""
    assert {*VALUE_ERRORS, *DEVICE_ERRORS, *NODE_ERRORS} == set(CODES)
    provider.find()
    nvml.say(f"error nvmlDeviceGetPowerUsage GPU-a {code}")
    reading, other = provider.read("GPU-a"), provider.read("GPU-b")
    assert "power_w" not in reading.values
    assert reading.missing["power_w"]
    assert bool(reading.unwell) is (code not in VALUE_ERRORS)
    assert ("memory_used_bytes" in reading.values) is (code in VALUE_ERRORS)
    assert (other.unwell, other.values["power_w"]) == ("", 250.0)
    nvml.say()
    assert provider.read("GPU-a").values["power_w"] == 250.0


@pytest.mark.parametrize("code", CODES)
def test_b54_every_error_of_nvml_itself_makes_all_gpus_unwell_until_it_is_over(nvml, provider, code):
    provider.find()
    nvml.say(f"error nvmlDeviceGetCount * {code}", f"error nvmlInit * {code}")
    for _ in range(2):
        found = provider.find()
        assert (found.devices, bool(found.trouble)) == ((), True)
        assert provider.read("GPU-a").unwell == found.trouble
        assert provider.read("GPU-a").values == {}
    nvml.say()
    assert len(provider.find().devices) == 2
    assert provider.read("GPU-a").unwell == ""


def test_b54_a_version_mismatch_says_what_to_do(nvml, provider):
    nvml.say(f"error nvmlInit * {pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}")
    assert "NVML version mismatch" in provider.find().trouble
    assert "reboot" in provider.find().trouble


def test_a_gpu_that_vanishes_or_is_lost_is_unwell_and_hides_no_other(nvml, provider):
    provider.find()
    nvml.offer("GPU-b")
    assert [info.id for info in provider.find().devices] == ["GPU-b"]
    assert "bus" in provider.read("GPU-a").unwell
    assert provider.read("GPU-b").unwell == ""
    nvml.offer("GPU-a", "GPU-b")
    nvml.say(f"error nvmlDeviceGetHandleByIndex GPU-a {pynvml.NVML_ERROR_GPU_IS_LOST}")
    assert [info.id for info in provider.find().devices] == ["GPU-b"]


def test_a_gpu_that_hangs_while_all_are_sought_hides_no_other(nvml, provider, monkeypatch):
    monkeypatch.setattr("agent.devices.nvml.FIND_S", 0.2)
    nvml.say("block nvmlDeviceGetName GPU-a")
    assert [info.id for info in provider.find().devices] == ["GPU-b"]
    assert provider.read("GPU-b").unwell == ""
    nvml.say()
    provider._looks[0].wait(30)
    assert len(provider.find().devices) == 2


@pytest.mark.parametrize(
    ("rows", "healthy"), [("rows.pending * 0", True), ("rows.pending * 1", False), ("rows.failed * 1", False)]
)
def test_a_gpus_memory_is_judged_by_its_remapped_rows(nvml, provider, rows, healthy):
    nvml.say(f"value {rows}")
    assert [(info.healthy, bool(info.reason)) for info in provider.find().devices] == [(healthy, not healthy)] * 2


def test_b54_a_machine_without_the_library_is_told_apart(provider, monkeypatch):
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert "libnvidia-ml.so.1" in provider.find().trouble
