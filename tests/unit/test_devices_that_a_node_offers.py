"""From --devices to what is offered, also where NVML has failed."""

import pynvml
import pytest

from agent.devices import BadDevices, KnownGpus, offer_devices
from agent.devices.cpu import CpuSlots
from agent.devices.nvml import Nvml
from agent.devices.scripted import Scripted

MISMATCH = f"error nvmlInit * {pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}"


@pytest.fixture
def offer(tmp_path):
    return lambda option, memory=None: offer_devices(option, "n0", "machine", memory or KnownGpus(tmp_path))


def test_slots_keep_their_ids_over_restarts_and_have_a_provider_of_their_sort(offer):
    assert offer("cpu:2").devices == offer("cpu:2").devices
    assert isinstance(offer("cpu:2").provider, CpuSlots)
    fakes = offer("fake:3:a100")
    assert [device.kind for device in fakes.devices] == ["fake-a100"] * 3
    assert isinstance(fakes.provider, Scripted)


@pytest.mark.parametrize("option", ["", "gpu", "cpu", "cpu:0", "cpu:1025", "cpu:2:x", "fake:", "fake:-1", "fake:²"])
def test_what_is_no_option_is_refused(offer, option):
    with pytest.raises(BadDevices):
        offer(option)


def test_gpus_come_first_and_cpus_only_where_there_is_no_driver(nvml, offer):
    assert [device.id for device in offer(None).devices] == ["GPU-a", "GPU-b"]
    assert isinstance(offer(None).provider, Nvml)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_b54_a_host_that_never_had_a_gpu_offers_its_cores(nvml, offer, code):
    nvml.say(f"error nvmlInit * {code}")
    assert {device.kind for device in offer(None).devices} == {"cpu"}
    with pytest.raises(BadDevices, match="no GPU"):
        offer("nvml")


@pytest.mark.parametrize("option", [None, "nvml"])
def test_b54_with_a_mismatch_no_core_takes_the_place_of_a_gpu(nvml, offer, option):
    nvml.say(MISMATCH)
    found = offer(option)
    assert (found.devices, "version mismatch" in found.trouble) == ((), True)


@pytest.mark.parametrize("code", [1, 9, 12, 18, 999])
def test_b54_gpus_that_were_here_before_stay_offered_and_unwell(nvml, offer, code):
    offer(None)
    nvml.say(f"error nvmlInit * {code}")
    found = offer(None)
    assert [(device.id, device.healthy) for device in found.devices] == [("GPU-a", False), ("GPU-b", False)]
    assert {device.reason for device in found.devices} == {found.trouble}


def test_b54_a_driver_that_hangs_at_the_start_keeps_no_agent_from_starting(nvml, offer, monkeypatch):
    monkeypatch.setattr("agent.devices.offer.FIRST_FIND_S", 0.1)
    nvml.say("block nvmlInit *")
    assert offer(None).trouble == "NVML does not answer"


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": 1}'])
def test_a_broken_memory_of_gpus_is_no_memory(tmp_path, text):
    (tmp_path / "gpus.json").write_bytes(text)
    assert KnownGpus(tmp_path).gpus() == ()
    assert KnownGpus(None).gpus() == ()
