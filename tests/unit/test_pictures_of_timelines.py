import json
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from policies.cost import Durations
from policies.schedules.catalogue import FAMILIES, make_schedule
from policies.timing import compile_schedule
from scheduler.cli.timeline import as_dict
from scheduler.picture import png, svg, terminal
from scheduler.picture.chart import Chart, chart, ticks
from scheduler.picture.trace import trace


def picture(name: str = "1f1b", ranks: int = 2, count: int = 3, comm: float = 0.0) -> Chart:
    order = compile_schedule(make_schedule(name, ranks, count))
    stages = order.schedule.stages
    times = Durations((1.0,) * stages, (1.0,) * stages, (1.0,) * stages, (comm,) * (stages - 1))
    return chart(order, times, "a title")


def test_the_terminal_shows_numbers_letters_axis_and_legend() -> None:
    assert terminal.render(picture(), width=43).splitlines() == [
        "a title",
        "rank 0 0  1        0     2  1        2",
        "       FFFFFF······BBBBBBFFFBBBBBB···BBBBBB",
        "rank 1    0  0     1  1     2  2",
        "       ···FFFBBBBBBFFFBBBBBBFFFBBBBBB······",
        "       |0 s  |2 s  |4 s  |6 s  |8 s  |10 s",
        "F forward  B backward  · fill and drain",
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_box_and_every_gap_is_drawn_once_and_fills_the_row(name: str) -> None:
    drawn = picture(name, 4, 8, comm=0.3)
    for rank in range(drawn.ranks):
        pieces = [(s.start_s, s.end_s) for s in drawn.spans if s.rank == rank]
        pieces += [(g.start_s, g.end_s) for g in drawn.gaps if g.rank == rank]
        pieces.sort()
        assert pieces[0][0] == 0
        assert pieces[-1][1] == pytest.approx(drawn.makespan_s)
        assert all(a[1] == pytest.approx(b[0]) for a, b in pairwise(pieces))


def test_the_svg_is_well_formed_and_names_what_it_shows() -> None:
    text = svg.render(picture("zbv", 2, 4))
    root = ElementTree.fromstring(text)
    words = {element.text for element in root.iter() if element.text}
    assert {"rank 0", "rank 1", "forward", "backward, weight", "idle: fill and drain", "time in s"} <= words
    assert svg.render(picture("zbv", 2, 4)) == text
    assert 'fill="#222222">0</text>' in text, "numbers on pale boxes are dark"


def test_the_png_is_an_image(tmp_path: Path) -> None:
    png.write(picture(), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_trace_has_an_event_for_each_action_in_microseconds() -> None:
    events = trace(picture())["traceEvents"]
    work = [event for event in events if event["ph"] == "X" and event["cat"] != "idle"]
    assert len(work) == 2 * 3 * 2
    assert max(event["ts"] + event["dur"] for event in work) == pytest.approx(12e6)


def test_json_has_the_published_keys() -> None:
    order = compile_schedule(make_schedule("async-1f1b", 2, 3))
    times = Durations((1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.5,))
    answer = json.loads(json.dumps(as_dict(order, times)))
    assert answer["makespan_s"] > 0
    assert answer["steady_period_s"] == pytest.approx(3.5)  # (t1 + t2) / 2 + c
    assert answer["actions"][0] == {
        "rank": 0, "stage": 0, "kind": "F", "microbatch": 0, "slice": 0, "start_s": 0.0, "end_s": 1.0,
    }  # fmt: skip
    assert set(answer["ranks"][0]["idle_s"]) == {"fill_drain", "exposed_communication", "imbalance", "stall"}
    assert [rank["weight_versions"] for rank in answer["ranks"]] == [2, 1]
    assert [rank["peak_activations"] for rank in answer["ranks"]] == [2, 1]


def test_ticks_are_round_and_few() -> None:
    assert ticks(12.0) == [0, 2, 4, 6, 8, 10, 12]
    assert len(ticks(0.00037)) <= 11
    assert ticks(0.0) == [0.0]
