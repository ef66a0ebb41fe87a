"""A sample on the wire: bounded, whole or counted."""

import msgspec

from scheduler.protocol.codec import decode_from_agent, encode
from scheduler.protocol.messages import Beat
from scheduler.protocol.telemetry import MAX_BYTES, DeviceSample, InterfaceSample, Process, Telemetry, bounded

NAMES = tuple(f"value_number_{number}" for number in range(20))


def device(index: int, processes: int = 0) -> DeviceSample:
    used = tuple(Process(pid=pid, whose="other", name="python3") for pid in range(processes))
    return DeviceSample(id=f"GPU-{index}", values=dict.fromkeys(NAMES), missing=dict.fromkeys(NAMES, "x" * 500),
                        processes=used)  # fmt: skip


def size(telemetry: Telemetry) -> int:
    return len(msgspec.msgpack.encode(telemetry))


def test_a_sample_of_eight_gpus_goes_up_whole():
    telemetry = Telemetry(number=1, devices=tuple(map(device, range(8))))
    sent = bounded(telemetry)
    assert (len(sent.devices), sent.left_out) == (8, 0)
    beat = Beat(session="s", seq=1, applied=0, telemetry=sent)
    assert decode_from_agent(encode(beat)) == beat


def test_what_has_no_room_is_left_out_and_counted():
    interfaces = tuple(InterfaceSample(name=f"veth{number}", kind="virtual", up=True) for number in range(2000))
    telemetry = Telemetry(number=1, devices=tuple(map(device, range(1024))), interfaces=interfaces)
    sent = bounded(telemetry)
    assert size(telemetry) > MAX_BYTES >= size(sent)
    assert 0 < len(sent.devices) < 1024
    assert sent.left_out == 1024 - len(sent.devices) + 2000 - len(sent.interfaces)
    assert bounded(sent) == sent


def test_a_device_with_very_many_processes_tells_the_first():
    sent = bounded(Telemetry(number=1, devices=(device(0, processes=5000),)))
    assert sent.devices[0].processes is not None
    assert [process.pid for process in sent.devices[0].processes] == list(range(32))


def test_what_a_predictor_says_of_itself_is_cut_short():
    found = bounded(Telemetry(number=1, predictor="p" * 1_000_000, fallback="f" * 1_000_000))
    assert len(found.predictor) == len(found.fallback) == 500
