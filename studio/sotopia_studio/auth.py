"""Authentication and authorisation.

A browser has a session, whose cookie is a random secret; a program has a token. The database stores only SHA-256 hashes
of both. Without accounts, a one-time address that ``sotopia serve`` prints starts a session; with accounts, a password
does. A participant's session gives access to one study only.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError
from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import Table, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import HTTPConnection

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_studio.context import is_https, services
from sotopia_studio.problems import ForbiddenError, MissingError, UnauthorizedError
from sotopia_studio.store import tables
from sotopia_studio.store.engine import UNREACHABLE, Database

logger = logging.getLogger(__name__)
Role = Literal["admin", "researcher", "viewer", "participant", "annotator"]
Scope = Literal["read", "run", "admin"]
SCOPES: dict[str, frozenset[str]] = {
    "admin": frozenset({"read", "run", "admin"}),
    "researcher": frozenset({"read", "run"}),
    "viewer": frozenset({"read"}),
    "participant": frozenset(),
    "annotator": frozenset(),
}
"""The scopes of each role on the pages and the API of researchers."""
_DAY = 24 * 3600.0
SESSION = 30 * _DAY
"""The duration of a session, in seconds."""
ONE_TIME = _DAY
"""The validity of a one-time address, in seconds."""
TOKEN_PREFIX = "sot_"
_LOGIN = "login"
_USED = "this address was used or is too old; `sotopia login` prints a new one"
_SHORTEST_PASSWORD = 10
_HASHER = PasswordHasher()


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated sender of a request.

    Attributes:
        id: id of the user, of the token's owner or of the participant.
        role: role of the user or participant; requests with a token have the role ``researcher``.
        scopes: the operations it may use.
        study: the only study that a participant may see.
        name: the name with which a user logs in; empty without accounts, and for tokens and participants.
    """

    id: str
    role: str
    scopes: frozenset[str]
    study: str = ""
    name: str = ""


def digest(secret: str) -> str:
    """Returns the hash that the database stores of a random secret; passwords are hashed in :func:`add_user`."""
    # A fast hash without salt suffices for 128 random bits or more, which cannot be guessed, and can be looked up.
    return hashlib.sha256(secret.encode()).hexdigest()


def cookie_name(connection: HTTPConnection) -> str:
    """Returns the name of the session's cookie; over HTTPS, a name that other hosts cannot set."""
    # Browsers accept the prefix `__Host-` only over HTTPS, from this very host and for all paths.
    return "__Host-studio" if is_https(connection) else "studio"


async def open_session(connection: AsyncConnection, principal: str, role: Role, study: str = "") -> str:
    """Starts a session and returns its secret."""
    secret = secrets.token_urlsafe(32)
    values = {
        "principal": principal,
        "role": role,
        "scope": study,
        "expires": time.time() + SESSION,
    }
    # Expired sessions are deleted here, so that no job is needed for it.
    await connection.execute(delete(tables.session).where(tables.session.c.expires < time.time()))
    await connection.execute(insert(tables.session).values(hash=digest(secret), **values))
    return secret


def session_response(request: Request, secret: str, address: str) -> Response:
    """Returns the response that gives a browser the cookie of a session and sends it to ``address``."""
    name, https, response = cookie_name(request), is_https(request), RedirectResponse(address, 303)
    response.set_cookie(name, secret, max_age=int(SESSION), path="/", secure=https, httponly=True, samesite="lax")
    return response


async def close_session(connection: AsyncConnection, secret: str) -> None:
    """Ends a session, which makes its cookie invalid."""
    await connection.execute(delete(tables.session).where(tables.session.c.hash == digest(secret)))


async def add_token(connection: AsyncConnection, owner: str, name: str, scopes: frozenset[str]) -> str:
    """Creates a token for programs and returns it; it cannot be shown again.

    Raises:
        InvalidValueError: a scope is not one of ``read``, ``run``, ``admin``.
    """
    if not scopes or not scopes <= SCOPES["admin"]:
        raise InvalidValueError(field="scopes", expected="some of read, run, admin", got=", ".join(sorted(scopes)))
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    row = {"id": tables.new_id(), "hash": digest(secret), "name": name, "owner": owner, "created": time.time()}
    await connection.execute(insert(tables.token).values(scopes=" ".join(sorted(scopes)), **row))
    return secret


async def add_login(connection: AsyncConnection, role: Literal["admin", "viewer"] = "admin") -> str:
    """Creates the secret of a one-time address, which opens one session with this role within a day."""
    secret = secrets.token_urlsafe(32)
    row = {"id": tables.new_id(), "hash": digest(secret), "name": _LOGIN, "owner": role, "created": time.time()}
    await connection.execute(insert(tables.token).values(scopes=_LOGIN, **row))
    return secret


async def login_role(connection: AsyncConnection, secret: str) -> Role:
    """Returns the role of the session that a one-time address opens.

    Raises:
        UnauthorizedError: the address was used, is older than a day or never existed.
    """
    row = tables.token
    mine = (row.c.hash == digest(secret)) & (row.c.scopes == _LOGIN) & (row.c.created > time.time() - ONE_TIME)
    role: Role | None = (await connection.execute(select(row.c.owner).where(mine))).scalar_one_or_none()
    if role is None:
        raise UnauthorizedError(_USED)
    return role


async def claim_login(connection: AsyncConnection, secret: str) -> str:
    """Returns the secret of a new session in exchange for that of a one-time address; raises as :func:`login_role`."""
    role, row = await login_role(connection, secret), tables.token
    # Of two clicks at once, one finds the address deleted.
    if (await connection.execute(delete(row).where(row.c.hash == digest(secret)))).rowcount != 1:
        raise UnauthorizedError(_USED)
    return await open_session(connection, role, role)


async def add_user(database: Database, name: str, password: str, role: Role) -> None:
    """Adds a user, or changes an existing user's password and role, which ends all sessions and tokens.

    Raises:
        InvalidValueError: the password is too short, or the role does not exist.
    """
    if role not in SCOPES:
        raise InvalidValueError(field="role", got=role, valid=SCOPES)
    if len(password) < _SHORTEST_PASSWORD:
        raise InvalidValueError(field="password", expected=f"{_SHORTEST_PASSWORD} characters or more")
    # Slow by intention, so neither in a transaction, which others would wait for, nor in the event loop.
    row, values = tables.user, {"role": role, "password": await asyncio.to_thread(_HASHER.hash, password)}
    async with database.write() as connection:
        await _set_user(connection, row, name, values)


async def _set_user(connection: AsyncConnection, row: Table, name: str, values: dict[str, str]) -> None:
    identity = (await connection.execute(select(row.c.id).where(row.c.name == name))).scalar_one_or_none()
    if identity is not None:  # a password is changed because somebody knows it, a role because it was too much
        await connection.execute(delete(tables.session).where(tables.session.c.principal == identity))
        await connection.execute(delete(tables.token).where(tables.token.c.owner == identity))
    change = await connection.execute(update(row).where(row.c.name == name).values(**values))
    if not change.rowcount:
        await connection.execute(insert(row).values(id=tables.new_id(), name=name, created=time.time(), **values))


async def log_in(database: Database, name: str, password: str) -> str:
    """Returns the secret of a new session of a user.

    Raises:
        UnauthorizedError: the name or the password is wrong.
    """
    row = tables.user
    async with database.read() as connection:
        user = (await connection.execute(select(row).where(row.c.name == name))).one_or_none()
    try:
        # An unknown name takes as long as a wrong password, so the time does not tell which names exist. The decoy is
        # made at the first login, whoever logs in.
        decoy = await asyncio.to_thread(_decoy)
        await asyncio.to_thread(_HASHER.verify, user.password if user else decoy, password)
    except (VerifyMismatchError, InvalidHashError):
        user = None
    if user is None:
        raise UnauthorizedError("the name or the password is wrong")
    async with database.write() as connection:
        return await open_session(connection, user.id, user.role)


@cache
def _decoy() -> str:
    """The hash of a password that nobody has; at import, it would be a tenth of the start of every command."""
    return _HASHER.hash(secrets.token_hex(16))


async def principal_of(connection: HTTPConnection) -> Principal | None:
    """Returns the sender of a request, identified by its token or else its cookie; ``None`` for neither.

    Raises:
        UnauthorizedError: the token is invalid.
    """
    kind, _, bearer = connection.headers.get("authorization", "").partition(" ")
    if kind.casefold() == "bearer":
        return await of_token(connection, bearer.strip())
    secret = connection.cookies.get(cookie_name(connection))
    if not secret:
        return None
    row, user = tables.session, tables.user
    query = select(row, user.c.name).outerjoin(user, user.c.id == row.c.principal)
    query = query.where(row.c.hash == digest(secret), row.c.expires > time.time())
    async with services(connection).database.read() as database:
        session = (await database.execute(query)).one_or_none()
    if session is None:
        return None
    scopes = SCOPES.get(session.role, frozenset())
    return Principal(session.principal, session.role, scopes, session.scope, session.name or "")


async def of_token(connection: HTTPConnection, secret: str) -> Principal:
    """Returns the principal of a token.

    Raises:
        UnauthorizedError: the token is invalid.
    """
    row = tables.token
    async with services(connection).database.read() as database:
        token = (await database.execute(select(row).where(row.c.hash == digest(secret)))).one_or_none()
    # One-time addresses are in the same table, but must not authenticate requests.
    if token is None or token.scopes == _LOGIN:
        raise UnauthorizedError("the token is not valid")
    # Recorded at most once a minute: every request would otherwise need a write transaction.
    if token.last_used is None or token.last_used < time.time() - 60:
        try:
            async with services(connection).database.write() as database:
                await database.execute(update(row).where(row.c.id == token.id).values(last_used=time.time()))
        except UNREACHABLE as error:  # a full disk must not keep programs from reading
            logger.warning("the last use of token %s could not be recorded: %s", token.id, error)
    return Principal(token.owner, "researcher", frozenset(token.scopes.split()))


async def visitor(connection: HTTPConnection) -> Principal | None:
    """Returns the sender of a request for a page that anybody may read; ``None`` for a stranger."""
    try:
        return await principal_of(connection)
    except (UnauthorizedError, *UNREACHABLE):  # the page is there all the same
        return None


def requires(scope: Scope) -> Callable[[HTTPConnection], Awaitable[Principal]]:
    """Returns a dependency that admits only callers with ``scope``."""

    async def check(connection: HTTPConnection) -> Principal:
        principal = await principal_of(connection)
        if principal is None:
            raise UnauthorizedError("not authenticated: log in, or send `Authorization: Bearer TOKEN`")
        if scope not in principal.scopes:
            raise ForbiddenError(f"this request needs the scope {scope!r}")
        connection.state.principal = principal  # pages hide what this principal may not use
        return principal

    return check


Reader = Annotated[Principal, Depends(requires("read"))]
Runner = Annotated[Principal, Depends(requires("run"))]


async def tokens(connection: AsyncConnection, owner: str) -> list[dict[str, object]]:
    """Returns the tokens of an owner, without their secrets."""
    row = tables.token
    query = select(row.c.id, row.c.name, row.c.scopes, row.c.created, row.c.last_used)
    query = query.where(row.c.owner == owner, row.c.scopes != _LOGIN).order_by(row.c.id)
    return [dict(item._mapping) for item in await connection.execute(query)]


async def revoke(connection: AsyncConnection, owner: str, token: str) -> None:
    """Deletes a token.

    Raises:
        MissingError: the owner has no such token.
    """
    row = tables.token
    if not (await connection.execute(delete(row).where(row.c.id == token, row.c.owner == owner))).rowcount:
        raise MissingError(f"token {token}: not found")
