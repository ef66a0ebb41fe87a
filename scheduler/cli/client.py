"""One connection to jctd, by the standard library's HTTP: it loads in a few milliseconds."""

import http.client
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from scheduler.cli import config
from scheduler.core.errors import BadSpec, Code, JctError

TIMEOUT_S = 30.0
PAGE = 500


@dataclass(frozen=True)
class Answer:
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found


class Refused(BadSpec):
    """jctd's own word, with the request's id to quote."""

    def __init__(self, problem: dict[str, Any]) -> None:
        items = problem.get("problems") or [problem]
        super().__init__([_error(item) for item in items])
        self.code = _code(problem)
        self.request_id = problem.get("request_id")


def _error(item: dict[str, Any]) -> JctError:
    return JctError(_code(item), item.get("detail", "unknown"), field=item.get("field"), hint=item.get("hint"))


def _code(item: dict[str, Any]) -> Code:
    """A code of a newer jctd is unknown here."""
    try:
        return Code(item.get("code", ""))
    except ValueError:
        return Code.INTERNAL


class Client:
    """Raises JctError: UNREACHABLE where nothing answers, else what jctd says.

    Every call has its own connection: a kept one may have been closed by the time a slow poll uses it again.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise JctError(Code.BAD_SPEC, f"{url!r} is no URL of jctd", hint="such as http://127.0.0.1:7740")
        self._url, self._token, self._base = url, token, parts.path.rstrip("/")
        self._place, self._secure = parts.netloc, parts.scheme == "https"

    @classmethod
    def from_config(cls) -> "Client":
        return cls(*config.load())

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """query: lists are repeated, None is left out."""
        pairs = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{self._base}/v1/{path}" + (f"?{urlencode(pairs, doseq=True)}" if pairs else "")
        sent = {"Authorization": f"Bearer {self._token}", "User-Agent": "jct", **(headers or {})}
        data = None
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = self._connect()
        try:
            connection.request(method, target, data, sent)
            response = connection.getresponse()
            answer = Answer({key.lower(): value for key, value in response.getheaders()}, response.read())
        except (OSError, http.client.HTTPException) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            hint = "is it running? `jct up` starts one; JCT_URL says where another is"
            raise JctError(Code.UNREACHABLE, f"cannot reach jctd at {self._url}: {reason}", hint=hint) from None
        finally:
            connection.close()
        if response.status >= 400:
            raise Refused(_problem(response.status, answer.data))
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._place, timeout=TIMEOUT_S)
        import ssl

        context = ssl.create_default_context(cafile=os.environ.get("JCT_CA_FILE"))
        return http.client.HTTPSConnection(self._place, timeout=TIMEOUT_S, context=context)

    # --- what several commands ask --------------------------------------------------------------------------

    def job(self, id: int) -> dict[str, Any]:
        return self.call("GET", f"jobs/{id}").json()

    def act(self, id: int, verb: str, body: Any = None) -> dict[str, Any]:
        return self.call("POST", f"jobs/{id}/{quote(verb)}", body=body).json()

    def jobs(self, limit: int | None, **filters: Any) -> tuple[list[dict[str, Any]], str]:
        """The newest jobs, newest first, and the daemon's clock."""
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            count = PAGE if limit is None else min(PAGE, limit - len(found))
            page = self.call("GET", "jobs", {**filters, "limit": count, "cursor": cursor}).json()
            found += page["jobs"]
            cursor = page["next"]
            if cursor is None or (limit is not None and len(found) >= limit):
                return found, page["now"]

    def events(self, path: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """All there are now, oldest first."""
        while True:
            page = self.call("GET", path, {"after": after, "limit": PAGE}).json()
            yield from page["events"]
            if page["next"] == after:
                return
            after = page["next"]


def _problem(status: int, data: bytes) -> dict[str, Any]:
    """What a proxy answers may be no problem document."""
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"code": Code.INTERNAL, "detail": f"jctd answered with status {status}"}
