"""Commands show how they scale: their menus follow it, and they never grow to more than twice what they have shown."""

import pytest

from policies.jct.explored import alone_s, explored, is_command
from policies.jct.problem import Option, Options
from policies.model.cluster import MenuRequest, Observed
from scheduler.core.commands import command_request
from scheduler.protocol.spec import JobSpec

MENU = Options(Option("gpu", count, 1.0 / count, 10.0, None) for count in (1, 2, 4, 8, 16))


def seen(**step_times_s: float) -> list[Observed]:
    """By size: n2=0.5 is two devices."""
    return [Observed("gpu", int(size[1:]), None, seconds) for size, seconds in step_times_s.items()]


def by_size(options: Options) -> dict[int, float]:
    return {option.devices: option.step_time_s for option in options}


def test_a_command_that_tells_nothing_keeps_its_menu() -> None:
    assert explored(MENU, ()) is MENU


@pytest.mark.parametrize(("shown", "sizes"), [({"n1": 9.0}, [1, 2]), ({"n1": 9.0, "n4": 4.0}, [1, 2, 4, 8])])
def test_it_may_at_most_double_what_it_has_shown(shown: dict[str, float], sizes: list[int]) -> None:
    assert list(by_size(explored(MENU, seen(**shown)))) == sizes


def test_one_that_does_not_scale_is_offered_no_speed_by_more_devices() -> None:
    flat, scales = (by_size(explored(MENU, seen(n1=8.0, n2=at_two))) for at_two in (7.9, 4.1))
    assert flat[4] > 0.7
    assert scales[4] < 0.5


def test_steps_stay_those_of_one_device_whatever_the_programs_own_steps_take() -> None:
    quick, slow = (by_size(explored(MENU, seen(n1=s, n2=s / 2))) for s in (0.001, 1000.0))
    assert quick == pytest.approx(slow, rel=0.05)
    assert quick[1] == pytest.approx(1.0)


def test_only_commands_are_explored() -> None:
    spec = JobSpec(name="c", workdir="/", command=("true",), max_devices=4)
    assert is_command(command_request(spec))
    assert not is_command(MenuRequest((), 1, 1, 1))


def test_a_curve_is_fitted_once_while_a_measurement_wavers() -> None:
    assert explored(MENU, seen(n1=8.0, n2=4.01)) is explored(MENU, list(reversed(seen(n1=8.02, n2=4.0))))


def test_a_step_on_one_device_is_read_from_the_curve_of_the_kind_where_it_ran_last() -> None:
    assert alone_s(seen(n1=8.0, n2=4.0)) == pytest.approx(8.0, rel=0.1)
    assert alone_s([*seen(n1=8.0), Observed("fast", 1, None, 2.0)]) == pytest.approx(2.0, rel=0.1)
    assert alone_s([]) is None
