"""The terms that `jct prio` shows are those that the policy orders by: their sums give its order of claims."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.jct.problem import JobDemand, NodeRoom, Option, Options, Problem
from policies.jct.terms import sums
from policies.jct.work import look_at
from policies.registry import ALLOCATORS

DEMANDS = st.lists(
    st.tuples(
        st.floats(0, 1e5), st.floats(1, 1e6), st.sampled_from([0.5, 1.0, 2.0, 4.0]), st.floats(0.01, 10),
        st.floats(0, 1e5),
    ),
    min_size=2, max_size=8,
)  # fmt: skip


def demand(number: int, age_s: float, steps: float, weight: float, step_s: float, attained: float) -> JobDemand:
    menu = Options(Option("gpu", size, step_s / size**0.8, 10.0, f"p{size}") for size in (1, 2, 4))
    return JobDemand(str(number), age_s, menu, steps, attained_gpu_s=attained, weight=weight, asked=2)


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
@given(DEMANDS)
def test_larger_sums_claim_first(name, drawn):
    allocator = ALLOCATORS[name]()
    jobs = tuple(demand(number, *fields) for number, fields in enumerate(drawn))
    problem = Problem(0.0, (NodeRoom("n0", "gpu", 8, 8),), jobs)
    works = [look_at(job, {"n0": "gpu"}) for job in jobs]
    claimed = [sums(allocator.terms(work, works)) for work, _ in allocator.claims(problem, works)]
    for earlier, later in pairwise(claimed):
        assert earlier >= later or earlier == pytest.approx(later)
