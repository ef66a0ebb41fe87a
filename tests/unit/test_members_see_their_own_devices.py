"""What a member's environment says of its devices: UUIDs, whatever the order in which a library lists them."""

from pathlib import Path

import pytest

from scheduler.protocol.messages import Run, Target
from scheduler.protocol.spec import AttemptSpec, JobSpec
from worker import command
from worker.spawn import environment

PLACES = (("n0", "GPU-c"), ("n1", "GPU-a"), ("n0", "GPU-a0"), ("n0", "MIG-b"))


def target(member: int, kind: str = "train", **job: object) -> Target:
    way = {"command": ["true"]} if kind == "command" else {"entrypoint": "a:b"}
    spec = AttemptSpec(kind=kind, nonce="n", places=PLACES, job=JobSpec(name="t", workdir="/", **way, **job))
    return Target(job=1, attempt=1, member=member, device=PLACES[member][1], want=Run(), spec=spec,
                  ranks=tuple(range(len(PLACES))))  # fmt: skip


@pytest.mark.parametrize("member", range(len(PLACES)))
def test_b16_members_see_their_devices_by_uuid_and_never_by_index(member):
    seen = environment(target(member), Path("/attempt"))
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["LOCAL_RANK"]) == (PLACES[member][1], "0")


def test_b16_a_programs_local_rank_counts_the_devices_that_it_sees_on_its_node():
    for member, (node, device) in enumerate(PLACES):
        seen = command.variables(target(member, "command"), Path("/attempt"))
        visible = seen["CUDA_VISIBLE_DEVICES"].split(",")
        assert visible == [other for at, other in PLACES if at == node]
        assert visible[int(seen["LOCAL_RANK"])] == device


def test_a_users_own_setting_never_widens_what_is_seen():
    seen = environment(target(0, env={"CUDA_VISIBLE_DEVICES": "0,1,2,3"}), Path("/attempt"))
    assert seen["CUDA_VISIBLE_DEVICES"] == "GPU-c"


def test_a_slot_without_a_gpu_sees_none():
    made = target(0)
    slot = Target(job=1, attempt=1, member=0, device="cpu-0", want=Run(), spec=made.spec, ranks=made.ranks)
    assert environment(slot, Path("/attempt"))["CUDA_VISIBLE_DEVICES"] == ""
