"""Training rows: features, the slowdown that belongs to them, and the situation in which they were measured."""

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from agent.folders import write_durably
from agent.forest.model import Hardware
from agent.forest.schema import SCHEMAS, Schema
from agent.forest.trees import Floats


class Situation(msgspec.Struct, frozen=True):
    """What a row was measured in. kinds: of the interference, sorted, joined by "+"; "alone" without any. batch: of the
    job. text: all of it, for people."""

    kinds: str
    batch: int
    text: str = ""


@dataclass(frozen=True)
class Rows:
    """features: (rows, features), not-a-number where missing. slowdowns: (rows,). situations: of each row."""

    schema: Schema
    hardware: Hardware
    features: Floats
    slowdowns: Floats
    situations: tuple[Situation, ...]

    def __len__(self) -> int:
        return len(self.slowdowns)

    def __getitem__(self, chosen: np.ndarray) -> "Rows":
        """A part, by a mask or by indices."""
        at = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        situations = tuple(self.situations[int(index)] for index in at)
        return Rows(self.schema, self.hardware, self.features[at], self.slowdowns[at], situations)

    def groups(self, of: str) -> np.ndarray:
        """A number for each row, equal where the situations agree in `of`: kinds, batch or both."""
        keys = [(one.kinds, one.batch) if of == "both" else getattr(one, of) for one in self.situations]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return np.array([numbers[key] for key in keys])


def collect(
    schema: Schema, hardware: Hardware, found: Iterable[tuple[Mapping[str, float | None], float, Situation]]
) -> Rows:
    measured = list(found)
    features = np.array([schema.row(values) for values, _, _ in measured]).reshape(len(measured), len(schema.names))
    slowdowns = np.array([slowdown for _, slowdown, _ in measured], dtype=np.float64)
    return Rows(schema, hardware, features, slowdowns, tuple(situation for *_, situation in measured))


def folds(groups: np.ndarray, most: int, seed: int) -> Iterator[np.ndarray]:
    """Masks of what is held out: whole groups, spread evenly by their rows. A single group is cut into rows."""
    names, counts = np.unique(groups, return_counts=True)
    if len(names) < 2:
        groups = np.arange(len(groups)) % most
        names, counts = np.unique(groups, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    order = order[np.argsort(-counts[order], kind="stable")]
    filled = np.zeros(min(most, len(names)))
    fold = np.zeros(len(names), dtype=int)
    for at in order:
        fold[at] = filled.argmin()
        filled[fold[at]] += counts[at]
    for number in range(len(filled)):
        yield np.isin(groups, names[fold == number])


def both(one: Rows, other: Rows) -> Rows:
    """Raises ValueError where they are not of the same schema and hardware."""
    if (one.schema, one.hardware) != (other.schema, other.hardware):
        raise ValueError(f"rows of {one.hardware} and of {other.hardware} do not belong together")
    features = np.concatenate([one.features, other.features])
    slowdowns = np.concatenate([one.slowdowns, other.slowdowns])
    return Rows(one.schema, one.hardware, features, slowdowns, one.situations + other.situations)


class _Head(msgspec.Struct, frozen=True):
    schema: str
    hash: str
    hardware: Hardware
    situations: tuple[Situation, ...]


def save(path: Path, rows: Rows) -> None:
    """Raises OSError."""
    head = msgspec.json.encode(_Head(rows.schema.name, rows.schema.hash, rows.hardware, rows.situations))
    data = io.BytesIO()
    np.savez_compressed(
        data, head=np.frombuffer(head, dtype=np.uint8), features=rows.features, slowdowns=rows.slowdowns
    )
    write_durably(path, data.getvalue())


def load(path: Path) -> Rows:
    """Raises ValueError, OSError where it is no file of rows."""
    with np.load(path, allow_pickle=False) as found:
        head = msgspec.json.decode(found["head"].tobytes(), type=_Head)
        features, slowdowns = found["features"], found["slowdowns"]
    schema = SCHEMAS.get(head.schema)
    if schema is None or schema.hash != head.hash:
        raise ValueError(f"{path} has rows of another schema, {head.schema}")
    if features.shape != (len(slowdowns), len(schema.names)) or len(slowdowns) != len(head.situations):
        raise ValueError(f"{path} has arrays that do not fit together")
    return Rows(schema, head.hardware, features, slowdowns, head.situations)
