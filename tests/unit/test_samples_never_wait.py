"""The sampler: what hangs, vanishes, wraps or is missing is told as such, and holds up nothing else."""

import os
import threading
import time

import pynvml
import pytest
from standin import Standin

from agent.devices import KnownGpus, offer_devices
from agent.devices.cpu import CpuSlots
from agent.devices.nvml import Nvml
from agent.devices.provider import Found, Reading
from agent.devices.scripted import BadScript, Moment, Scripted, read_script
from agent.telemetry.rates import RESET, Rates, growth
from agent.telemetry.sampler import FIND_S, FOREIGN_S, Sampler
from scheduler.protocol.messages import DeviceInfo
from scheduler.protocol.telemetry import Process

PATIENCE_S = 30.0
TWO = tuple(DeviceInfo(id=f"d{index}", kind="test", index=index) for index in range(2))


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Blocking:
    """Two devices whose reads wait until their event is set."""

    names, blocks = ("power_w", "links_per_s"), True

    def __init__(self) -> None:
        self.go = {info.id: threading.Event() for info in TWO}
        self.count = dict.fromkeys(self.go, 0)

    def find(self) -> Found:
        return Found(TWO)

    def read(self, id: str) -> Reading:
        self.go[id].wait(PATIENCE_S)
        self.count[id] += 1
        return Reading(values={"power_w": 100.0}, counters={"links": 50.0 * self.count[id]})


@pytest.fixture
def clock() -> Clock:
    return Clock()


def settle(sampler: Sampler) -> None:
    """Until no device is being read."""
    for device in sampler._devices.values():
        assert device.look is None or device.look.wait(PATIENCE_S)


def test_a_device_that_hangs_is_null_with_a_reason_and_stops_no_other(clock):
    provider = Blocking()
    sampler = Sampler(provider, TWO, clock_s=clock)
    provider.go["d1"].set()
    first = sampler.tick()
    assert [device.missing["power_w"] for device in first.devices] == ["not read yet"] * 2
    assert sampler._devices["d1"].look.wait(PATIENCE_S)
    for _ in range(12):
        clock.now_s += 0.5
        hanging, well = sampler.tick().devices
        assert sampler._devices["d1"].look.wait(PATIENCE_S)
    assert (hanging.values["power_w"], hanging.missing["power_w"]) == (None, "it has not answered for 6 s")
    assert (well.values["power_w"], well.values["links_per_s"]) == (100.0, 100.0)
    assert sampler.health().devices == {"d0": "the driver does not answer for it", "d1": ""}
    assert sampler.tick().late == 1
    provider.go["d0"].set()
    settle(sampler)
    again, _ = sampler.tick().devices
    assert again.values["power_w"] == 100.0
    assert sampler.health().devices == {"d0": "", "d1": ""}
    sampler.close()


def test_an_answer_tells_how_old_it_is(clock):
    provider = Blocking()
    sampler = Sampler(provider, TWO, clock_s=clock)
    provider.go["d0"].set()
    sampler.tick()
    assert sampler._devices["d0"].look.wait(PATIENCE_S)
    clock.now_s += 2.0
    assert sampler.tick().devices[0].age_s == 2.0
    provider.go["d1"].set()
    settle(sampler)
    sampler.close()


@pytest.mark.parametrize(
    ("before", "now", "grown"),
    [(10, 25, 15), (2**32 - 10, 5, 15), (100, 5, None), (2**40, 5, None), (2**31 - 1, 0, None), (5, 5, 0)],
)
def test_counters_wrap_at_32_bits_and_otherwise_have_begun_again(before, now, grown):
    assert growth(before, now) == grown


def test_a_counter_that_began_again_has_no_rate_for_one_sample():
    rates = Rates()
    rates.of({"x": 1000.0}, 1.0)
    assert rates.of({"x": 1500.0}, 3.0) == ({"x_per_s": 250.0}, {})
    assert rates.of({"x": 20.0}, 4.0) == ({}, {"x_per_s": RESET})
    assert rates.of({"x": 30.0}, 5.0) == ({"x_per_s": 10.0}, {})


def test_a_gpu_that_blocks_in_nvml_is_unwell_and_the_other_is_read(nvml: Standin, clock):
    provider = Nvml()
    found = provider.find()
    sampler = Sampler(provider, found.devices, clock_s=clock)
    sampler.tick()
    settle(sampler)
    nvml.say("block nvmlDeviceGetPowerUsage GPU-a", "value nvmlDeviceGetPowerUsage GPU-b 111000")
    sampler.tick()
    assert sampler._devices["GPU-b"].look.wait(PATIENCE_S)
    clock.now_s += 60
    blocked, other = sampler.tick().devices
    assert (blocked.values["power_w"], blocked.missing["busy_percent"]) == (None, "it has not answered for 60 s")
    assert other.values["power_w"] == 111.0
    assert sampler.health().devices == {"GPU-a": "the driver does not answer for it", "GPU-b": ""}
    nvml.say()
    settle(sampler)
    sampler.tick()
    assert sampler.health().devices == {"GPU-a": "", "GPU-b": ""}
    sampler.close()


def find_again(sampler: Sampler, clock: Clock) -> None:
    """Time passes until devices are sought again, have been found, and their readings are there."""
    clock.now_s += FIND_S
    sampler.tick()
    assert sampler._finder is not None
    assert sampler._finder.wait(PATIENCE_S)
    for _ in range(2):
        sampler.tick()
        settle(sampler)
    sampler.tick()


def test_b54_a_mismatch_makes_the_node_unwell_until_it_is_over(nvml: Standin, clock):
    provider = Nvml()
    sampler = Sampler(provider, provider.find().devices, clock_s=clock)
    mismatch = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    nvml.say(f"error nvmlDeviceGetCount * {mismatch}", f"error nvmlInit * {mismatch}")
    find_again(sampler, clock)
    health = sampler.health()
    assert "version mismatch" in health.node
    assert health.devices == {"GPU-a": health.node, "GPU-b": health.node}
    nvml.say()
    find_again(sampler, clock)
    assert (sampler.health().node, sampler.health().devices) == ("", {"GPU-a": "", "GPU-b": ""})
    sampler.close()


def test_b54_gpus_that_were_hidden_at_first_are_offered_once_they_are_found(nvml: Standin, clock):
    nvml.say("error nvmlInit * 18")
    provider = Nvml()
    sampler = Sampler(provider, (), provider.find().trouble, clock_s=clock)
    assert (sampler.offered, "reboot" in sampler.health().node) == ((), True)
    nvml.say()
    find_again(sampler, clock)
    assert [info.id for info in sampler.offered] == ["GPU-a", "GPU-b"]
    assert sampler.health().node == ""
    sampler.close()


def test_a_gpu_that_vanished_stays_offered_and_is_unwell_until_it_is_back(nvml: Standin, clock):
    provider = Nvml()
    sampler = Sampler(provider, provider.find().devices, clock_s=clock)
    nvml.offer("GPU-b")
    find_again(sampler, clock)
    reasons = sampler.health().devices
    assert ("bus" in reasons["GPU-a"], reasons["GPU-b"]) == (True, "")
    nvml.offer("GPU-b", "GPU-a")
    find_again(sampler, clock)
    assert sampler.health().devices == {"GPU-a": "", "GPU-b": ""}
    sampler.close()


@pytest.mark.parametrize(
    ("process", "held", "unwell"),
    [
        (Process(pid=1, whose="other", memory_bytes=900), False, True),
        (Process(pid=1, whose="unknown", memory_bytes=None), False, True),
        (Process(pid=1, whose="other", memory_bytes=900), True, False),
        (Process(pid=1, whose="other", memory_bytes=1), False, False),
        (Process(pid=1, whose="job", job=7, memory_bytes=900), False, False),
        (Process(pid=1, whose="other", memory_bytes=900, draws=True), False, False),
    ],
)
def test_b57_a_device_that_a_stranger_uses_is_given_to_no_job(clock, process, held, unwell):
    moment = Moment(values={"memory_total_bytes": 1000.0}, processes=(process,))
    provider = Scripted(TWO, {"0": [moment]}, clock)
    sampler = Sampler(provider, TWO, is_held=lambda id: held, clock_s=clock)
    sampler.tick()
    assert sampler.health().devices == {"d0": "", "d1": ""}
    clock.now_s += FOREIGN_S
    sampler.tick()
    assert bool(sampler.health().devices["d0"]) is unwell
    assert sampler.health().devices["d1"] == ""


@pytest.mark.parametrize(("memory_bytes", "unwell"), [(40 << 30, True), (100 << 20, False)])
def test_b57_a_stranger_is_noticed_where_a_device_has_no_memory_of_its_own(clock, memory_bytes, unwell):
    process = Process(pid=1, whose="other", memory_bytes=memory_bytes)
    sampler = Sampler(Scripted(TWO, {"0": [Moment(processes=(process,))]}, clock), TWO, clock_s=clock)
    sampler.tick()
    clock.now_s += FOREIGN_S
    sampler.tick()
    assert bool(sampler.health().devices["d0"]) is unwell


def test_fake_devices_measure_what_their_script_says_from_its_moments_on(tmp_path, clock):
    file = tmp_path / "script.json"
    file.write_text('{"0": [{"values": {"busy_percent": 5}}, {"from_s": 10, "values": {"busy_percent": 95}}],'
                    ' "*": [{"unwell": "it smokes"}]}')  # fmt: skip
    sampler = Sampler(Scripted(TWO, read_script(file), clock), TWO, clock_s=clock)
    assert sampler.tick().devices[0].values["busy_percent"] == 5
    clock.now_s += 10
    first, second = sampler.tick().devices
    assert (first.values["busy_percent"], first.values["power_w"]) == (95, None)
    assert first.missing["power_w"] == "the script has no value for it"
    assert second.missing["power_w"] == "the script has no value for it"
    assert sampler.health().devices == {"d0": "", "d1": "it smokes"}


@pytest.mark.parametrize("text", ["[]", "{", '{"0": [{"value": {}}]}', '{"0": [{"values": {"a": "b"}}]}'])
def test_a_script_that_is_none_is_refused(tmp_path, text):
    file = tmp_path / "script.json"
    file.write_text(text)
    with pytest.raises(BadScript, match=r"script\.json is no script"):
        read_script(file)


def test_cpu_slots_tell_each_cores_load_and_stolen_time(tmp_path, clock):
    stat = tmp_path / "stat"

    def ticks(*cores: str) -> None:
        stat.write_text("cpu 1 1 1 1 1 1 1 1 0 0\n" + "".join(f"cpu{i} {core} 0 0\n" for i, core in enumerate(cores)))

    slots = tuple(DeviceInfo(id=f"cpu-{index}", kind="cpu", index=index) for index in range(3))
    ticks("0 0 0 0 0 0 0 0", "0 0 0 0 0 0 0 0")
    sampler = Sampler(CpuSlots(slots, stat, clock, cores=(0, 1)), slots, clock_s=clock)
    first = sampler.tick().devices
    assert first[0].values["busy_percent"] is None
    assert "nothing yet to compare" in first[0].missing["busy_percent"]
    ticks("50 0 10 20 0 0 0 20", "0 0 0 90 10 0 0 0")
    clock.now_s += 1
    busy, idle, none = sampler.tick().devices
    assert (busy.values["busy_percent"], busy.values["steal_percent"]) == (80.0, 20.0)
    assert (idle.values["busy_percent"], idle.values["steal_percent"]) == (0.0, 0.0)
    assert "no core" in none.missing["busy_percent"]
    assert none.values["memory_total_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_in_a_container_with_some_cores_a_slot_is_measured_by_one_of_them(nvml: Standin, tmp_path, clock, monkeypatch):
    """Core 1 is switched off, and belongs to nobody."""
    nvml.say(f"error nvmlInit * {pynvml.NVML_ERROR_DRIVER_NOT_LOADED}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3})
    offer = offer_devices(None, "n", "m", KnownGpus(None))
    assert len(offer.devices) == 2
    stat = tmp_path / "stat"
    slots = CpuSlots(offer.devices, stat, clock)
    for ticks in (0, 50):
        stat.write_text(f"cpu 0\ncpu0 99{ticks} 0 0 0 0 0 0 0\n" + "".join(
            f"cpu{core} {ticks * (core - 2)} 0 0 {ticks} 0 0 0 0 0 0\n" for core in (2, 3)
        ))  # fmt: skip
        clock.now_s += 1
        found = [slots.read(device.id).values.get("busy_percent") for device in offer.devices]
    assert found == [0.0, 50.0]


def test_a_thread_that_hangs_keeps_no_process_from_ending(nvml: Standin):
    provider = Nvml()
    sampler = Sampler(provider, provider.find().devices)
    nvml.say("block nvmlDeviceGetUtilizationRates GPU-a")
    sampler.tick()
    hanging = [thread for thread in threading.enumerate() if thread.name == "read-0"]
    assert [thread.daemon for thread in hanging] == [True]
    nvml.say()
    settle(sampler)
    sampler.close()


def test_the_hosts_load_and_network_are_in_every_sample(clock):
    sampler = Sampler(Scripted(TWO), TWO, clock_s=clock)
    sampler.tick()
    clock.now_s += time.get_clock_info("monotonic").resolution + 1
    telemetry = sampler.tick()
    assert telemetry.host["load_1m"] is not None
    assert telemetry.host["page_faults_per_s"] is not None
    assert "loopback" in {one.kind for one in telemetry.interfaces}
    assert {name for name, value in telemetry.host.items() if value is None} == set(telemetry.missing)
