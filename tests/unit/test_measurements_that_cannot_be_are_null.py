"""What a node measures and cannot be true is null with a reason; the rest of the sample stands."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.devices.scripted import Moment, Scripted
from agent.telemetry.sampler import Sampler
from agent.telemetry.swings import Swings
from scheduler.protocol.messages import DeviceInfo
from scheduler.protocol.plausible import MOST
from scheduler.protocol.plausible_telemetry import IMPOSSIBLE, plausible_telemetry
from scheduler.protocol.slowdown import Slowdown, Source
from scheduler.protocol.telemetry import DeviceSample, InterfaceSample, Process, Telemetry

NAMES = (
    "busy_percent", "memory_used_bytes", "power_w", "temperature_c", "sm_clock_hz", "pcie_tx_bytes_per_s",
    "swing_period_s", "load_1m",
)  # fmt: skip
NAN, INF = math.nan, math.inf
SLOWED = Slowdown(device="d", ratio=1.5, low=1.2, high=1.9, confidence=0.8, source=Source.FOREST)


def sample(**changed: object) -> Telemetry:
    return Telemetry(number=1, devices=(DeviceSample(id="d", **changed),))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in NAMES for value in (NAN, INF, -INF, -1e4, 1e300)), ("busy_percent", 250.0),
        ("busy_percent", -1.0), ("power_w", -5.0), ("temperature_c", 5e3), ("memory_used_bytes", -1.0),
    ],
)  # fmt: skip
def test_such_a_value_is_null_with_a_reason_and_the_others_stand(name: str, value: float) -> None:
    values, missing = {"fans": 3.0, name: value}, {"pcie": "not supported here"}
    lo = InterfaceSample(name="lo", kind="loopback", up=True, values=values)
    found = plausible_telemetry(
        Telemetry(number=1, devices=(DeviceSample(id="d", values=values, missing=missing),), interfaces=(lo,),
                  host=values, missing=missing)
    )  # fmt: skip
    for one, reasons in ((found.devices[0], missing), (found.interfaces[0], {})):
        assert one.values == {"fans": 3.0, name: None}
        assert one.missing == {**reasons, name: IMPOSSIBLE}
    assert (found.host, found.missing) == ({"fans": 3.0, name: None}, {**missing, name: IMPOSSIBLE})


def test_what_can_be_true_is_left_as_it_is() -> None:
    values = {"busy_percent": 100.3, "temperature_c": -12.0, "memory_total_bytes": 2.0**40, "power_w": None,
              "nvlink_rx_bytes_per_s": 9e11, "sm_clock_hz": 1.98e9, "swing_period_s": 0.5}  # fmt: skip
    processes = (Process(pid=7, whose="other", memory_bytes=5),)
    before = sample(age_s=0.5, values=values, missing={"power_w": "no"}, slowdown=SLOWED, processes=processes)
    assert plausible_telemetry(before) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"ratio": NAN}, {"low": -1.0}, {"high": INF}, {"confidence": 7.0}, {"stage_ratio": NAN}, {"stage_low": INF},
    ],
)  # fmt: skip
def test_of_a_slowdown_that_cannot_be_nothing_is_known(fields: dict[str, float]) -> None:
    told = {"device": "d", "ratio": 1.5, "low": 1.2, "high": 1.9, "confidence": 0.8, "source": Source.FOREST, **fields}
    (device,) = plausible_telemetry(sample(age_s=0.5, slowdown=Slowdown(**told))).devices
    assert (device.slowdown, device.age_s, device.missing) == (None, 0.5, {"slowdown": IMPOSSIBLE})


@pytest.mark.parametrize("age_s", [NAN, -1.0, 1e12])
def test_an_age_that_cannot_be_is_unknown(age_s: float) -> None:
    processes = (Process(pid=1, whose="job", memory_bytes=-5),)
    (device,) = plausible_telemetry(sample(age_s=age_s, processes=processes)).devices
    assert (device.age_s, device.missing) == (None, {"age_s": IMPOSSIBLE})
    assert device.processes == (Process(pid=1, whose="job"),)


COUNTS = [(-1, 0), (2**63, MOST), (2**64 - 1, MOST), (MOST + 1, MOST)]


@pytest.mark.parametrize(("told", "nearest"), COUNTS)
@pytest.mark.parametrize("name", ["number", "late", "left_out"])
def test_a_count_that_cannot_be_is_the_nearest_that_can(name: str, told: int, nearest: int) -> None:
    fields = {"number": 3, "late": 1, "left_out": 2}
    assert plausible_telemetry(Telemetry(**fields | {name: told})) == Telemetry(**fields | {name: nearest})


@pytest.mark.parametrize(("told", "nearest"), COUNTS)
def test_of_a_process_only_its_number_must_be_known(told: int, nearest: int) -> None:
    before = sample(processes=(Process(pid=told, whose="job", job=told, memory_bytes=told, name="x"),))
    (device,) = plausible_telemetry(before).devices
    assert device.processes == (Process(pid=nearest, whose="job", name="x"),)


@given(st.dictionaries(st.sampled_from(NAMES), st.none() | st.floats()))
def test_every_value_that_is_left_is_finite_and_every_one_that_is_not_has_a_reason(values) -> None:
    (device,) = plausible_telemetry(sample(values=values)).devices
    assert device.values.keys() == values.keys()
    for name, value in device.values.items():
        assert value == values[name] if value is not None else values[name] is None or name in device.missing
        assert value is None or math.isfinite(value)


def test_no_swing_is_looked_for_in_what_cannot_be() -> None:
    info, now_s = DeviceInfo(id="d", kind="fake", index=0), [0.0]
    script = {"*": (Moment(from_s=0.0, values={"busy_percent": NAN}),)}
    sampler = Sampler(Scripted((info,), script), (info,), clock_s=lambda: now_s[0])
    swings = Swings(lambda: now_s[0])
    for _ in range(9):
        now_s[0] += 0.5
        (device,) = swings.of(sampler.tick()).devices
        assert (device.values["busy_percent"], device.missing["busy_percent"]) == (None, IMPOSSIBLE)
