"""`jct-agent sample`: one reading of every device and interface, with nulls and reasons. No daemon is needed."""

import argparse
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from agent.devices import BadDevices, KnownGpus, offer_devices
from agent.devices.scripted import BadScript, read_script
from agent.identity import machine_id
from agent.telemetry.owners import Owners
from agent.telemetry.sampler import DEADLINE_S, Sampler
from scheduler.protocol.telemetry import Telemetry

LOOK_S = 0.01
PAUSE_S = 0.5
EX_USAGE = 2
JSON_VERSION = "v1"


def main(arguments: Sequence[str]) -> int:
    """The exit code: 2 for bad usage."""
    options = _options().parse_args(arguments)
    attempts = options.state / "attempts" if options.state is not None else None
    try:
        script = read_script(options.fake_readings) if options.fake_readings is not None else None
        machine = machine_id(options.state) if options.state is not None else ""
        memory = KnownGpus(options.state)
        offer = offer_devices(options.devices, options.node, machine, memory, Owners(attempts), script)
    except (BadDevices, BadScript) as error:
        print(f"jct-agent sample: {error}", file=sys.stderr)
        return EX_USAGE
    sampler = Sampler(offer.provider, offer.devices, offer.trouble)
    telemetry, health = take(sampler), sampler.health()
    if options.json:
        document = {"apiVersion": JSON_VERSION, "health": health, **msgspec.structs.asdict(telemetry)}
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    else:
        text = "\n".join(_lines(telemetry, health.devices, health.node))
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def take(sampler: Sampler, pause_s: float = PAUSE_S, patience_s: float = DEADLINE_S) -> Telemetry:
    """Two looks with a pause between them, so that there are rates. Devices that hang are waited for only so long."""
    deadline = time.monotonic() + 2 * patience_s
    for _ in range(2):
        sampler.tick()
        began = time.monotonic()
        while time.monotonic() < deadline and (sampler.busy or time.monotonic() - began < pause_s):
            time.sleep(LOOK_S)
    return sampler.tick()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jct-agent sample", description="Prints one reading of every device and interface of this machine."
    )
    parser.add_argument("--devices", help="nvml, cpu:N or fake:N; default: GPUs if NVML finds any, else one CPU a core")
    parser.add_argument("--node", default=socket.gethostname(), help="as the agent has it: ids of fakes depend on it")
    parser.add_argument("--state", type=Path, help="an agent's folder, to tell which processes are its jobs'")
    parser.add_argument("--fake-readings", type=Path, metavar="FILE", help="JSON: what fake devices measure, and when")
    parser.add_argument("--json", action="store_true", help="JSON for scripts")
    return parser


def _lines(telemetry: Telemetry, unwell: Mapping[str, str], trouble: str) -> list[str]:
    """For people: a device or interface, then its values, then what is missing and why."""
    lines = [f"this machine cannot be used: {trouble}", ""] if trouble else []
    for device in telemetry.devices:
        reason = unwell.get(device.id)
        lines += [f"{device.id}  {device.kind}" + (f"  cannot be used: {reason}" if reason else "")]
        lines += _values(device.values, device.missing)
        lines += [f"  {'throttled':<28}{', '.join(device.throttled)}"] if device.throttled else []
        lines += [f"  {'process':<28}{one.pid} {one.name} ({one.whose})" for one in device.processes or ()]
    for interface in telemetry.interfaces:
        lines += [f"{interface.name}  {interface.kind}{'' if interface.up else ', down'}"]
        lines += _values(interface.values, interface.missing)
    return [*lines, "host", *_values(telemetry.host, telemetry.missing)]


def _values(values: Mapping[str, float | None], missing: Mapping[str, str]) -> list[str]:
    known = [f"  {name:<28}{_number(value)}" for name, value in values.items() if value is not None]
    reasons: dict[str, list[str]] = {}
    for name, reason in missing.items():
        reasons.setdefault(reason, []).append(name)
    return known + [f"  {'(' + reason + ')'}  {', '.join(names)}" for reason, names in reasons.items()]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.2f}"
