"""Agreement over the generation's store: small JSON values under keys, waited for without missing a stop."""

import functools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scheduler.protocol.messages import Cause
from worker.errors import Ended, PeerLost

LONGEST_NAP_S = 0.02


class Rendezvous:
    """One thread's view of a generation's store.

    check: called while waiting; raises Ended when the member shall not wait any longer.
    """

    def __init__(self, store: Any, prefix: str, check: Callable[[], None]) -> None:
        self._store, self._prefix, self._check = store, prefix, check

    def set(self, key: str, value: Any) -> None:
        """Raises PeerLost: the store is gone, and with it the pilot's node or shim."""
        self._try(lambda: self._store.set(f"{self._prefix}/{key}", json.dumps(value)))

    def get(self, key: str, timeout_s: float) -> Any:
        """Wait for a value. Raises Ended: START_FAILED after timeout_s, or what `check` raises."""
        return self.gather([key], timeout_s)[0]

    def gather(self, keys: Sequence[str], timeout_s: float) -> list[Any]:
        """Wait for several values, returned in the order of their keys."""
        names = [f"{self._prefix}/{key}" for key in keys]
        deadline = time.monotonic() + timeout_s
        nap_s = 0.001
        while not self._try(lambda: self._store.check(names)):
            self._check()
            if time.monotonic() > deadline:
                missing = [key for key, name in zip(keys, names, strict=True) if not self._store.check([name])]
                raise Ended(Cause.START_FAILED, f"waited {timeout_s:.0f} s for {', '.join(missing)}")
            time.sleep(nap_s)
            nap_s = min(2 * nap_s, LONGEST_NAP_S)
        return [json.loads(value) for value in self._try(lambda: self._store.multi_get(names))]

    def all(self, key: str, me: int, everyone: Iterable[int], value: Any, timeout_s: float) -> list[Any]:
        """Each of `everyone` gives a value under `key`; all get all, in that order. A barrier, too."""
        self.set(f"{key}/{me}", value)
        return self.gather([f"{key}/{one}" for one in everyone], timeout_s)

    def delete(self, keys: Iterable[str]) -> None:
        """What nobody reads again: a store lives as long as its generation."""
        for key in keys:
            self._try(functools.partial(self._store.delete_key, f"{self._prefix}/{key}"))

    def decide(self, key: str, value: Any) -> None:
        """Set a value that can be set once: a later one changes nothing."""
        self._try(lambda: self._store.compare_set(f"{self._prefix}/{key}", "", json.dumps(value)))

    @staticmethod
    def _try(operation: Callable[[], Any]) -> Any:
        try:
            return operation()
        except RuntimeError as error:
            raise PeerLost(f"the generation's store is gone: {str(error).splitlines()[0][:200]}") from None
