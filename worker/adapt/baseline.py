"""What a job is like undisturbed, handed on when its shape changes: a device that is slow by then stays known as slow.

Key in the next generation's store: baseline (null where the old pilot knew none yet).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from policies.model.device import Link
from policies.model.profile import ModelProfile
from worker.adapt.situation import Pair, pair_of
from worker.rendezvous import Rendezvous

KEY = "baseline"
READ_S = 10.0


@dataclass(frozen=True)
class Baseline:
    """profile: the layers as they were measured undisturbed. links: by pair of ranks."""

    profile: ModelProfile
    links: Mapping[Pair, Link] = field(default_factory=dict)

    def fits(self, profile: ModelProfile) -> bool:
        """Whether it tells of the same layers at the same micro-batch size."""
        own = self.profile
        return (len(own.layers), own.microbatch_size) == (len(profile.layers), profile.microbatch_size)


class _Told(msgspec.Struct):
    """links: (member, member, latency in seconds, bytes a second)."""

    profile: ModelProfile
    links: list[tuple[int, int, float, float]]


def described(baseline: Baseline, members: Sequence[int]) -> Any:
    """As JSON. members: of each rank; links belong to members, since ranks are counted anew."""
    links = [
        (members[a], members[b], link.latency_s, link.bandwidth_bytes_per_s) for (a, b), link in baseline.links.items()
    ]
    return msgspec.to_builtins(_Told(baseline.profile, links))


def read(told: Any, members: Sequence[int]) -> Baseline:
    """The same among other ranks; links of members that have left are forgotten."""
    found = msgspec.convert(told, _Told)
    rank_of = {member: rank for rank, member in enumerate(members)}
    links = {
        pair_of(rank_of[a], rank_of[b]): Link(latency_s, rate)
        for a, b, latency_s, rate in found.links
        if a in rank_of and b in rank_of
    }
    return Baseline(found.profile, links)


def hand_on(meet: Rendezvous, baseline: Baseline | None, members: Sequence[int]) -> None:
    """The old pilot's word. members: of the old ranks. Raises PeerLost where the store is gone."""
    meet.set(KEY, described(baseline, members) if baseline is not None else None)


def taken_over(meet: Rendezvous, members: Sequence[int]) -> Baseline | None:
    """What the old pilot has left to the new one. members: of the new ranks. Raises Ended where the store is gone."""
    told = meet.get(KEY, READ_S)
    return read(told, members) if told is not None else None
