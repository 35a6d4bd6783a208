"""Checks of a server at no cost: that it answers, accepts the key and has the model."""

from __future__ import annotations

import asyncio

import aiohttp

from sotopia_env.chat_model.transports.attempt import one_line
from sotopia_env.chat_model.transports.keys import redact
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.json_text import decode_json

_SECONDS = 5.0


async def check_reachable(name: str, base: str, session: aiohttp.ClientSession) -> None:
    """Checks that something answers at a server's base URL.

    Args:
        name: the model as the user named it.
        base: the server's base URL.
        session: to send the request with.

    Raises:
        InvalidValueError: nothing answers.
    """
    await _get(name, base, base, session)


async def check_listed(name: str, model: str, base: str, variable: str | None, session: aiohttp.ClientSession) -> None:
    """Asks an OpenAI-compatible server for its models. One that lists none is not checked further.

    Args:
        name: the model as the user named it.
        model: its name on the server.
        base: the server's base URL.
        variable: environment variable of the key that ``session`` sends; ``None`` when it sends none.
        session: to send the request with.

    Raises:
        InvalidValueError: nothing answers at the base URL, it does not accept the key, or it redirects (the key
            is not sent there).
        UnknownNameError: it lists models, and this one is not among them.
    """
    status, raw, location = await _get(name, base, f"{base}/models", session)
    if 300 <= status < 400 and location:
        raise InvalidValueError(
            f"model {name!r}: expected a server at {base}, got HTTP {status} to Location {one_line(redact(location))}; "
            "give the address that it is reached at without a redirection"
        )
    if status in (401, 403) and variable is not None:
        raise InvalidValueError(f"{base}: expected another key in {variable}, got HTTP {status}")
    names = _names(raw) if status == 200 else []
    has_pattern = any("*" in entry for entry in names)  # a gateway that passes on every name
    if names and not has_pattern and not any(_same(model, entry) for entry in names):
        raise UnknownNameError(f"model at {base}: {name_hint(model, names)}")


def _same(model: str, entry: str) -> bool:
    """Whether an entry of the list is ``model``, apart from an owner before it and a tag behind only one of the two."""
    if (":" in model) != (":" in entry):
        model, entry = model.partition(":")[0], entry.partition(":")[0]
    return entry == model or entry.endswith(f"/{model}")


def _names(raw: bytes) -> list[str]:
    try:
        return [redact(str(entry["id"])) for entry in decode_json(raw)["data"]]
    except (ValueError, KeyError, TypeError):
        return []


async def _get(name: str, base: str, url: str, session: aiohttp.ClientSession) -> tuple[int, bytes, str]:
    try:
        async with asyncio.timeout(_SECONDS), session.get(url, allow_redirects=False) as response:
            return response.status, await response.read(), response.headers.get("Location", "")
    except TimeoutError:
        raise InvalidValueError(
            f"model {name!r}: expected a server at {base}, got no answer in {_SECONDS:g} seconds"
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise InvalidValueError(
            f"model {name!r}: expected a server at {base}, got {one_line(redact(str(error)))}"
        ) from None
