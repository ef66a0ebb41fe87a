"""Options for which even the empty cluster has no room are nobody's, but for what a job runs already."""

import pytest

from policies.jct.capacity import possible, sizes_of
from policies.jct.problem import Option, Options

CLUSTER = sizes_of([("a", 8), ("a", 8), ("a", 2), ("b", 4)])


def option(kind: str, devices: int, *per_node: int) -> Option:
    return Option(kind, devices, 1.0, 10.0, devices, per_node)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [((8,), True), ((8, 8), True), ((2, 8, 8), True), ((1, 1, 1), True), ((8, 8, 4), False), ((1, 1, 1, 1), False)],
)
def test_a_shape_needs_nodes_that_are_large_enough_for_each_of_its_parts(shape: tuple[int, ...], fits: bool) -> None:
    menu = Options([option("a", sum(shape), *shape)])
    assert bool(possible(menu, CLUSTER)) is fits


def test_where_any_spread_will_do_only_the_sum_of_one_kind_counts() -> None:
    menu = Options(option(kind, count) for kind in ("a", "b") for count in (4, 5, 18, 19))
    assert [(o.kind, o.devices) for o in possible(menu, CLUSTER)] == [("a", 4), ("a", 5), ("a", 18), ("b", 4)]


def test_a_menu_that_fits_is_the_same_menu() -> None:
    menu = Options([option("a", 8)])
    assert possible(menu, CLUSTER) is menu


def test_what_a_job_runs_stays_on_its_menu_though_devices_are_drained_meanwhile() -> None:
    menu = Options([option("a", 4), option("a", 32), option("a", 64)])
    assert [o.devices for o in possible(menu, CLUSTER, plan=32, held=32)] == [4, 32]
