"""What the `jct` policy promises: large where it is free, small where others wait, no change that does not pay, no job
that waits for ever."""

from policies.jct.joint import Joint, Settings
from policies.jct.patience import Patience, waiting_bound_s
from policies.jct.problem import JobDemand, NodeRoom, Option, Options, Problem
from policies.jct.rooms import Rooms

RESTART_S = 100.0
ELASTIC = Options(Option("gpu", n, 1 / n**0.8, RESTART_S, f"p{n}", (n,)) for n in (1, 2, 4, 8))


def nodes(count: int, free: int = 8) -> tuple[NodeRoom, ...]:
    return tuple(NodeRoom(f"n{i}", "gpu", 8, free) for i in range(count))


def sizes(*jobs: JobDemand, count: int = 1, free: int = 8) -> dict[str, int]:
    grants = Joint().allocate(Problem(0.0, nodes(count, free), jobs), 1000)
    return {grant.id: sum(grant.placement.values()) for grant in grants}


def test_a_job_alone_gets_what_is_fastest() -> None:
    assert sizes(JobDemand("a", 0.0, ELASTIC, 1e5)) == {"a": 8}


def test_jobs_that_come_together_share() -> None:
    found = sizes(*(JobDemand(f"j{n}", 0.0, ELASTIC, 1e5) for n in range(8)))
    assert len(found) >= 4
    assert max(found.values()) <= 2


def running(steps: float, size: int, since_s: float = 1e4) -> JobDemand:
    option = next(option for option in ELASTIC if option.devices == size)
    return JobDemand("run", 1e4, ELASTIC, steps, 1e4, 0, since_s, placement={"n0": size}, plan=option.plan)


def test_a_running_job_grows_only_where_that_pays_for_its_restart() -> None:
    assert sizes(running(1e5, 2), free=6) == {"run": 8}
    assert sizes(running(100, 2), free=6) == {}


def test_a_job_that_has_just_changed_is_left_alone() -> None:
    assert sizes(running(1e5, 2, since_s=60.0), free=6) == {}


def test_a_long_job_makes_way_for_a_short_one() -> None:
    short = JobDemand("short", 0.0, ELASTIC, 500.0)
    found = sizes(running(1e6, 8), short, free=0)
    assert found["short"] > 0
    assert found["run"] <= 8 - found["short"]


def test_a_stream_of_small_jobs_does_not_starve_a_large_one() -> None:
    """FAULTS B33: eight 1-device jobs of two minutes at a time, without end."""
    settings = Settings(bound=Patience(3_600.0))
    small = Options([Option("gpu", 1, 1.0, 0.0, "one", (1,))])
    gang = Options([Option("gpu", 8, 1.0, 0.0, "all", (8,))])
    rooms, ends, made = Rooms(nodes(1)), {}, 0
    waiting: dict[str, float] = {"gang": 0.0}
    for now in range(0, 8 * 3600, 15):
        for id in [id for id, (end, _) in ends.items() if end <= now]:
            rooms.give(ends.pop(id)[1])
        while sum(id != "gang" for id in waiting) < 8:
            made += 1
            waiting[f"s{made}"] = float(now)
        jobs = [JobDemand(id, now - at, gang if id == "gang" else small, 120.0) for id, at in waiting.items()]
        jobs += [
            JobDemand(id, 120.0, small, end - now, since_change_s=120.0 - (end - now), placement=held, plan="one")
            for id, (end, held) in ends.items()
        ]
        room = tuple(NodeRoom(node.id, "gpu", 8, rooms.free(node.id)) for node in rooms.nodes)
        for grant in Joint(settings).allocate(Problem(float(now), room, tuple(jobs)), 1000):
            if grant.id == "gang":
                assert now <= waiting_bound_s(settings.bound, 120.0) + 120.0 + 15.0
                return
            rooms.take(grant.placement)
            ends[grant.id] = (now + 120.0, grant.placement)
            del waiting[grant.id]
    raise AssertionError("the gang never started")


def test_a_job_follows_the_devices_that_are_there_in_sizes_it_allows() -> None:
    """32, of which a node goes away: 24; and 32 again when it is back. It does not wait for the node."""
    allowed = Options(Option("gpu", n, 32 / n, 60.0, f"p{n}", (8,) * (n // 8)) for n in (16, 24, 32))

    def ask(job: JobDemand, count: int, free: int) -> int:
        grants = Joint().allocate(Problem(0.0, nodes(count, free), (job,)), 1000)
        return sum(grants[0].placement.values()) if grants else job.devices

    assert ask(JobDemand("elastic", 0.0, allowed, 1e5), 4, 8) == 32
    assert ask(JobDemand("elastic", 60.0, allowed, 9e4, 1e6), 3, 8) == 24
    held = {"n0": 8, "n1": 8, "n2": 8}
    back = JobDemand("elastic", 1e4, allowed, 8e4, 1e6, 1, 1e4, placement=held, plan="p24")
    room = tuple(NodeRoom(f"n{i}", "gpu", 8, 8 if i == 3 else 0) for i in range(4))
    (grant,) = Joint().allocate(Problem(0.0, room, (back,)), 1000)
    assert sum(grant.placement.values()) == 32
    nearly_done = JobDemand("elastic", 1e4, allowed, 50.0, 1e6, 1, 1e4, placement=held, plan="p24")
    assert Joint().allocate(Problem(0.0, room, (nearly_done,)), 1000) == (), "not where it does not pay"


def test_elastic_jobs_end_sooner_than_rigid_ones_where_devices_come_and_go() -> None:
    """The job of 24 to 32 runs while the rigid one of 32 waits for the node."""
    elastic = Options(Option("gpu", n, 32 / n, 60.0, f"p{n}", (8,) * (n // 8)) for n in (24, 32))
    rigid = Options([elastic[1]])
    assert sizes(JobDemand("a", 0.0, elastic, 1e5), count=3) == {"a": 24}
    assert sizes(JobDemand("a", 0.0, rigid, 1e5), count=3) == {}


def test_fragments_are_consolidated_where_that_pays() -> None:
    """Two short jobs of two devices on two nodes: one moves, and the gang of eight starts."""
    two = Options([Option("gpu", 2, 1.0, 10.0, "two", (2,))])
    gang = Options([Option("gpu", 8, 1.0, 10.0, "all", (8,))])
    room = (NodeRoom("n0", "gpu", 8, 6), NodeRoom("n1", "gpu", 8, 6))

    def small(id: str, node: str, steps: float) -> JobDemand:
        return JobDemand(id, 1e4, two, steps, 2e4, 0, 1e4, placement={node: 2}, plan="two")

    def ask(steps: float) -> dict[str, int]:
        jobs = (small("a", "n0", steps), small("b", "n1", steps), JobDemand("gang", 100.0, gang, 1e4))
        return {grant.id: len(grant.placement) for grant in Joint().allocate(Problem(0.0, room, jobs), 1000)}

    moved = ask(1e5)
    assert moved.pop("gang") == 1
    assert list(moved.values()) == [1], "the other goes on beside"
    assert ask(5.0) == {}, "they end sooner than a move takes"


RIGID = Options([Option("gpu", 4, 1.0, RESTART_S, "four", (4,))])


def beside_neighbours(*slowdowns: float, free: tuple[int, ...] | None = None) -> tuple[NodeRoom, ...]:
    """Nodes of four devices."""
    free = free or (4,) * len(slowdowns)
    return tuple(
        NodeRoom(f"n{at}", "gpu", 4, free[at], slowdown=slowdown) for at, slowdown in enumerate(slowdowns)
    )  # fmt: skip


def placed(*jobs: JobDemand, rooms: tuple[NodeRoom, ...]) -> dict[str, dict[str, int]]:
    return {grant.id: dict(grant.placement) for grant in Joint().allocate(Problem(0.0, rooms, jobs), 1000)}


def on_n0(slowdown: float, steps: float = 1e5) -> JobDemand:
    return JobDemand("run", 1e4, RIGID, steps, 1e4, 0, 1e4, placement={"n0": 4}, plan="four", slowdown=slowdown)


def test_a_job_goes_where_it_is_calmer_and_never_waits_for_what_is_nowhere() -> None:
    new = JobDemand("new", 0.0, RIGID, 1e5)
    assert placed(new, rooms=beside_neighbours(3.0, 1.0)) == {"new": {"n1": 4}}
    assert placed(new, rooms=beside_neighbours(3.0)) == {"new": {"n0": 4}}


def test_a_job_waits_for_a_calm_node_rather_than_to_take_thrice_as_long() -> None:
    """One without a size to choose takes what is free: there only the order counts."""
    sizes = Options(Option("gpu", n, 4 / n, RESTART_S, f"p{n}", (n,)) for n in (3, 4))
    rooms = beside_neighbours(3.0, 1.0, free=(4, 0))
    assert placed(JobDemand("new", 0.0, sizes, 1e5), rooms=rooms) == {}
    assert placed(JobDemand("new", 0.0, RIGID, 1e5), rooms=rooms) == {"new": {"n0": 4}}


def test_calm_devices_that_one_job_has_got_are_not_counted_for_the_next() -> None:
    """Two of four are calm, and another node will be: one job takes the two, the other waits."""
    sizes = Options(Option("gpu", n, 4 / n, RESTART_S, f"p{n}", (n,)) for n in (2, 3))
    rooms = (
        NodeRoom("n0", "gpu", 4, 4, slowdown=3.0, slowdowns=(1.0, 1.0, 3.0, 3.0)), NodeRoom("n1", "gpu", 4, 0),
    )  # fmt: skip
    a, b = (JobDemand(id, 0.0, sizes, 1e5) for id in "ab")
    assert placed(a, b, rooms=rooms) == {"a": {"n0": 2}}


def test_a_running_job_moves_away_from_a_neighbour_where_that_pays() -> None:
    assert placed(on_n0(1.5), rooms=beside_neighbours(1.5, 1.0, free=(0, 4))) == {"run": {"n1": 4}}
    assert placed(on_n0(1.5, steps=50), rooms=beside_neighbours(1.5, 1.0, free=(0, 4))) == {}


def test_a_neighbour_is_no_reason_to_change_where_it_is_no_calmer() -> None:
    assert placed(on_n0(3.0), rooms=beside_neighbours(3.0, free=(0,))) == {}
    assert placed(on_n0(3.0), rooms=beside_neighbours(3.0, 3.0, free=(0, 4))) == {}


def test_nobody_makes_room_for_a_job_that_flees_from_a_neighbour() -> None:
    calm = JobDemand("calm", 1e4, RIGID, 1e6, 1e4, 0, 1e4, placement={"n1": 4}, plan="four")
    assert placed(on_n0(3.0), calm, rooms=beside_neighbours(3.0, 1.0, free=(0, 0))) == {}


def test_a_job_that_a_neighbour_slows_makes_room_as_it_would_alone() -> None:
    """It runs for thrice as long as without the neighbour, so to wait for its end is no better than ever."""
    two = Options([Option("gpu", 2, 1.0, 10.0, "two", (2,))])
    sizes = Options(Option("gpu", n, 4 / n, 10.0, f"p{n}", (n,)) for n in (1, 2, 3, 4))
    large = JobDemand("large", 1e3, sizes, 60.0, 1e3, 0, 1e3, placement={"n0": 4}, plan="p4", slowdown=3.0)
    small = JobDemand("small", 0.0, two, 60.0)
    assert placed(large, small, rooms=beside_neighbours(3.0, free=(0,))) == {"large": {"n0": 2}, "small": {"n0": 2}}
