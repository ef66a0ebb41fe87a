"""Every error as an RFC 9457 problem with a stable code and the request's id; codes become statuses here, once."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from scheduler.core.errors import BadSpec, Code, JctError

_log = logging.getLogger(__name__)

STATUS = {
    Code.BAD_SPEC: 422,
    Code.NOT_SUPPORTED_YET: 422,
    Code.NOT_FOUND: 404,
    Code.NOT_ALLOWED: 403,
    Code.NOT_LOGGED_IN: 401,
    Code.CONFLICT: 409,
    Code.QUOTA: 409,
    Code.TOO_MANY_REQUESTS: 429,
    Code.TOO_LARGE: 413,
    Code.BUSY: 503,
    Code.UNREACHABLE: 503,
    Code.INTERNAL: 500,
}
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
_CODES = {400: Code.BAD_SPEC, 404: Code.NOT_FOUND, 405: Code.NOT_FOUND, 413: Code.TOO_LARGE, 422: Code.BAD_SPEC}


def problem(error: JctError, request_id: str) -> JSONResponse:
    """The response for an error that a person can do something about."""
    body = _body(STATUS[error.code], error.code, error.message, request_id) | _details(error)
    if isinstance(error, BadSpec):
        body["problems"] = [{"code": p.code, "detail": p.message} | _details(p) for p in error.problems]
    return _response(body)


def _details(error: JctError) -> dict[str, Any]:
    return {name: value for name in ("field", "hint") if (value := getattr(error, name)) is not None}


def _body(status: int, code: str, detail: str, request_id: str) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    return {
        "type": f"urn:jctd:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
        "request_id": request_id,
    }


def _response(body: dict[str, Any]) -> JSONResponse:
    status = body["status"]
    return JSONResponse(body, status, _HEADERS.get(status), media_type="application/problem+json")


def request_id(request: Request) -> str:
    """Given by the outermost middleware to every request."""
    return str(request.scope.get("jct.request_id", ""))


def install(app: FastAPI) -> None:
    """From now on the app answers every error as a problem."""

    @app.exception_handler(JctError)
    async def _known(request: Request, error: JctError) -> JSONResponse:
        return problem(error, request_id(request))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        """Without the input: it may hold secrets."""
        problems = []
        for item in error.errors():
            field = ".".join(str(part) for part in item["loc"] if part != "body")
            said = item["msg"].removeprefix("Value error, ")
            problems.append(JctError(Code.BAD_SPEC, f"{field}: {said}" if field else said, field=field or None))
        return problem(BadSpec(problems), request_id(request))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        code = _CODES.get(error.status_code, Code.INTERNAL)
        response = _response(_body(error.status_code, code, str(error.detail), request_id(request)))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> JSONResponse:
        _log.error("request %s failed", request_id(request), exc_info=error)
        text = "jctd failed at this request; its log says why, under the request id"
        return _response(_body(500, Code.INTERNAL, text, request_id(request)))
