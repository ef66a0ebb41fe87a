"""Zero-bubble schedules with one stage a rank (Qi et al., 2023): weight gradients wait and fill what would be idle."""

from collections.abc import Iterator

from policies.ir.action import Action, Kind
from policies.ir.schedule import Schedule


def zb_h1(ranks: int, microbatches: int) -> Schedule:
    """Idle (P - 1)(F + I - W) for m >= P; activations as 1F1B."""
    return _parallelogram("zb-h1", microbatches, [(ranks - s, s) for s in range(ranks)])


def zb_h2(ranks: int, microbatches: int) -> Schedule:
    """Idle (P - 1)(F + I - 2W), nothing at F = I = W, for m >= 2P - 1; peak activations 2(P - s) - 1 on rank s."""
    return _parallelogram("zb-h2", microbatches, [(2 * (ranks - s) - 1, 2 * s) for s in range(ranks)])


def _parallelogram(name: str, microbatches: int, shape: list[tuple[int, int]]) -> Schedule:
    """Each rank: `ahead` forwards; `late` pairs (I, F); triples (I, F, W); once forwards run out pairs (I, W); then W.

    The weight gradients put off in the pairs (I, F) are those that end the rank's work, so that all ranks have the same
    length of work, each shifted by one forward: a parallelogram. shape: (ahead, late) of each rank.
    """
    orders = tuple(
        tuple(Action(stage, kind, i) for kind, i in _numbered(_kinds(microbatches, *of_rank)))
        for stage, of_rank in enumerate(shape)
    )
    return Schedule(name, microbatches, tuple(range(len(shape))), orders)


def _kinds(microbatches: int, ahead: int, late: int) -> list[Kind]:
    ahead = min(ahead, microbatches)
    pairs = min(late, microbatches - ahead)
    triples = microbatches - ahead - pairs
    f, i, w = Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT
    return [f] * ahead + [i, f] * pairs + [i, f, w] * triples + [i, w] * ahead + [w] * pairs


def _numbered(kinds: list[Kind]) -> Iterator[tuple[Kind, int]]:
    """Each kind runs through the micro-batches in order."""
    count = dict.fromkeys(Kind, 0)
    for kind in kinds:
        yield kind, count[kind]
        count[kind] += 1
