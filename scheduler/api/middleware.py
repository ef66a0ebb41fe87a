"""Around every request: an id for people to quote, and an end to bodies that are too large."""

import asyncio
import secrets
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scheduler.api.problems import problem
from scheduler.core.errors import Code, JctError

MAX_BODY_BYTES = 512 * 1024


class RequestId:
    """Puts a fresh id into the scope and into the answer's X-Request-Id."""

    def __init__(self, app: ASGIApp, new_id: Callable[[], str] = lambda: secrets.token_hex(8)) -> None:
        self._app, self._new_id = app, new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["jct.request_id"] = id = self._new_id()

        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], (b"x-request-id", id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:  # the server stops and waits no longer for this client
            if not started:
                error = JctError(Code.BUSY, "jctd is stopping", hint="try again in a moment")
                await problem(error, id)(scope, receive, send_with_id)


class BodyLimit:
    """Reads the body up to the limit before anything looks at it; beyond, 413, whatever Content-Length claims."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY_BYTES) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        claimed = request.headers.get("content-length", "0")
        body = bytearray()
        too_large = claimed.isdigit() and int(claimed) > self._limit
        if not too_large:
            async for part in request.stream():
                body += part
                if too_large := len(body) > self._limit:
                    break
        if too_large:
            error = JctError(Code.TOO_LARGE, f"the request's body is larger than the limit of {self._limit} bytes")
            await problem(error, scope["jct.request_id"])(scope, receive, send)
            return
        read = False

        async def replay() -> Message:
            nonlocal read
            if read:
                return await receive()
            read = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, replay, send)
