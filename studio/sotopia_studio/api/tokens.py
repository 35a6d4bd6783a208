"""Tokens for programs."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from sotopia_env.foundation.records import Record
from sotopia_studio import auth
from sotopia_studio.auth import Reader
from sotopia_studio.context import ServicesDep
from sotopia_studio.problems import ForbiddenError

router = APIRouter(tags=["tokens"])


class NewToken(Record):
    """The name and the scopes of a new token."""

    model_config = ConfigDict(defer_build=False)  # FastAPI warns of bodies whose validators are built later

    name: str = Field(default="", max_length=80)
    scopes: tuple[Literal["read", "run", "admin"], ...] = ("read", "run")


class TokenAnswer(Record):
    """A new token; it cannot be shown again."""

    token: str


class TokenEntry(Record):
    """A token without its secret; times are seconds since the epoch."""

    id: str
    name: str
    scopes: str
    created: float
    last_used: float | None


@router.post("/tokens", status_code=201)
async def add_token(parts: ServicesDep, principal: Reader, new: NewToken) -> TokenAnswer:
    """Creates a token with some of the caller's scopes."""
    # Otherwise a token for reading could create one for administration.
    if not frozenset(new.scopes) <= principal.scopes:
        raise ForbiddenError("a token cannot have scopes that its owner lacks")
    async with parts.database.write() as connection:
        return TokenAnswer(token=await auth.add_token(connection, principal.id, new.name, frozenset(new.scopes)))


@router.get("/tokens")
async def list_tokens(parts: ServicesDep, principal: Reader) -> list[TokenEntry]:
    """Lists the caller's tokens."""
    async with parts.database.read() as connection:
        return [TokenEntry.model_validate(token) for token in await auth.tokens(connection, principal.id)]


@router.delete("/tokens/{token}", status_code=204)
async def revoke_token(parts: ServicesDep, principal: Reader, token: str) -> None:
    """Revokes one of the caller's tokens."""
    async with parts.database.write() as connection:
        await auth.revoke(connection, principal.id, token)
