"""Checkpoints are deltas by layer: what is unchanged is not written again, and is read back exactly (DYN-47)."""

import functools
from pathlib import Path

import msgspec
import torch
from torch import nn
from torch.distributed import HashStore

from policies.pricing import make_plan
from worker import PipelineJob, TensorData
from worker.checkpoint.directory import Directory
from worker.checkpoint.manifest import Manifest, ProcessGroups, Rng
from worker.checkpoint.saver import Saver
from worker.checkpoint.verify import read_layers, read_manifest
from worker.layer import Layer, build_layers
from worker.rendezvous import Rendezvous

WIDTH = 8


def frozen() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH).requires_grad_(False)


def made() -> list[Layer]:
    job = PipelineJob(
        layers={"frozen": frozen, "first": lambda: nn.Linear(WIDTH, WIDTH), "second": lambda: nn.Linear(WIDTH, WIDTH)},
        loss=nn.functional.mse_loss,
        data=TensorData(torch.zeros(2, WIDTH), torch.zeros(2, WIDTH)),
        optimizer=lambda parameters: torch.optim.AdamW(parameters),
        global_batch=2,
        total_steps=3,
    )
    return list(build_layers(job, range(3), torch.device("cpu")).values())


def train(layers: list[Layer]) -> None:
    value = torch.ones(2, WIDTH)
    for layer in layers:
        value = layer.module(value)
    value.square().sum().backward()
    for layer in layers:
        layer.update(0.1, None)


def save(saver: Saver, layers: list[Layer], step: int) -> None:
    blank = Manifest(
        job=1, attempt=1, step=step, samples=2 * step, global_batch=2, learning_rate=0.1, rng=Rng(seed=0),
        fingerprint="f", layers=(), ties=(), plan=make_plan((0, 3), (2,), 1, "1f1b"),
        process_groups=ProcessGroups(backend="gloo", members=(0,), replicas=((0,),)), torch=str(torch.__version__),
    )  # fmt: skip
    saver.start(step, layers, functools.partial(msgspec.structs.replace, blank))
    saver.wait()
    outcome = saver.outcome()
    assert outcome is not None
    assert (outcome.step, outcome.error) == (step, "")


def test_an_unchanged_layer_is_not_written_again_and_every_step_is_read_back_exactly(tmp_path: Path) -> None:
    store, layers = Directory(tmp_path), made()
    saver = Saver(store, lambda: Rendezvous(HashStore(), "test", lambda: None), 1, 1, rank=0, size=1, keep=5)
    states, written = {}, {}
    for step in range(1, 4):
        if step < 3:
            train(layers)
        save(saver, layers, step)
        states[step] = {layer.name: {k: v.clone() for k, v in layer.state()[0].items()} for layer in layers}
        written[step] = {path.name: path.stat().st_ino for path in (tmp_path / "layers").iterdir()}
    assert [len(written[step]) for step in (1, 2, 3)] == [3, 5, 5], "the frozen layer once, the third save nothing"
    assert all(written[3][name] == inode for name, inode in written[1].items()), "and no file of the first is replaced"
    for step, expected in states.items():
        entries = read_manifest(store, step).layers
        for entry, (tensors, _) in zip(entries, read_layers(store, entries), strict=True):
            assert tensors.keys() == expected[entry.name].keys()
            assert all(torch.equal(tensors[key], expected[entry.name][key]) for key in tensors)
