"""Bodies of requests and responses, and a strict JSON reader for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import canonical_json, parse_json
from sotopia_env.world import Character, Scenario, Task
from sotopia_env.world.episode import Episode
from sotopia_studio.store.episode_lists import EpisodeRow
from sotopia_studio.store.jobs import JobState
from sotopia_studio.store.kinds import DimensionList, KnownPair, RecordT
from sotopia_studio.store.runs import RunRow

T = TypeVar("T")
After = Annotated[str, Query(description="Id of the last item of the previous page.", max_length=80)]
Limit = Annotated[int, Query(description="Maximum number of items to return.", ge=1, le=500)]
Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=80)]], Query(max_length=20)]


for _record in (Character, Scenario, Task, KnownPair, DimensionList, Episode, EpisodeRow, RunRow, JobState):
    _record.model_config["defer_build"] = False  # FastAPI warns of bodies whose validators are built later
    _record.model_rebuild()


class Body(BaseModel):
    """The base class of bodies, which refuses unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Created(Body):
    """The id of the added object, or of an existing one with equal content."""

    id: str


class Page(Body, Generic[T]):
    """A page of a list, the newest first."""

    items: list[T]
    total: int = Field(description="Number of items in the whole list.")
    next: str | None = Field(description="Value of `after` for the next page; null on the last one.")


class Stored(Body, Generic[RecordT]):
    """An item of the library."""

    id: str
    hash: str = Field(description="SHA-256 of its content; its first characters also identify the item.")
    name: str
    tags: list[str]
    created: float = Field(description="Seconds since the epoch.")
    record: RecordT


class Problem(BaseModel):
    """Problem details of an error (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str = Field(description="One sentence.")
    field: str | None = Field(default=None, description="The field at fault.")


def _answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    names = {400: "Not readable", 401: "No valid token", 403: "Not allowed", 404: "Not known", 409: "A contradiction"}
    names |= {413: "Too large", 422: "Invalid", 429: "Too much at once"}
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": names[status], "content": content, "model": Problem} for status in statuses}


ERRORS = _answers(400, 401, 403, 404, 409, 413, 422, 429)
"""The errors that every route may return."""


class StrictRequest(Request):
    """A request whose body is JSON without duplicate keys, without NaN and with limited nesting."""

    async def json(self) -> Any:
        """Returns the body; raises :class:`InvalidValueError` if it is not strict JSON."""
        return parse_json(await self.body(), "the body of the request", InvalidValueError)


class StrictRoute(APIRoute):
    """A route that reads its body through :class:`StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Returns the handler."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            response: Response = await handler(StrictRequest(request.scope, request.receive))
            return response

        return strict


def json_answer(text: str) -> Response:
    """Returns JSON text as it is, so that a record is sent byte for byte."""
    # Not through a model: parsing and writing would change the bytes of a record, and take longer.
    return Response(text, media_type="application/json")


def attached(text: str, name: str, media_type: str) -> Response:
    """Returns text as a file that a browser saves under a name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text, media_type=media_type, headers=headers)


def page_text(rows: Sequence[tuple[str, str]], total: int, limit: int) -> str:
    """Returns a page of items, given as pairs of an id and JSON text.

    Args:
        rows: one more than ``limit`` if another page follows.
        total: the number of items in the whole list.
        limit: the maximum number of items of the page.
    """
    last, items = rows[limit - 1][0] if len(rows) > limit else None, [text for _, text in rows[:limit]]
    return f'{{"items":[{",".join(items)}],"total":{total},"next":{canonical_json(last)}}}'
