"""Two nodes in network namespaces of their own, behind a router that can be told to drop everything."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A network namespace. address: on the interface that leads to the other node."""

    name: str
    address: str

    def command(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *arguments]


class Network:
    """Nodes a and b in subnets of their own; each has an interface more that leads nowhere, like a docker0."""

    def __init__(self, prefix: str) -> None:
        self._router = f"{prefix}-r"
        self.a, self.b = Node(f"{prefix}-a", "10.78.1.2"), Node(f"{prefix}-b", "10.78.2.2")

    def build(self) -> None:
        """Raises subprocess.CalledProcessError where the kernel or missing rights forbid it."""
        _ip("netns", "add", self._router)
        for subnet, node in ((1, self.a), (2, self.b)):
            _ip("netns", "add", node.name)
            _ip("-n", node.name, "link", "add", "up0", "type", "veth", "peer", f"down{subnet}", "netns", self._router)
            _ip("-n", node.name, "address", "add", f"10.78.{subnet}.2/24", "dev", "up0")
            _ip("-n", self._router, "address", "add", f"10.78.{subnet}.1/24", "dev", f"down{subnet}")
            _ip("-n", self._router, "link", "set", f"down{subnet}", "up")
            _ip("-n", node.name, "link", "add", "docker0", "type", "veth", "peer", "nowhere")
            _ip("-n", node.name, "address", "add", "172.17.0.1/16", "dev", "docker0")
            for device in ("lo", "docker0", "nowhere", "up0"):
                _ip("-n", node.name, "link", "set", device, "up")
            _ip("-n", node.name, "route", "add", "default", "via", f"10.78.{subnet}.1")
        self.link(works=True)

    def link(self, works: bool) -> None:
        """What leads from one node to the other. Where it does not work, packets vanish without a word."""
        setting = f"net.ipv4.ip_forward={int(works)}"
        _run("ip", "netns", "exec", self._router, "sysctl", "-q", "-w", setting)

    def remove(self) -> None:
        for name in (self._router, self.a.name, self.b.name):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Raises RuntimeError, with the reason, where there cannot be one."""
    made = Network(f"jct{os.getpid()}")
    try:
        made.build()
        yield made
    except FileNotFoundError as error:
        raise RuntimeError(f"no network namespaces: {error}") from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"no network namespaces: {error.stderr.strip()}") from None
    finally:
        made.remove()


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
