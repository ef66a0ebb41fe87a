"""The tiny job on devices and links of known speed: blocks sleep as long as they compute, messages are late by design.

What disturbs them is written in a file by whoever watches, as {"slow": {member: factor}, "link": {"a-b": factor},
"memory": {member: share}}: the job is never told through any interface of jctd. Forward of a block takes `block_s`,
backward twice as much.
"""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import tiny
import torch

from worker import PipelineJob
from worker.adapt import memory
from worker.adapt.statistics import Memory
from worker.transport import Group


class Weather:
    """The file, read anew when it has changed; without one nothing disturbs."""

    def __init__(self, path: str) -> None:
        self._path, self._stamp, self._now = Path(path), 0, {}

    def slow(self, member: int) -> float:
        return self._read().get("slow", {}).get(str(member), 1.0)

    def link(self, a: int, b: int) -> float:
        return self._read().get("link", {}).get(f"{min(a, b)}-{max(a, b)}", 1.0)

    def memory(self, member: int) -> Memory:
        share = self._read().get("memory", {}).get(str(member))
        return Memory(share * 1e9, 1e9) if share is not None else Memory()

    def _read(self) -> dict[str, Any]:
        try:
            stamp = os.stat(self._path).st_mtime_ns
        except FileNotFoundError:
            return {}
        if stamp != self._stamp:
            self._now, self._stamp = json.loads(self._path.read_text()), stamp
        return self._now


class _Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        time.sleep(seconds * Device.factor())
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(2 * ctx.seconds * Device.factor())
        return gradient, None


class Device:
    """Of this process. member: which one it is."""

    weather: Weather | None = None
    member = 0

    @classmethod
    def factor(cls) -> float:
        return cls.weather.slow(cls.member) if cls.weather is not None else 1.0


class _Delayed:
    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def wait(self) -> None:
        self._thread.join()


class Wire:
    """Links with a rate: each message of a group leaves when the one before it is through, and arrives a transfer
    later."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s: dict[tuple[Group, int], float] = {}
        self._send = Group.send

    def install(self) -> None:
        wire = self

        def send(group: Group, tensor: torch.Tensor, peer: int, tag: int) -> Any:
            return wire.send(group, tensor, peer, tag)

        Group.send = send

    def send(self, group: Group, tensor: torch.Tensor, peer: int, tag: int) -> Any:
        if group._group is None or Device.weather is None:
            return self._send(group, tensor, peer, tag)
        size = tensor.numel() * tensor.element_size()
        transfer_s = size / self._bytes_per_s * Device.weather.link(group.rank, peer)
        through = max(time.perf_counter(), self._free_s.get((group, peer), 0.0)) + transfer_s
        self._free_s[group, peer] = through

        def later() -> None:
            time.sleep(max(0.0, through - time.perf_counter()))
            group.finish(self._send(group, tensor, peer, tag))

        thread = threading.Thread(target=later, daemon=True)
        thread.start()
        return _Delayed(thread)


class Block(tiny.Block):
    pace_s = 0.002

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(_Work.apply(x, self.pace_s))


def job(
    block_s: float = 0.002, weather: str = "", bytes_per_s: float | None = None, **arguments: Any
) -> PipelineJob:
    """bytes_per_s: of every link; None for what the machine gives."""
    Block.pace_s = block_s
    Device.member = int(os.environ.get("JCT_MEMBER", "0"))
    Device.weather = Weather(weather) if weather else None
    if Device.weather is not None:
        memory.measured = lambda device: Device.weather.memory(Device.member)
    if bytes_per_s is not None:
        Wire(bytes_per_s).install()
    return tiny.job(**arguments, layer_class=Block)
