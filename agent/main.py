"""`jct-agent`: the command line of a node's agent."""

import argparse
import asyncio
import contextlib
import fcntl
import importlib
import math
import os
import secrets
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
import zmq

from agent.accounts import BadAccounts, choose_accounts
from agent.devices import BadDevices, KnownGpus, offer_devices
from agent.devices.scripted import BadScript, read_script
from agent.fake import FakeGangs
from agent.folders import Folders
from agent.forest.calibrating import runs_here
from agent.forest.injection import inject_rarely
from agent.forest.predictor import Predictor
from agent.forest.refit import refit_regularly
from agent.gangs import Gangs
from agent.health import HealthWatch
from agent.health_check import BadHealthCheck, HealthCheck
from agent.identity import boot_id, machine_id
from agent.link import Keys, Link, RefusedByDaemon
from agent.logs import CAP_BYTES, Logs
from agent.mixed import MixedGangs
from agent.node import NodeMind
from agent.shims import Shims
from agent.telemetry.owners import Owners
from agent.telemetry.sampler import Sampler
from agent.telemetry.sensing import sense
from scheduler.protocol.messages import Chunk, DeviceInfo, Hello, Read

MAX_LABEL = 100
COMMANDS = {
    "sample": "agent.telemetry.sample", "predict": "agent.forest.predict", "calibrate": "agent.forest.calibrate",
}  # fmt: skip
"""What the agent does without a daemon, and the module of each."""

EX_FAILED, EX_USAGE, EX_REFUSED = 1, 2, 4


class Agent(NodeMind):
    """The node's mind with its logs and its line to the daemon."""

    def __init__(self, identity: Hello, gangs: Gangs, logs: Logs, endpoint: str, keys: Keys | None) -> None:
        self.link = Link(endpoint, keys, identity.session, self)
        self.logs = logs
        super().__init__(identity, gangs, self.link.news)

    def read(self, ask: Read) -> Chunk:
        return self.logs.read(ask)

    def offer(self, devices: tuple[DeviceInfo, ...]) -> None:
        super().offer(devices)
        self.link.greet()


def main() -> None:
    """The console script; exits 1 where it cannot work, 2 for bad usage, 4 when the daemon refuses it."""
    if (command := COMMANDS.get(" ".join(sys.argv[1:2]))) is not None:
        sys.exit(importlib.import_module(command).main(sys.argv[2:]))
    options = _options().parse_args()
    if options.server_key is None and not _stays_here(options.connect):
        what = f"{options.connect} is on another host, and without --server-key nobody could be sure who answers there"
        sys.exit(_complain(f"{what}; copy daemon.key from the daemon's state folder and name it", EX_USAGE))
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Lossy())))
    try:
        asyncio.run(_run(options))
    except (BadDevices, BadScript, BadAccounts, BadHealthCheck) as error:
        sys.exit(_complain(str(error), EX_USAGE))
    except RefusedByDaemon as error:
        sys.exit(_complain(f"the daemon refused this agent: {error}", EX_REFUSED))
    except (OSError, zmq.ZMQError) as error:  # a read-only folder, no such key file, an endpoint that is none
        sys.exit(_complain(f"cannot work: {error}", EX_FAILED))
    except KeyboardInterrupt:
        pass


def _stays_here(endpoint: str) -> bool:
    """Whether what is said to this endpoint never leaves the machine."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    return not endpoint.startswith("tcp://") or host == "localhost" or host.startswith("127.") or host == "::1"


class _Lossy:
    """Standard error that loses what a full disk does not take: a line of the log must not end the agent."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def _complain(text: str, code: int) -> int:
    print(f"jct-agent: {text}", file=sys.stderr)
    return code


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jct-agent", description="Offers this machine's devices to a jctd.",
                                     epilog="Without a daemon: jct-agent sample, predict, calibrate; each has --help.")
    parser.add_argument("--connect", required=True, metavar="ENDPOINT", help="the daemon, e.g. tcp://127.0.0.1:7741")
    parser.add_argument("--state", required=True, type=Path, help="folder for keys, attempts and logs")
    parser.add_argument("--node", default=socket.gethostname(), help="this node's name in the cluster")
    parser.add_argument("--devices", help="nvml, cpu:N or fake:N; default: GPUs if NVML finds any, else one CPU a core")
    parser.add_argument("--fake-readings", type=Path, metavar="FILE", help="JSON: what fake devices measure, and when")
    parser.add_argument("--address", default="127.0.0.1", help="address at which other nodes reach this one")
    parser.add_argument("--accounts", type=Path, metavar="FILE", help="Unix accounts that jobs of users and teams get")
    parser.add_argument("--run-as-root", action="store_true", help="an agent of root runs jobs as root, too")
    parser.add_argument(
        "--log-cap", type=int, default=CAP_BYTES, metavar="BYTES", help="of a process's log; older bytes are given back"
    )
    parser.add_argument("--health-check", type=Path, metavar="PROGRAM",
                        help="exits 0 where the node is well, else says on its first line why it should be drained")
    parser.add_argument("--health-every", type=_seconds, default=60.0, metavar="SECONDS", help="default 60")
    parser.add_argument("--health-timeout", type=_seconds, default=20.0, metavar="SECONDS",
                        help="how long the program may take, default 20")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", type=_label,
                        help="of this node; `switch=NAME` keeps gangs below one network switch")  # fmt: skip
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="Prometheus' metrics on 127.0.0.1:PORT")
    parser.add_argument("--refit-every", type=_minutes, default=60.0, metavar="MINUTES",
                        help="learn what neighbours cost from the jobs here; 0 for never, default 60")  # fmt: skip
    parser.add_argument("--ignore-neighbours", action="store_true",
                        help="say nothing of what slows devices down, so that nothing is decided by it")
    parser.add_argument("--disturb-to-learn", action="store_true",
                        help="disturb young CPU jobs mildly for 10 s in 10 minutes, to learn; off by default")
    parser.add_argument("--server-key", type=Path, help="file with the daemon's public CURVE key")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be a positive number of seconds")
    return value


def _minutes(text: str) -> float:
    value = float(text)
    if not (value == 0 or 1 <= value < math.inf):
        raise argparse.ArgumentTypeError("must be 0, or a number of minutes from 1 on")
    return value


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value) or max(len(key), len(value)) > MAX_LABEL:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE with up to {MAX_LABEL} characters each")
    return key, value


async def _run(options: argparse.Namespace) -> None:
    state: Path = options.state
    accounts = choose_accounts(options.accounts, options.run_as_root)
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _only_one(state):
        machine, folders, memory = machine_id(state), Folders(state, shared=accounts.lends), KnownGpus(state)
        script = read_script(options.fake_readings) if options.fake_readings is not None else None
        offer = offer_devices(options.devices, options.node, machine, memory, Owners(folders.root), script)
        devices = offer.devices
        check = _health_check(options)
        identity = Hello(
            node=options.node, machine=machine, boot=boot_id(), session=secrets.token_hex(8),
            address=options.address, devices=devices, labels=dict(options.label),
        )
        kinds = {device.id: device.kind for device in devices}
        shims = Shims(folders, options.address, accounts)
        gangs = MixedGangs(FakeGangs(folders, kinds), shims, lambda id: id.startswith("fake-"))
        agent = Agent(identity, gangs, Logs(folders, options.log_cap), options.connect, _keys(options))
        if options.metrics_port is not None:
            from agent.telemetry.exporter import serve

            serve(options.metrics_port, lambda: agent.telemetry)
        watch = HealthWatch(state, check, options.health_every, agent.take_health)
        sampler = Sampler(offer.provider, devices, offer.trouble, agent.is_held)
        predictor = Predictor(state, calibrating=runs_here)
        sensing = sense(sampler, agent, memory, predictor=None if options.ignore_neighbours else predictor)
        work = [agent.logs.keep(), watch.run(), sensing]
        if options.refit_every:
            every_s = 60 * options.refit_every
            work.append(refit_regularly(state, predictor.window, predictor.present, every_s, runs_here))
        if options.disturb_to_learn:
            work.append(inject_rarely(agent.training_on_cores))
        await _until_told(agent, gangs, work)


def _health_check(options: argparse.Namespace) -> HealthCheck | None:
    """Raises BadHealthCheck."""
    if options.health_check is None:
        return None
    return HealthCheck(options.health_check, options.health_timeout, options.node, options.state)


@contextlib.contextmanager
def _only_one(state: Path):  # type: ignore[no-untyped-def]
    """Two agents on one state folder would both own its attempts."""
    with (state / "agent.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(_complain(f"another agent already works in {state}", EX_USAGE))
        yield


def _keys(options: argparse.Namespace) -> Keys | None:
    import zmq.auth

    if options.server_key is None:
        return None
    public, secret = _own_keys(options.state)
    server, _ = zmq.auth.load_certificate(options.server_key)
    return Keys(public, secret, server)


def _own_keys(state: Path) -> tuple[bytes, bytes]:
    import zmq.auth

    file = state / "agent.key_secret"
    if not file.exists():
        old = os.umask(0o077)
        try:
            zmq.auth.create_certificates(state, "agent")
        finally:
            os.umask(old)
    public, secret = zmq.auth.load_certificate(file)
    assert secret is not None
    return public, secret


async def _until_told(agent: Agent, gangs: Gangs, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """SIGTERM and SIGINT end the agent; its workers go on. work: what it does beside talking to the daemon."""
    loop, link = asyncio.get_running_loop(), asyncio.create_task(agent.link.run())
    beside = [asyncio.create_task(one) for one in work]
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, link.cancel)
    try:
        await link
    except asyncio.CancelledError:
        pass
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, gangs.close(), return_exceptions=True)


if __name__ == "__main__":
    main()
