"""What a store holds: its checkpoints, its fence, and what may be deleted."""

import re

from scheduler.protocol.messages import Cause
from worker.checkpoint import manifest
from worker.checkpoint.store import Store
from worker.errors import Ended

SAFE_AGE_S = 3600.0


def steps(store: Store) -> list[int]:
    """Steps that have a manifest, newest first. Whether they are good is another question."""
    found = [int(match[1]) for entry in store.names() if (match := re.fullmatch(r"step-(\d+)", entry))]
    return sorted((step for step in found if store.exists(manifest.name(step))), reverse=True)


def claim(store: Store, job: int, attempt: int, nonce: str) -> None:
    """Take the store for this attempt.

    Raises:
        Ended: FENCED, when a later attempt has it. OSError: the store cannot be written.
    """
    check_fence(store, job, attempt)
    name = f"claim-{job}.{attempt}"
    if not store.create(name, nonce.encode()) and store.read(name) != nonce.encode():
        raise Ended(Cause.FENCED, f"{store.place} holds {name} of another cluster; use another checkpoint directory")


def check_fence(store: Store, job: int, attempt: int) -> None:
    """Raises Ended, FENCED: a later attempt, of this job or a later one, claimed the store; this one must not write."""
    highest = max(claims(store), default=(job, attempt))
    if highest > (job, attempt):
        raise Ended(
            Cause.FENCED,
            f"attempt {highest[1]} of job {highest[0]} has claimed {store.place}; this is attempt {attempt} of "
            f"job {job}",
        )


def claims(store: Store) -> list[tuple[int, int]]:
    """(job, attempt) of every claim."""
    found = [re.fullmatch(r"claim-(\d+)\.(\d+)", entry) for entry in store.names()]
    return [(int(match[1]), int(match[2])) for match in found if match]


def clean_up(store: Store, keep: int) -> list[int]:
    """Delete all but the newest `keep` manifests, then layer files that no manifest names.

    A layer file goes when its manifest was just deleted here, or when it is older than an hour: a younger one may
    belong to a checkpoint that is being written. Returns the deleted steps. Only the pilot calls it, after a publish
    and a look at the fence. Raises OSError.
    """
    everything = steps(store)
    dropped = everything[max(keep, 1) :]
    superseded: set[str] = set()
    for step in dropped:
        superseded |= _files(store, step)
        store.delete(manifest.name(step))
    named: set[str] = set()
    for step in everything[: max(keep, 1)]:
        named |= _files(store, step)
    for entry in store.names("layers"):
        path = f"layers/{entry}"
        if path not in named and (path in superseded or store.age_s(path) > SAFE_AGE_S):
            store.delete(path)
    return dropped


def _files(store: Store, step: int) -> set[str]:
    """Layer files a manifest names; none where it is damaged: they go when they are old."""
    try:
        return {manifest.layer_file(entry.sha256) for entry in manifest.decode(store.read(manifest.name(step))).layers}
    except (OSError, ValueError):
        return set()
