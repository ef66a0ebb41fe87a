"""Small things that every route uses: fast JSON, ids in paths, and queries that allow nothing unknown."""

from typing import Annotated, Any

import msgspec
from fastapi import Path, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

MAX_ID = 2**63 - 1
MAX_LIMIT = 1_000

JobId = Annotated[int, Path(ge=1, le=MAX_ID)]


class Strict(BaseModel):
    """A query or a body in which unknown names are errors."""

    model_config = ConfigDict(extra="forbid")


class Body(Strict):
    """JSON as it stands: true is no number, and "5" is none either."""

    model_config = ConfigDict(strict=True)


class NoQuery(Strict):
    """For routes that take no query."""


Plain = Annotated[NoQuery, Query()]


def answer(view: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(view), status, headers, media_type="application/json")
