"""Episodes: lists, records, events and seats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from sotopia_env.service.auth import Reader
from sotopia_env.service.context import ServicesDep

router = APIRouter(tags=["episodes"])


@router.get("/episodes/{episode}/events", response_class=EventSourceResponse)
async def follow(
    parts: ServicesDep, _: Reader, episode: str, last_event_id: Annotated[int, Header()] = 0
) -> AsyncIterator[ServerSentEvent]:
    """Streams the events of an episode, from the first or from the one after ``Last-Event-ID``."""
    async for event in parts.hub.follow(episode, last_event_id):
        yield ServerSentEvent(raw_data=event.payload, event=event.kind, id=str(event.number))
