"""How many requests a token may make: a bucket that refills, so that bursts pass and floods do not."""

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from scheduler.api.problems import problem
from scheduler.core.errors import Code, JctError

RATE_PER_S = 100.0
BURST = 500
MOST_BUCKETS = 10_000
_OPEN = ("/healthz", "/readyz", "/metrics")


class RateLimit:
    """Counts by token, and by address where there is none, so that guessing tokens is slow. Beyond the limit, 429."""

    def __init__(
        self, app: ASGIApp, rate_per_s: float = RATE_PER_S, burst: int = BURST,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._app, self._rate, self._burst, self._clock_s = app, rate_per_s, burst, clock_s
        self._buckets: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN or (wait_s := self._take(_who(scope))) == 0:
            await self._app(scope, receive, send)
            return
        limit = f"{self._rate:g} requests a second, {self._burst} at once"
        error = JctError(Code.TOO_MANY_REQUESTS, f"too many requests; the limit of a token is {limit}")
        response = problem(error, scope["jct.request_id"])
        response.headers["Retry-After"] = str(math.ceil(wait_s))
        await response(scope, receive, send)

    def _take(self, who: bytes) -> float:
        """0 where one more request is fine, else the seconds until one would be."""
        now = self._clock_s()
        left, at = self._buckets.pop(who, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._rate)
        allowed = left >= 1
        self._buckets[who] = (left - allowed, now)
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate


def _who(scope: Scope) -> bytes:
    given = Headers(scope=scope).get("authorization", "")
    text = given or str((scope.get("client") or ("", 0))[0])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
