"""The node's network interfaces, and what TCP had to send again: from /proc/net and /sys/class/net."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent.telemetry.rates import Rates
from scheduler.protocol.telemetry import InterfaceSample

LOOK_S = 10.0
_LOOPBACK = "772"  # ARPHRD_LOOPBACK
_MBIT_BYTES = 125_000.0
_COLUMNS = {"rx_bytes": 0, "rx_errors": 2, "rx_drops": 3, "tx_bytes": 8, "tx_errors": 10, "tx_drops": 11}


@dataclass(slots=True)
class _Link:
    """What seldom changes of an interface. speed_bytes_per_s: None with why."""

    kind: str
    up: bool
    speed_bytes_per_s: float | None
    why: str
    rates: Rates = field(default_factory=Rates)


class Network:
    """Looks at counters each time, at the links themselves every LOOK_S."""

    def __init__(self, root: Path = Path("/"), clock_s: Callable[[], float] = time.monotonic) -> None:
        """root: where proc and sys are."""
        self._proc, self._sys, self._clock_s = root / "proc/net", root / "sys/class/net", clock_s
        self._links: dict[str, _Link] = {}
        self._looked_s: float | None = None
        self._tcp = Rates()

    def interfaces(self) -> tuple[InterfaceSample, ...]:
        """Those there are now; none where /proc/net cannot be read."""
        now_s = self._clock_s()
        counters = self._counters()
        self._look(list(counters), now_s)
        return tuple(self._sample(name, self._links[name], found, now_s) for name, found in counters.items())

    def tcp(self) -> tuple[dict[str, float], dict[str, str]]:
        """Segments sent, and sent again, a second; reasons where unknown."""
        try:
            lines = [line.split() for line in (self._proc / "snmp").read_text().splitlines() if line.startswith("Tcp:")]
            named = dict(zip(*lines, strict=True))
            found = {"tcp_segments": float(named["OutSegs"]), "tcp_retransmits": float(named["RetransSegs"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f"{self._proc}/snmp cannot be read: {type(error).__name__}"
            return {}, {"tcp_segments_per_s": why, "tcp_retransmits_per_s": why}
        return self._tcp.of(found, self._clock_s())

    def _counters(self) -> dict[str, dict[str, float]]:
        try:
            lines = (self._proc / "dev").read_text().splitlines()
        except OSError:
            return {}
        rows = (line.partition(":") for line in lines if ":" in line)
        split = {name.strip(): rest.split() for name, _, rest in rows}
        return {
            name: {counter: float(row[at]) for counter, at in _COLUMNS.items()}
            for name, row in split.items()
            if len(row) >= 12
        }

    def _look(self, names: list[str], now_s: float) -> None:
        old = self._looked_s is None or now_s - self._looked_s >= LOOK_S
        if not old and self._links.keys() == set(names):
            return
        self._looked_s = now_s
        links = {name: self._link(name) for name in names}
        for name, link in links.items():
            if name in self._links:
                link.rates = self._links[name].rates
        self._links = links

    def _link(self, name: str) -> _Link:
        folder = self._sys / name
        if self._text(name, "type") == _LOOPBACK or (not folder.exists() and name == "lo"):
            kind = "loopback"
        else:
            kind = "physical" if (folder / "device").exists() else "virtual"
        state = self._text(name, "operstate")
        text = self._text(name, "speed")
        speed = int(text) * _MBIT_BYTES if text.isdigit() and int(text) > 0 else None
        why = "" if speed is not None else f"a {kind} interface tells no speed of its own"
        return _Link(kind, state in ("up", "unknown", ""), speed, why)

    def _text(self, name: str, file: str) -> str:
        try:
            return (self._sys / name / file).read_text().strip()
        except OSError:
            return ""

    def _sample(self, name: str, link: _Link, counters: dict[str, float], now_s: float) -> InterfaceSample:
        rates, missing = link.rates.of(counters, now_s)
        if link.why:
            missing["link_bytes_per_s"] = link.why
        values: dict[str, float | None] = {"link_bytes_per_s": link.speed_bytes_per_s}
        values |= {f"{counter}_per_s": rates.get(f"{counter}_per_s") for counter in _COLUMNS}
        return InterfaceSample(name=name, kind=link.kind, up=link.up, values=values, missing=missing)
