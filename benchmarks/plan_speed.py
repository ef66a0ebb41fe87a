"""Planning time: 1,000 layers on 64 GPUs, incremental repartition, menus, condensation curves. One core.

Run: python benchmarks/plan_speed.py
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace

from policies.cost import LayerCosts
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind, Link
from policies.model.families import family
from policies.model.profile import LayerProfile, ModelProfile
from policies.partition.blocks import blocks_of
from policies.partition.cuts import Cutter
from policies.planner import best_plans
from policies.shapes import Search

SCHEDULES = ("gpipe", "1f1b", "eager-1f1b")
KIND = DeviceKind("gpu", link=Link(1e-5, 1.2e10), action_s=0.0)


def random_profile(layers: int, seed: int) -> ModelProfile:
    """Heavy layers with light ones in between, as convolutions among activations are."""
    draw = random.Random(seed)
    rows = []
    for index in range(layers):
        forward_s = draw.lognormvariate(-6.5 if index % 3 == 0 else -9.5, 0.6)
        size = round(draw.lognormvariate(15, 0.8))
        rows.append(LayerProfile(f"l{index}", forward_s, forward_s, forward_s, size, size, 4_000_000))
    return ModelProfile("random", 1, "gpu", tuple(rows))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def full_plan(layers: int = 1000, gpus: int = 64, blocks: int = 256) -> tuple[float, float]:
    """(CPU seconds to plan, seconds a step of the plan)."""
    request = MenuRequest((random_profile(layers, 1),), 128, gpus, gpus, microbatch_size=1)
    search = Search(any_replicas=True, blocks=blocks)
    start = time.process_time()
    step_s = best_plans(request, KIND, search)[gpus].step_time_s
    return time.process_time() - start, step_s


def repartition(layers: int = 1000, gpus: int = 64) -> tuple[float, float, float]:
    """(CPU seconds, step before, step after) when one device becomes 1.5 times slower."""
    costs = LayerCosts(random_profile(layers, 1))
    plain = Cutter(costs, KIND)
    running = plain.candidates(gpus, 128)[0]
    slowed = Cutter(costs, KIND, [1.5 if stage == 20 else 1.0 for stage in range(gpus)])
    start = time.process_time()
    moved = slowed.repartition(running, 128)
    return time.process_time() - start, slowed.estimate(running, 128)[0], slowed.estimate(moved, 128)[0]


def llama_menu() -> float:
    request = MenuRequest((family("llama-7b", 1), family("llama-7b", 64)), 64, 1, 64)
    kind = replace(KIND, memory_bytes=80_000_000_000)
    search = Search(SCHEDULES, any_replicas=True, recompute=True, offload=True, precision="bfloat16")
    return seconds(lambda: best_plans(request, kind, search))


if __name__ == "__main__":
    spent, step = full_plan()
    print(f"1,000 layers on 64 GPUs: planned in {spent:.2f} s (bound 5 s), step {step * 1e3:.1f} ms")
    spent, before, after = repartition()
    print(f"repartition, a device 1.5x slower: {spent:.2f} s (bound 0.5 s), {before * 1e3:.1f} -> {after * 1e3:.1f} ms")
    print(f"menu for 1..64 GPUs of a 32-layer Llama: {llama_menu():.2f} s (bound 3 s)")
    print("condensation, linear in layers:")
    for layers in (1_000, 4_000, 16_000, 64_000):
        costs = LayerCosts(random_profile(layers, 2))
        print(f"  {layers:>6} layers: {seconds(lambda c=costs: blocks_of(c, KIND, 256)) * 1e3:7.2f} ms")
    print("planning 1,000 layers on 16 stages by blocks, against uncondensed:")
    costs = LayerCosts(random_profile(1000, 3))
    whole = Cutter(costs, KIND, most_blocks=1000)
    best = whole.period(whole.exact(whole.programme("loop", 16) or ()))
    for blocks in (64, 128, 256, 512):
        cutter = Cutter(costs, KIND, most_blocks=blocks)
        start = time.process_time()
        cut = cutter.candidates(16, 64)[0]
        spent = time.process_time() - start
        print(f"  {blocks:>5} blocks: {spent * 1e3:7.1f} ms, period {cutter.period(cut) / best - 1:+.2%}")
