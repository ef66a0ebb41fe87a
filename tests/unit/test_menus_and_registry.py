import json
from dataclasses import replace

import pytest
from samples import GPT, gpt_profile, request

from policies.jct.menu import build_menu, step_time_of
from policies.model.device import DeviceKind
from policies.planner import MOST_MICROBATCHES, microbatch_sizes
from policies.registry import find, names
from policies.schedules.lowering import orders_for

CPU = DeviceKind("cpu")


def test_a_menu_has_the_best_plan_of_each_size_and_travels_as_json() -> None:
    menu = build_menu(request(), (CPU,))
    entries = menu.of("cpu")
    assert list(entries) == [1, 2, 3, 4]
    assert all(len(entry.plan.stages) == n and entry.plan.global_batch == 16 for n, entry in entries.items())
    times = [entry.step_time_s for entry in entries.values()]
    assert times == sorted(times, reverse=True)
    assert all(len(orders_for(entry.plan)) == n for n, entry in entries.items())
    assert json.loads(json.dumps(menu.to_dict()))["entries"][0]["devices"] == 1


def test_what_the_job_pins_stays_pinned() -> None:
    pinned = replace(request(), microbatch_size=2, stages=(2,), schedule="gpipe")
    (entry,) = build_menu(pinned, (CPU,)).entries
    assert (entry.devices, entry.plan.microbatch_size, entry.plan.schedule) == (2, 2, "gpipe")
    assert microbatch_sizes(replace(request(), microbatches=4)) == (4,)
    assert microbatch_sizes(replace(request(), microbatches=4, microbatch_size=3)) == ()


def test_a_batch_of_too_many_micro_batches_has_no_plan_instead_of_holding_up_every_pass() -> None:
    assert microbatch_sizes(replace(request(), global_batch=MOST_MICROBATCHES, microbatch_size=1)) == (1,)
    assert microbatch_sizes(replace(request(), global_batch=2 * MOST_MICROBATCHES, microbatch_size=1)) == ()
    free = replace(request(), global_batch=2 * MOST_MICROBATCHES)
    assert all(free.global_batch // size <= MOST_MICROBATCHES for size in microbatch_sizes(free))
    assert build_menu(replace(request(), global_batch=2**40, microbatch_size=1), (CPU,)).entries == ()


def test_replicas_split_the_micro_batches_and_keep_pipelines_together() -> None:
    menu = build_menu(replace(request(), replicas=2, microbatch_size=4), (CPU,))
    entry = menu.of("cpu")[4]
    assert [stage.ranks for stage in entry.plan.stages] == [(0, 2), (1, 3)]
    assert entry.plan.stages[0].shares == (2, 2)


def test_a_plan_that_does_not_fit_never_wins() -> None:
    limit = 20_000
    menu = build_menu(request(), (replace(CPU, memory_bytes=limit),)).of("cpu")
    assert list(menu) == [3, 4]
    assert all(max(entry.memory_bytes) <= limit for entry in menu.values())


def test_layers_that_belong_together_are_not_cut() -> None:
    profile = gpt_profile()
    layers = tuple(replace(layer, atomic_with_next=i % 2 == 1) for i, layer in enumerate(profile.layers))
    menu = build_menu(request(profiles=(replace(profile, layers=layers),)), (CPU,))
    for entry in menu.entries:
        assert not any(stage.stop % 2 == 0 and stage.stop < len(layers) for stage in entry.plan.stages)


def test_a_running_plan_is_priced_like_the_menu_prices_it() -> None:
    entry = build_menu(request(), (CPU,)).of("cpu")[3]
    assert step_time_of(request(), entry.plan, CPU) == pytest.approx(entry.step_time_s)
    with pytest.raises(ValueError, match="no predicted step time"):
        step_time_of(request(profiles=()), entry.plan, CPU)


def test_the_global_batch_decides_the_sizes_within_what_was_measured() -> None:
    assert microbatch_sizes(request(batch=12, profiles=GPT)) == (1, 2, 3, 4)


def test_policies_are_found_by_name() -> None:
    assert "priority" in names()
    assert find("priority") is not None
    with pytest.raises(ValueError, match="unknown policy 'fastest'; choose one of"):
        find("fastest")


def test_what_fits_only_frugally_is_on_the_menu_and_all_else_as_it_would_be() -> None:
    """Six blocks with activations of 400 kB a sample and little else: one device holds them only if it recomputes."""
    profile = gpt_profile()
    rows = tuple(replace(row, activation_bytes=400_000, output_bytes=1000) for row in profile.layers)
    asked = replace(request(profiles=(replace(profile, layers=rows),)), schedule="gpipe", microbatch_size=1)
    whole = build_menu(asked, (CPU,)).of("cpu")
    limit = max(whole[3].memory_bytes)
    menu = build_menu(asked, (replace(CPU, memory_bytes=limit),)).of("cpu")
    assert [menu[n].plan.saving for n in (1, 2, 3, 4)] == [" with recompute", " with recompute", "", ""]
    assert {n: menu[n] for n in (3, 4)} == {n: whole[n] for n in (3, 4)}
    assert menu[1].step_time_s > whole[1].step_time_s
    assert all(max(entry.memory_bytes) <= limit for entry in menu.values())


def heavy(parameter_bytes: int, host_bandwidth_bytes_per_s: float, limit: int) -> str:
    """How one device holds a model of so many bytes a layer."""
    profile = gpt_profile()
    rows = tuple(replace(row, parameter_bytes=parameter_bytes, activation_bytes=100_000) for row in profile.layers)
    kind = replace(CPU, memory_bytes=limit, host_bandwidth_bytes_per_s=host_bandwidth_bytes_per_s)
    menu = build_menu(replace(request(1, 1, profiles=(replace(profile, layers=rows),)), schedule="gpipe"), (kind,))
    return ", ".join(entry.plan.saving.strip() for entry in menu.entries)


def test_of_the_ways_to_save_memory_the_fastest_is_taken_and_both_only_where_one_is_not_enough() -> None:
    assert heavy(100_000, 1e12, limit=17_000_000) == ""
    assert heavy(100_000, 1e12, limit=15_500_000) == "with offload"
    assert heavy(100_000, 1e6, limit=15_500_000) == "with recompute"
    assert heavy(100_000, 1e12, limit=3_000_000) == "with recompute with offload"


@pytest.mark.parametrize("schedule", ["sliced-1f1b", "async-1f1b", "2bw"])
def test_a_schedule_that_cannot_recompute_is_not_asked_to(schedule: str) -> None:
    profile = gpt_profile()
    rows = tuple(replace(row, activation_bytes=400_000, output_bytes=1000) for row in profile.layers)
    asked = replace(request(profiles=(replace(profile, layers=rows),)), schedule=schedule, microbatch_size=1)
    whole = build_menu(asked, (CPU,)).of("cpu")
    tight = build_menu(asked, (replace(CPU, memory_bytes=max(whole[4].memory_bytes)),)).of("cpu")
    assert 4 in tight
    assert 1 not in tight
    assert not any(entry.plan.recomputes for entry in tight.values())
