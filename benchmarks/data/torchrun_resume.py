"""What a user without us does to go on with 2 stages: torchrun, init_process_group, build, load, one step."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from worker.checkpoint import catalogue
from worker.checkpoint.directory import Directory
from worker.checkpoint.verify import read_layer, read_manifest
from worker.layer import build_layers
from worker.models.gpt_stdlib import pipeline_job

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
device = torch.device("cpu")
job = pipeline_job(width=416, blocks=8, context=32, steps=8, global_batch=4, validate_every=0)
layers = build_layers(job, range(5) if rank == 0 else range(5, 10), device)
store = Directory(Path(sys.argv[1]))
entries = {entry.name: entry for entry in read_manifest(store, catalogue.steps(store)[0]).layers}
for layer in layers.values():
    layer.load(*read_layer(store, entries[layer.name]))
inputs, targets = job.data.samples(range(4))
for sample in range(4):
    if rank == 0:
        value = inputs[sample : sample + 1]
        for layer in layers.values():
            value = layer.module(value)
        dist.send(value.detach(), 1)
        gradient = torch.empty_like(value)
        dist.recv(gradient, 1)
        value.backward(gradient)
    else:
        received = torch.empty(1, 32, 416)
        dist.recv(received, 0)
        received.requires_grad_()
        value = received
        for layer in layers.values():
            value = layer.module(value)
        job.loss(value, targets[sample : sample + 1]).backward()
        dist.send(received.grad, 0)
for layer in layers.values():
    layer.update(1e-3, None)
dist.barrier()
if rank == 1:
    print(time.time(), flush=True)
dist.destroy_process_group()
