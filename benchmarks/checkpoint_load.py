"""Loading about 200 MB of state by layer, against torch's distributed checkpoint, in one process and one run.

Wanted: >= 2x faster without verification, >= 1.2x with it.

    python benchmarks/checkpoint_load.py
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from worker.checkpoint import layerfile, manifest
from worker.checkpoint.directory import Directory
from worker.checkpoint.manifest import LayerEntry
from worker.checkpoint.verify import read_layers
from worker.layer import Layer, build_layers
from worker.models.gpt_stdlib import pipeline_job

REPEATS = 5


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
        entries.append(LayerEntry(name=layer.name, sha256=sha256, bytes=len(data), parameters={}, buffers={}))
    return entries


def flat(layers: dict[int, Layer]) -> dict[str, Any]:
    return {f"{layer.name}/{key}": tensor for layer in layers.values() for key, tensor in layer.state()[0].items()}


def median_s(run: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    layers = trained_layers()
    with tempfile.TemporaryDirectory() as folder:
        store = Directory(Path(folder) / "ours")
        entries = save_ours(layers, store)
        dcp.save(flat(layers), checkpoint_id=Path(folder) / "dcp", no_dist=True)

        def verified() -> None:
            for layer, state in zip(layers.values(), read_layers(store, entries), strict=True):
                layer.load(*state)

        def unverified() -> None:
            for layer, entry in zip(layers.values(), entries, strict=True):
                layer.load(*layerfile.unpack(store.read(manifest.layer_file(entry.sha256))))

        torch_s = median_s(lambda: dcp.load(flat(layers), checkpoint_id=Path(folder) / "dcp", no_dist=True))
        size = sum(entry.bytes for entry in entries)
        print(f"{size / 1e6:.0f} MB; torch's distributed checkpoint: {torch_s * 1e3:.0f} ms")
        for name, run in (("without verification", unverified), ("with every hash checked", verified)):
            seconds = median_s(run)
            print(f"by layer, {name}: {seconds * 1e3:.0f} ms, {torch_s / seconds:.1f}x faster")


if __name__ == "__main__":
    main()
