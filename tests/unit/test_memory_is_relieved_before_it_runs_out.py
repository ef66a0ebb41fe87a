"""Before an allocation fails: pressure is told from level and slope, versions go to host memory, layers leave."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from gang import JOBS
from hypothesis import given
from hypothesis import strategies as st

from policies.cost import LayerCosts
from policies.model.device import DeviceKind
from policies.model.profile import LayerProfile, ModelProfile
from policies.pricing import make_plan
from worker.adapt import memory
from worker.adapt.candidates import Terms, bounds_of, relief
from worker.adapt.memory import Pressure, Watch, measured
from worker.adapt.pricing import held_bytes
from worker.adapt.situation import Ground, Situation
from worker.adapt.spill import furthest
from worker.adapt.statistics import Memory
from worker.generation import Generation
from worker.layer import build_layers
from worker.versions import LEAST_VERSIONS, VersionedStage

CPU = torch.device("cpu")
WATERMARK = 0.9


def levels(shares: Sequence[float], every_s: float = 0.5) -> list[Pressure]:
    watch = Watch(WATERMARK)
    return [watch.take(every_s * i, Memory(share, 1.0)) for i, share in enumerate(shares)]


def test_a_level_above_the_watermark_presses_at_once() -> None:
    assert levels([0.5, 0.5, 0.91]) == [Pressure.NONE, Pressure.NONE, Pressure.HIGH]


def test_a_slope_that_leads_there_presses_beforehand() -> None:
    """From 0.72 on by 0.02 a second: the watermark is 10 s away at 0.7."""
    found = levels([0.72 + 0.01 * i for i in range(12)])
    assert found[-1] is Pressure.RISING
    assert Pressure.HIGH not in found


def test_a_level_that_only_swings_does_not_press() -> None:
    assert set(levels([0.80, 0.84] * 10)) == {Pressure.NONE}


def test_filling_up_at_the_start_is_no_pressure() -> None:
    assert set(levels([0.1 * i for i in range(7)])) == {Pressure.NONE}


def test_steps_shorter_than_a_measurement_do_not_make_a_trend_of_one_allocation() -> None:
    """Steps of 20 ms, a new measurement every half second: once half a percent more, and nothing for ever after."""
    found = levels([0.80] * 250 + [0.805] * 250, every_s=0.02)
    assert set(found) == {Pressure.NONE}


def test_memory_of_unknown_size_never_presses() -> None:
    watch = Watch(WATERMARK)
    assert watch.take(0.0, Memory()) is Pressure.NONE


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process's own cgroup, /outer/inner."""
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "PROC_CGROUP", tmp_path / "self")
    (tmp_path / "self").write_text("9:name=systemd:/\n0::/outer/inner\n")
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True)
    return inner


def limited(group: Path, limit: str, current: int, inactive_file: int = 0) -> None:
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{current}\n")
    (group / "memory.stat").write_text(f"anon 1\nfile 2\ninactive_file {inactive_file}\n")


def test_files_that_were_read_once_fill_no_memory(group: Path) -> None:
    """A data set larger than the limit keeps a cgroup full of its pages, and the kernel drops them for anybody."""
    limited(group, "1000", current=990, inactive_file=700)
    assert measured(CPU) == Memory(290.0, 1000.0)


def test_the_limit_may_be_that_of_a_group_around_it(group: Path) -> None:
    limited(group, "max", current=100)
    limited(group.parent, "1000", current=800)
    assert measured(CPU) == Memory(800.0, 1000.0)
    limited(group, "110", current=100)
    assert measured(CPU) == Memory(100.0, 110.0)


def test_without_a_limit_memory_is_of_unknown_size(group: Path) -> None:
    assert measured(CPU) == Memory()
    limited(group, "max", current=100)
    assert measured(CPU) == Memory()


@given(st.lists(st.floats(0, 0.05), min_size=1, max_size=60))
def test_no_slow_growth_reaches_the_cap_untold(growth: list[float]) -> None:
    """An allocator that grows by at most a twentieth between two looks is stopped by the first word."""
    watch, share = Watch(WATERMARK), 0.3
    for i, more in enumerate(growth):
        share += more
        if watch.take(0.5 * i, Memory(share, 1.0)) is not Pressure.NONE:
            break
    assert share <= 1.0


def stage() -> VersionedStage:
    sys.path.append(str(JOBS))
    try:
        import tiny
    finally:
        sys.path.remove(str(JOBS))
    job = tiny.job(dropout=0.1, clip=None)
    layers = build_layers(job, range(len(job.names)), CPU)
    return VersionedStage(list(layers.values()), job.loss, job.seed, CPU, None, 4, delayed=False)


def trained(made: VersionedStage, alive: int = 5, microbatches: int = 12) -> list[torch.Tensor]:
    """As the first of `alive` stages would: so many micro-batches are between their forward and their backward."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 32, (microbatches, 2, 8), generator=generator)
    made.begin(0, lambda step: 1e-2)
    losses = []
    for i in range(microbatches + alive):
        if i < microbatches:
            losses.append(made.forward(0, i, tokens[i], tokens[i]))
        if i >= alive:
            made.backward(i - alive, None, 1.0)
    return [*losses, *(p.detach() for layer in made.layers for p in layer.parameters.values())]


def test_versions_that_wait_in_host_memory_come_back_bit_for_bit() -> None:
    plain, short = stage(), stage()
    short.resident = LEAST_VERSIONS
    expected, found = trained(plain), trained(short)
    assert plain.peak_resident == plain.peak > LEAST_VERSIONS + 2
    assert short.peak == plain.peak
    assert short.peak_resident <= LEAST_VERSIONS + 1
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize(("device", "resident"), [("cuda", LEAST_VERSIONS), ("cpu", None)])
def test_versions_go_to_host_memory_only_where_they_are_not_there_already(device: str, resident: int | None) -> None:
    """To copy them from and to the same memory takes time, and more of it."""
    generation, made = object.__new__(Generation), stage()
    generation._device, generation._stages = torch.device(device), {0: made}
    generation.relieve()
    assert made.resident == resident


def test_what_is_used_last_is_put_away_first() -> None:
    assert furthest([3, 4, 5, 6], uses=[3, 6, 4, 5], keep=2) == [4, 5]
    assert furthest([3, 4, 5, 6], uses=[6], keep=1) == [3, 4, 5]
    assert furthest([3], uses=[3], keep=2) == []


def test_layers_leave_a_device_that_is_short_of_memory_even_where_that_costs_speed() -> None:
    layer = LayerProfile("layer", 0.01, 0.01, 0.01, 1000, 1000, 1_000_000)
    ground = Ground(LayerCosts(ModelProfile("m", 1, "cpu", (layer,) * 8)), DeviceKind("cpu"))
    plan = make_plan((0, 2, 4, 6, 8), (8,), 1, "1f1b")
    terms = Terms(pause_s=1e9, bandwidth_bytes_per_s=1.0, left_s=1.0, horizon_s=1.0)
    room = [0.0, 0.0, float("inf"), float("inf")]
    found = relief(plan, plan, ground, Situation((1.0,) * 4), terms, 1, room)
    assert found is not None
    before, after = held_bytes(plan, ground), held_bytes(found.plan, ground)
    assert after[1] < before[1]
    assert after[0] <= before[0]
    assert bounds_of(found.plan)[:2] == (0, 2)


def test_a_device_that_is_short_of_memory_is_relieved_though_another_is_as_well() -> None:
    """Nothing goes to the other one, and that is enough: it need not get its own room back in the same change."""
    layer = LayerProfile("layer", 0.01, 0.01, 0.01, 1000, 0, 1_000_000)
    ground = Ground(LayerCosts(ModelProfile("m", 1, "cpu", (layer,) * 8)), DeviceKind("cpu"))
    plan = make_plan((0, 2, 4, 6, 8), (8,), 1, "1f1b")
    terms = Terms(pause_s=0.1, bandwidth_bytes_per_s=1e9, left_s=100.0, horizon_s=100.0)
    room = [-1_000.0, -1_000.0, float("inf"), float("inf")]
    found = relief(plan, plan, ground, Situation((1.0,) * 4), terms, 1, room)
    assert found is not None
    before, after = held_bytes(plan, ground), held_bytes(found.plan, ground)
    assert after[1] < before[1]
    assert after[0] <= before[0]


def test_where_nobody_has_room_nothing_moves() -> None:
    layer = LayerProfile("layer", 0.01, 0.01, 0.01, 1000, 1000, 1_000_000)
    ground = Ground(LayerCosts(ModelProfile("m", 1, "cpu", (layer,) * 8)), DeviceKind("cpu"))
    plan = make_plan((0, 2, 4, 6, 8), (8,), 1, "1f1b")
    terms = Terms(pause_s=0.1, bandwidth_bytes_per_s=1e9, left_s=100.0, horizon_s=100.0)
    assert relief(plan, plan, ground, Situation((1.0,) * 4), terms, 1, [0.0] * 4) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpus_memory_is_measured_and_given_back() -> None:
    from worker.adapt.spill import Shelf

    device = torch.device("cuda")
    tensor = torch.arange(1 << 24, dtype=torch.float32, device=device)
    copy = tensor.clone()
    held = torch.cuda.memory_allocated()
    shelf = Shelf()
    shelf.put(1, [tensor])
    assert torch.cuda.memory_allocated() <= held - tensor.numel() * 4 + 1024
    shelf.fetch(1)
    assert torch.equal(tensor, copy)
    assert 0 < measured(device).share < 1
