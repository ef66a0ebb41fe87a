"""A member's line to its shim: the latest Target and slowdowns down, the latest Report up."""

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from scheduler.protocol.codec import Unframer, decode_to_member, frame
from scheduler.protocol.messages import Cause, Phase, Report, Stop, Target
from scheduler.protocol.slowdown import Slowdown
from worker.errors import Ended, PeerLost

REPORT_INTERVAL_S = 0.2
LOST_PATIENCE_S = 0.5
CLOSING_PATIENCE_S = 2.0
STARTING = (Phase.IMPORTING, Phase.BUILDING, Phase.JOINING, Phase.LOADING, Phase.PROBING)


class Control:
    """Reads Targets and sends Reports in a small thread of its own. Without a shim there is no member: EOF ends it."""

    def __init__(self, line: socket.socket) -> None:
        """Blocks until the first Target has come."""
        self._line = line
        self._unframer = Unframer()
        self._changed = threading.Condition()
        self._dirty = True
        self._sent_at = 0.0
        self._loss = ""
        self._lost_at: float | None = None
        self._closing = False
        self._listener: Callable[[], None] = lambda: None
        self._target: Target | None = None
        self._slowdowns: dict[str, Slowdown] = {}
        while self._target is None:
            self._read()
        first = self._target
        self._report: Report = Report(
            job=first.job,
            attempt=first.attempt,
            member=first.member,
            seq=0,
            phase=Phase.IMPORTING,
            generation=first.generation,
        )
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    @property
    def target(self) -> Target:
        assert self._target is not None
        return self._target

    @property
    def stop(self) -> Stop | None:
        want = self.target.want
        return want if isinstance(want, Stop) else None

    @property
    def slowdown(self) -> Slowdown | None:
        """Of this member's own device, as its agent has told last; None where nothing is known of it."""
        return self._slowdowns.get(self.target.device)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this whenever a Target has come, from the control thread, and once now. It replaces an earlier one."""
        with self._changed:
            self._listener = listener
            listener()

    def check_start(self) -> None:
        """Before the first step: nothing is lost by ending at once.

        Raises:
            Ended: STOPPED when asked to stop, PEER_LOST when a peer is gone.
        """
        stop = self.stop
        if stop is not None:
            raise Ended(Cause.STOPPED, f"stopped before the first step: {stop.why}")
        self.check_peers()

    def check_peers(self) -> None:
        """Raises PeerLost. While closing, peers may hang up as soon as they know that all are at the end."""
        patience_s = CLOSING_PATIENCE_S if self._closing else 0.0
        if self._lost_at is not None and time.monotonic() >= self._lost_at + patience_s:
            raise PeerLost()

    def close(self) -> None:
        """From here on a peer that hangs up has ended, most likely, as this member will."""
        self._closing = True

    def wait_for_store(self, timeout_s: float) -> str:
        """The generation's store as the Target tells it. Raises Ended."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self.target.store is None:
                self.check_start()
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise Ended(Cause.START_FAILED, f"no store within {timeout_s:.0f} s; is the pilot's node up?")
                self._changed.wait(left_s)
            return self.target.store

    def report(self, **changes: Any) -> None:
        """Change the Report. A new phase is sent at once, the rest at most five times a second."""
        with self._changed:
            phase = self._report.phase
            self._report = msgspec.structs.replace(self._report, seq=self._report.seq + 1, **changes)
            self._dirty = True
            if self._report.phase is not phase or time.monotonic() - self._sent_at >= REPORT_INTERVAL_S:
                self._send()

    def note(self, message: str, *, of_loss: bool = False) -> None:
        """A line for the user, beside the training: shown, never an end.

        of_loss: it tells of work that is lost or could be, and stays to the end.
        """
        if of_loss:
            self._loss = message
        with contextlib.suppress(OSError, ValueError):  # the log's disk may be full, or the user's code has closed it
            print(f"jctd: {message}", flush=True)
        self.report(message=message)

    def dropped(self, generation: int, why: str) -> None:
        """The pilot's word that a proposed generation will not be."""
        self.report(dropped=generation)
        self.note(f"generation {generation} is dropped: {why}")

    def last_word(self, end: Ended) -> None:
        """The end's cause and message, sent before this returns. What was lost is told where the end says nothing; how
        training went otherwise is no reason of its end.
        """
        with self._changed:
            message = end.message or self._loss
            self._report = msgspec.structs.replace(
                self._report, seq=self._report.seq + 1, cause=end.cause, message=message
            )
            self._send()

    def peer_lost(self) -> None:
        """From the watcher's thread: the main thread wakes by itself; if it is deep in computing, end without it."""
        self._lost_at = time.monotonic()
        threading.Timer(LOST_PATIENCE_S, self._give_up).start()

    def _give_up(self) -> None:
        with self._changed:
            if self._closing or self._report.cause is not None:
                return
        self._exit(PeerLost())

    def _stop_start(self) -> None:
        """Joining a group blocks outside Python, where no stop is seen. There is nothing to save yet: end here."""
        with self._changed:
            if self._report.phase not in STARTING or self._report.cause is not None:
                return
        stop = self.stop
        self._exit(Ended(Cause.STOPPED, f"stopped before the first step: {stop.why if stop is not None else ''}"))

    def _exit(self, end: Ended) -> None:
        self.last_word(end)
        os._exit(end.exit_code)

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._line], [], [], REPORT_INTERVAL_S)
            with self._changed:
                if ready:
                    self._read()
                    if self.stop is not None and self._report.phase in STARTING:
                        threading.Timer(LOST_PATIENCE_S, self._stop_start).start()
                    self._changed.notify_all()
                    self._listener()
                if self._dirty and time.monotonic() - self._sent_at >= REPORT_INTERVAL_S:
                    self._send()

    def _read(self) -> None:
        data = self._line.recv(1 << 16)
        if not data:
            os._exit(1)
        for body in self._unframer.feed(data):
            message = decode_to_member(body)
            if isinstance(message, Target):
                self._target = message
            else:
                self._slowdowns = {one.device: one for one in message.slowdowns}

    def _send(self) -> None:
        try:
            self._line.sendall(frame(self._report))
        except OSError:
            os._exit(1)
        self._dirty = False
        self._sent_at = time.monotonic()
