"""Rows and models for tests: a slowdown that depends on some features in a known way."""

import numpy as np

from agent.forest.model import ANY, Hardware, Model
from agent.forest.rows import Rows, Situation, collect
from agent.forest.schema import NODE, Schema
from agent.forest.training import train

CPU = Hardware("cpu", "2 cores")
KINDS = ("compute", "link", "loopback", "memory")


def rows(count: int = 240, schema: Schema = NODE, hardware: Hardware = CPU, seed: int = 0, noise: float = 0.02) -> Rows:
    """slowdown = 1 / (1 - wait), half as much again where there is much traffic and little else. Of the other features
    half are never known."""
    random = np.random.default_rng(seed)
    found = []
    for at in range(count):
        wait, traffic = random.uniform(0, 70), random.uniform(0, 1e8)
        known = {name: float(random.uniform(0, 100)) for name in schema.names[::2]}
        values = {**known, "own_wait_percent": wait, "loopback_bytes_per_s": traffic}
        crowded = 1.5 if traffic > 6e7 and wait < 35 else 1.0
        slowdown = crowded / (1 - wait / 100) * float(np.exp(random.normal(0, noise)))
        found.append((values, slowdown, Situation(KINDS[at % 4], (16, 32, 64)[at % 3])))
    return collect(schema, hardware, found)


GENERIC = Hardware("cpu", ANY)


def model(hardware: Hardware = GENERIC, trees: int = 20) -> Model:
    return train(rows(hardware=hardware), trees=trees)
