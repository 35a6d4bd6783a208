"""What a server says before it is asked anything that costs: whether it is there, takes the key and has the model."""

from __future__ import annotations

import asyncio
import json

import aiohttp

from sotopia_env.chat_model.transports.attempt import one_line
from sotopia_env.chat_model.transports.keys import redact
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint

_SECONDS = 5.0


async def check_reachable(name: str, base: str, session: aiohttp.ClientSession) -> None:
    """Finds out whether anything answers at a server's base URL, whatever it says.

    Args:
        name: the model as the user named it.
        base: the server's base URL.
        session: with which to ask.

    Raises:
        InvalidValueError: nothing answers.
    """
    await _get(name, base, base, session)


async def check_listed(name: str, model: str, base: str, variable: str | None, session: aiohttp.ClientSession) -> None:
    """Asks an OpenAI-compatible server for its models. One that lists none is left to the first call.

    Args:
        name: the model as the user named it.
        model: its name on the server.
        base: the server's base URL.
        variable: environment variable of the key that ``session`` sends; ``None`` when it sends none.
        session: with which to ask.

    Raises:
        InvalidValueError: nothing answers at the base URL, it does not accept the key, or it sends elsewhere (where the
            key is not sent).
        UnknownNameError: it lists models, and this one is not among them.
    """
    status, raw, place = await _get(name, base, f"{base}/models", session)
    if 300 <= status < 400 and place:
        raise InvalidValueError(
            f"model {name!r}: expected a server at {base}, got HTTP {status} to Location {one_line(redact(place))}; "
            "give the address that it is reached at without a redirection"
        )
    if status in (401, 403) and variable is not None:
        raise InvalidValueError(f"{base}: expected another key in {variable}, got HTTP {status}")
    names = _names(raw) if status == 200 else []
    open_ended = any("*" in listed for listed in names)  # a gateway that passes on whatever it is asked for
    if names and not open_ended and not any(_same(model, listed) for listed in names):
        raise UnknownNameError(f"model at {base}: {name_hint(model, names)}")


def _same(model: str, listed: str) -> bool:
    """Whether a listed name means ``model``: an owner before it, and a tag behind one of the two, are left aside."""
    if (":" in model) != (":" in listed):
        model, listed = model.partition(":")[0], listed.partition(":")[0]
    return listed == model or listed.endswith(f"/{model}")


def _names(raw: bytes) -> list[str]:
    try:
        return [str(entry["id"]) for entry in json.loads(raw)["data"]]
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
