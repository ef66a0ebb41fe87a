"""Jobs that go wrong in ways that users' jobs do."""

import contextlib
import os
import subprocess
import sys
import time

import paced
import tiny
import torch
from torch import nn


def raises():
    raise RuntimeError("the dataset is not there\nand a second line")


def exits():
    sys.exit(3)


def dies():
    os._exit(7)


def raises_what_is_not_utf8():
    raise RuntimeError(f"no file {os.fsdecode(bytes([0xFF]))}")


def dies_of_a_realtime_signal():
    os.kill(os.getpid(), 40)


def not_a_job():
    return 42


class TwoTensors(nn.Module):
    def forward(self, x):
        return x, x


def passes_two_tensors():
    job = tiny.job()
    job.named_layers = (*job.named_layers[:3], ("pair", TwoTensors), *job.named_layers[3:])
    return job


def shares_a_parameter():
    job = tiny.job()
    shared = tiny.Block(16, 0.0)
    job.named_layers = tuple((n, (lambda: shared) if "block" in n else b) for n, b in job.named_layers)
    return job


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("shape 3 does not fit 4")


def raises_in_forward():
    job = tiny.job()
    job.named_layers = (*job.named_layers[:-1], ("bad", Raises), job.named_layers[-1])
    return job


def diverges():
    job = tiny.job(steps=5)
    job.loss = lambda output, targets: tiny.loss(output, targets) * float("nan")
    return job


STRAY = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("strays", "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def leaves_strays():
    """A daemon of the old kind: forks twice, new session, clean environment, deaf to SIGTERM."""
    if os.environ["RANK"] == "0":
        os.chdir(os.environ["JCT_ATTEMPT_DIR"])
        pid = os.fork()
        if pid == 0:
            os.setsid()
            if os.fork() == 0:
                subprocess.Popen([sys.executable, "-c", STRAY], env={}, start_new_session=True)
                time.sleep(600)
            os._exit(0)
        os.waitpid(pid, 0)
        while not (os.path.exists("strays") and os.path.getsize("strays")):
            time.sleep(0.01)
    return tiny.job(steps=3)


def allocates_too_much():
    raise MemoryError


def dies_as_a_newcomer(**arguments):
    if int(os.environ["JCT_MEMBER"]) >= 2:
        os._exit(9)
    return slow(**arguments)


def slow(steps=10**6, **arguments):
    class Slow(tiny.Block):
        def forward(self, x):
            time.sleep(0.005)
            return super().forward(x)

    return tiny.job(steps=steps, layer_class=Slow, **arguments)


def closes_its_line():
    """Closes every descriptor it does not know, the line to its shim among them, and goes on."""
    os.closerange(3, 1024)
    time.sleep(600)


torch.manual_seed(0)


def first_newcomer_dies(**arguments):
    """The first member that comes to a running attempt ends at once; later ones do not."""
    if int(os.environ["JCT_MEMBER"]) >= 2:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(os.path.join(os.environ["JCT_CHECKPOINT_DIR"], "died"), os.O_CREAT | os.O_EXCL))
            os._exit(9)
    return paced.job(**arguments)
