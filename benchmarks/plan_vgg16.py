"""VGG-16 on 2 and 4 GPUs at six bandwidths: our plan against four other ways to cut, by the same event timing.

Run: python benchmarks/plan_vgg16.py
"""

from dataclasses import replace
from pathlib import Path

from policies.cost import LayerCosts
from policies.model.cluster import MenuRequest
from policies.model.device import DeviceKind, Link
from policies.partition.cuts import Cutter, uniform
from policies.planner import best_plans
from policies.pricing import make_plan, price
from policies.shapes import Search
from scheduler.cli.profile_file import read_profile

MICROBATCHES = 32
PROFILE = Path(__file__).parent / "data" / "vgg16-profile.json"


def compare(gigabytes_per_s: float, gpus: int, microbatches: int = MICROBATCHES) -> dict[str, float]:
    """Seconds a step of each way to cut, 1F1B, no replicas."""
    profile = read_profile(PROFILE).profile
    costs, kind = LayerCosts(profile), DeviceKind("gpu", link=Link(0.0, gigabytes_per_s * 1e9), action_s=0.0)
    cutter = Cutter(costs, kind)
    cuts = {
        "uniform": uniform(len(costs), gpus),
        "parameters": cutter.programme("parameters", gpus),
        "compute": cutter.programme("compute", gpus),
        "max(compute, 2c)": cutter.programme("overlapped", gpus),
    }
    size = profile.microbatch_size
    steps = {
        name: price(make_plan(bounds, (microbatches,), size, "1f1b"), costs, kind).step_time_s
        for name, bounds in cuts.items()
        if bounds is not None
    }
    request = MenuRequest((profile,), size * microbatches, gpus, gpus, schedule="1f1b")
    steps["jctd"] = best_plans(request, kind, replace(Search(), any_replicas=False))[gpus].step_time_s
    return steps


if __name__ == "__main__":
    print(f"{'GPUs':>4} {'GB/s':>5}  " + "  ".join(f"{name:>16}" for name in compare(1, 2)))
    for gpus in (2, 4):
        for rate in (0.5, 1, 1.25, 3, 6, 12):
            row = "  ".join(f"{seconds:>14.3f} s" for seconds in compare(rate, gpus).values())
            print(f"{gpus:>4} {rate:>5}  {row}")
