"""The 32 features: from what is measured, with nulls where it is not, and derived ones worked out."""

import time
from pathlib import Path

import pytest

from agent.forest.features import WINDOW_S, Features, slope
from agent.forest.schema import NODE
from agent.telemetry.members import NOBODY, Members, OwnUse
from scheduler.protocol.telemetry import DeviceSample, InterfaceSample, Process, Telemetry

GPU = DeviceSample(
    id="GPU-a", kind="H200",
    values={
        "busy_percent": 90.0, "memory_used_bytes": 30.0, "memory_total_bytes": 120.0, "power_w": 350.0,
        "power_limit_w": 700.0, "pcie_tx_bytes_per_s": 5.0, "pcie_rx_bytes_per_s": 7.0, "nvlink_tx_bytes_per_s": None,
    },
    throttled=("idle", "power cap"),
    processes=(Process(pid=1, whose="job", job=4), Process(pid=2, whose="other"), Process(pid=3, whose="unknown")),
)  # fmt: skip
LOOPBACK = InterfaceSample(name="lo", kind="loopback", up=True, values={"rx_bytes_per_s": 10.0, "tx_bytes_per_s": 20.0})
CARD = InterfaceSample(name="eth0", kind="physical", up=True, values={"rx_bytes_per_s": 1.0, "tx_bytes_per_s": None})
HOST = {
    "load_1m": 6.0, "busy_percent": 40.0, "tcp_segments_per_s": 50.0, "tcp_retransmits_per_s": 1.0,
    "memory_used_bytes": 1.0, "memory_total_bytes": 4.0,
}  # fmt: skip
GANG = {"GPU-a": (4, 1)}


def telemetry(*devices: DeviceSample) -> Telemetry:
    return Telemetry(number=1, devices=devices, interfaces=(LOOPBACK, CARD), host=HOST)


def core(busy: float, id: str = "core-0") -> DeviceSample:
    return DeviceSample(id=id, kind="cpu", values={"busy_percent": busy})


def of(device: DeviceSample, own=NOBODY, gangs=None):
    return Features(cores=4).of(telemetry(device), 0.0, {device.id: own}, gangs or {})[device.id]


def test_every_device_has_every_feature_and_no_other():
    for device in (GPU, core(5.0), DeviceSample(id="x")):
        assert set(of(device)) == set(NODE.names)


def test_raw_values_are_taken_and_ratios_worked_out():
    found = of(GPU, OwnUse(20.0, 0.0, 3.0), GANG)
    assert found["busy_percent"] == 90.0
    assert found["memory_used_share"] == 0.25
    assert found["power_share"] == 0.5
    assert found["throttle_reasons"] == 1.0
    assert found["pcie_bytes_per_s"] == 12.0
    assert found["foreign_processes"] == 2.0
    assert found["load_per_core"] == 1.5
    assert found["host_memory_used_share"] == 0.25
    assert found["loopback_bytes_per_s"] == 30.0
    assert found["network_bytes_per_s"] == 1.0
    assert found["tcp_retransmit_share"] == 0.02


def test_b56_what_is_not_measured_is_null_and_never_0():
    found = of(GPU)
    for name in ("sm_active_percent", "nvlink_bytes_per_s", "cpu_pressure_percent", "steal_percent"):
        assert found[name] is None
    found = of(DeviceSample(id="x", values={"busy_percent": None}))
    for name in ("busy_percent", "foreign_busy_percent", "busy_mean_percent", "foreign_processes", "memory_used_share"):
        assert found[name] is None


def test_a_device_without_a_member_of_ours_has_zeros_for_it_and_all_that_is_busy_is_foreign():
    found = of(core(80.0))
    assert (found["own_busy_percent"], found["own_wait_percent"], found["stage_busy_cv"]) == (0.0, 0.0, 0.0)
    assert found["foreign_busy_percent"] == 80.0


def test_a_member_that_cannot_be_seen_has_nulls():
    found = of(core(80.0), None, {"core-0": (4, 1)})
    assert found["own_busy_percent"] is None
    assert found["compute_communication_ratio"] is None
    assert found["foreign_busy_percent"] is None


def test_dyn13_computing_over_communicating_does_not_depend_on_who_else_runs():
    """60% of the time on the core and 40% waiting for messages; beside a neighbour, half as fast, 30 and 30 and 40."""
    alone = of(core(60.0), OwnUse(60.0, 0.0, 1.0), {"core-0": (4, 1)})
    assert alone["compute_communication_ratio"] == pytest.approx(1.5)
    assert alone["foreign_busy_percent"] == 0.0
    beside = of(core(60.0), OwnUse(30.0, 50.0, 1.0), {"core-0": (4, 1)})
    assert beside["compute_communication_ratio"] == pytest.approx(1.5)
    assert beside["foreign_busy_percent"] == 30.0


def test_dyn13_the_variation_across_the_stages_of_one_gang():
    sample = telemetry(core(50.0), core(100.0, "core-1"), core(10.0, "core-2"))
    gangs = {"core-0": (4, 1), "core-1": (4, 1), "core-2": (9, 1)}
    own = {"core-0": OwnUse(50, 0, 0), "core-1": OwnUse(100, 0, 0), "core-2": OwnUse(10, 0, 0)}
    found = Features(cores=4).of(sample, 0.0, own, gangs)
    assert found["core-0"]["stage_busy_cv"] == found["core-1"]["stage_busy_cv"] == pytest.approx(1 / 3)
    assert found["core-2"]["stage_busy_cv"] == 0.0


def test_dyn13_moving_averages_and_trends_are_over_the_last_seconds():
    features = Features(cores=4)
    for at, busy in enumerate([100.0, 10.0, 20.0, 30.0, 40.0]):
        found = features.of(telemetry(core(busy)), at * 1.0, {}, {})["core-0"]
    assert WINDOW_S == 3.0
    assert found["busy_mean_percent"] == 25.0
    assert found["busy_trend_percent_per_s"] == pytest.approx(10.0)


def test_a_trend_needs_two_moments():
    assert slope([]) is slope([(1.0, 2.0)]) is None
    assert slope([(0.0, 2.0), (2.0, 8.0)]) == pytest.approx(3.0)


def test_devices_that_left_are_forgotten():
    features = Features(cores=4)
    features.of(telemetry(core(1.0)), 0.0, {}, {})
    features.of(telemetry(core(1.0, "core-1")), 1.0, {}, {})
    assert list(features._past) == ["core-1"]


def thread(proc: Path, pid: int, tid: int, ran_s: float, waited_s: float, slices: int, children: str = "") -> None:
    folder = proc / str(pid) / "task" / str(tid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(f"{round(ran_s * 1e9)} {round(waited_s * 1e9)} {slices}\n")
    (folder / "children").write_text(children)


def test_a_members_use_is_that_of_all_its_threads_and_children(tmp_path):
    now = [0.0]
    members = Members(tmp_path, lambda: now[0])
    thread(tmp_path, 7, 7, 1.0, 0.0, 10, "9 ")
    thread(tmp_path, 7, 8, 1.0, 1.0, 10)
    thread(tmp_path, 9, 9, 0.0, 0.0, 0)
    assert members.read({"a": 7, "b": None, "c": 5}) == {"a": None, "b": None, "c": None}
    now[0] = 2.0
    thread(tmp_path, 7, 7, 1.5, 0.2, 20, "9 ")
    thread(tmp_path, 7, 8, 1.5, 1.2, 20)
    thread(tmp_path, 9, 9, 0.2, 0.0, 4)
    assert members.read({"a": 7})["a"] == OwnUse(60.0, pytest.approx(100 * 0.4 / 1.6), 12.0)


def test_a_thread_that_comes_or_goes_counts_for_nothing_until_it_is_seen_twice(tmp_path):
    now = [0.0]
    members = Members(tmp_path, lambda: now[0])
    thread(tmp_path, 7, 7, 1.0, 0.0, 0)
    members.read({"a": 7})
    now[0] = 1.0
    thread(tmp_path, 7, 7, 1.5, 0.0, 0)
    thread(tmp_path, 7, 8, 100.0, 0.0, 0)
    assert members.read({"a": 7})["a"] == OwnUse(50.0, 0.0, 0.0)


def test_what_a_busy_process_of_this_machine_uses_is_seen():
    """Whatever else runs here: a process that spins runs or waits, and does nothing else."""
    import os

    members, pid = Members(), os.getpid()
    members.read({"a": pid})
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    found = members.read({"a": pid})["a"]
    if found is None:
        pytest.skip("this kernel does not count what threads run and wait")
    assert found.busy_percent + found.wait_percent > 50


def crowd(busy_percent: float, wait_percent: float, host_percent: float, gangs: dict[str, tuple[int, int]]):
    """Four members, each on a CPU slot of its own, on two cores."""
    slots = [f"slot-{at}" for at in range(4)]
    sample = Telemetry(
        number=1, devices=tuple(core(100.0, slot) for slot in slots), host={"busy_percent": host_percent},
    )  # fmt: skip
    own = dict.fromkeys(slots, OwnUse(busy_percent, wait_percent, 1.0))
    return Features(cores=2).of(sample, 0.0, own, gangs)["slot-0"]


def test_a_gang_that_is_crowded_by_itself_has_no_neighbour():
    found = crowd(50.0, 50.0, 100.0, {f"slot-{at}": (4, 1) for at in range(4)})
    assert (found["own_wait_percent"], found["foreign_busy_percent"]) == (0.0, 0.0)


def test_in_a_crowd_the_part_that_strangers_have_is_still_seen():
    """Of 200%, the gang has 120 and strangers 80: of 70 ms in which a member waits for 30, they had 70 x 80 / 170."""
    found = crowd(30.0, 70.0, 100.0, {f"slot-{at}": (4, 1) for at in range(4)})
    waited = 70 * 80 / (80 + 90)
    assert found["own_wait_percent"] == pytest.approx(100 * waited / (30 + waited))
    assert found["foreign_busy_percent"] == pytest.approx(40.0)


def test_another_jobs_members_are_neighbours():
    found = crowd(50.0, 50.0, 100.0, {f"slot-{at}": (4 + at // 2, 1) for at in range(4)})
    assert found["own_wait_percent"] == pytest.approx(40.0)
    assert found["foreign_busy_percent"] == 50.0
