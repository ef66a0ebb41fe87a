"""Loading about 200 MB of state by layer, against torch's distributed checkpoint, in one process and one run.

Wanted: >= 2x faster without verification, >= 1.2x with it.

    python benchmarks/checkpoint_load.py
"""

import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed.checkpoint as dcp

from worker.checkpoint import layerfile, manifest
from worker.checkpoint.directory import Directory
from worker.checkpoint.manifest import LayerEntry
from worker.checkpoint.verify import read_layers
from worker.layer import Layer, build_layers
from worker.models.gpt_stdlib import pipeline_job

REPEATS = 9


def trained_layers() -> dict[int, Layer]:
    """Layers with optimizer state, as after one step."""
    job = pipeline_job(width=416, blocks=8, context=32)
    layers = build_layers(job, range(len(job.names)), torch.device("cpu"))
    for layer in layers.values():
        for parameter in layer.parameters.values():
            parameter.grad = torch.randn_like(parameter)
        layer.update(1e-3, None)
    return layers


def save_ours(layers: dict[int, Layer], store: Directory) -> list[LayerEntry]:
    entries = []
    for layer in layers.values():
        data = layerfile.pack(*layer.state())
        sha256 = layerfile.digest(data)
        store.write(manifest.layer_file(sha256), data, "benchmark")
        entry = LayerEntry(name=layer.name, sha256=sha256, bytes=len(data), parameters={}, buffers={})
        entries.append(msgspec.structs.replace(entry, crc32=zlib.crc32(data)))
    return entries


def flat(layers: dict[int, Layer]) -> dict[str, Any]:
    return {f"{layer.name}/{key}": tensor for layer in layers.values() for key, tensor in layer.state()[0].items()}


def medians_s(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Of interleaved runs, so that what else the machine does hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    torch.set_num_threads(1)
    layers = trained_layers()
    with tempfile.TemporaryDirectory() as folder:
        store = Directory(Path(folder) / "ours")
        entries = save_ours(layers, store)
        dcp.save(flat(layers), checkpoint_id=Path(folder) / "dcp", no_dist=True)

        def verified(entries: list[LayerEntry]) -> None:
            for layer, state in zip(layers.values(), read_layers(store, entries), strict=True):
                layer.load(*state)

        def unverified() -> None:
            for layer, entry in zip(layers.values(), entries, strict=True):
                layer.load(*layerfile.unpack(store.read(manifest.layer_file(entry.sha256))))

        old = [msgspec.structs.replace(entry, crc32=None) for entry in entries]
        runs: dict[str, Callable[[], object]] = {
            "torch's distributed checkpoint": partial(
                dcp.load, flat(layers), checkpoint_id=Path(folder) / "dcp", no_dist=True
            ),
            "by layer, without verification": unverified,
            "by layer, every CRC-32 checked": partial(verified, entries),
            "by layer, every SHA-256 checked (old checkpoints)": partial(verified, old),
        }
        found = medians_s(runs)
        print(f"{sum(entry.bytes for entry in entries) / 1e6:.0f} MB")
        torch_s = next(iter(found.values()))
        for name, seconds in found.items():
            print(f"{name}: {seconds * 1e3:.0f} ms, {torch_s / seconds:.1f}x")


if __name__ == "__main__":
    main()
