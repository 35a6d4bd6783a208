"""Checks of a server at no cost: that it answers, accepts the key and has the model."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import aiohttp

from sotopia_env.chat_model.transports.attempt import is_page, one_line, page_message
from sotopia_env.chat_model.transports.completion import label_of
from sotopia_env.chat_model.transports.connections import read_body
from sotopia_env.chat_model.transports.keys import redact
from sotopia_env.errors import InvalidValueError, UnknownNameError, Verbatim, Where
from sotopia_env.json_text import decode_json

_SECONDS = 5.0
MOST_LIST_BYTES = 4_000_000  # the lists of the largest gateways have some hundred thousand


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
            is not sent there), or has its API under ``/v1``, or is a web page.
        UnknownNameError: it lists models, and this one is not among them.
    """
    where = Where(record=f"model {name!r}")
    status, raw, location = await _get(name, base, f"{base}/models", session)
    if 300 <= status < 400 and location:
        raise InvalidValueError(
            field="model",
            expected=f"a server at {base}",
            got=Verbatim(f"HTTP {status} to Location {one_line(redact(location))}"),
            where=where,
            hint="give the address that it is reached at without a redirection",
        )
    if status in (401, 403) and variable is not None:
        raise InvalidValueError(field=variable, expected=f"a key that {base} accepts", got=Verbatim(f"HTTP {status}"))
    if status == 404:
        await _find_base(name, base, session)
    if status == 200 and is_page(raw.decode("utf-8", "replace")):
        page = one_line(redact(page_message(raw.decode("utf-8", "replace"))))
        raise InvalidValueError(
            field="model", expected=f"an API at {base}", got=Verbatim(f"a page: {page}"), where=where
        )
    names = _names(raw) if status == 200 else []
    has_pattern = any("*" in entry for entry in names)  # a gateway that passes on every name
    if names and not has_pattern and not any(_same(model, entry) for entry in names):
        raise UnknownNameError(field="model", got=model, valid=names, where=base)


async def _find_base(name: str, base: str, session: aiohttp.ClientSession) -> None:
    """Refuses a base URL that has no list of models, if the same with ``/v1`` has one."""
    if urlsplit(base).path.strip("/"):
        return
    status, raw, _ = await _get(name, base, f"{base}/v1/models", session)
    if status == 200 and _names(raw):
        raise InvalidValueError(
            field="model", expected=f"the base URL {base}/v1", got=base, where=Where(record=f"model {name!r}")
        )


def _same(model: str, entry: str) -> bool:
    """Whether an entry of the list is ``model``, apart from an owner before it and a tag behind only one of the two."""
    if (":" in model) != (":" in entry):
        model, entry = model.partition(":")[0], entry.partition(":")[0]
    return entry == model or entry.endswith(f"/{model}")


def _names(raw: bytes) -> list[str]:
    try:
        return [redact(label_of(entry["id"])) for entry in decode_json(raw)["data"]]
    except (ValueError, KeyError, TypeError):
        return []


async def _get(name: str, base: str, url: str, session: aiohttp.ClientSession) -> tuple[int, bytes, str]:
    where = Where(record=f"model {name!r}")
    try:
        # Servers that fail at the list close the connection without a word, and the first question would break on it.
        headers = {"Connection": "close"}
        async with (
            asyncio.timeout(_SECONDS),
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            raw, _ = await read_body(response, MOST_LIST_BYTES)
            return response.status, raw, response.headers.get("Location", "")
    except TimeoutError:
        raise InvalidValueError(
            field="model",
            expected=f"a server at {base}",
            got=Verbatim(f"no answer in {_SECONDS:g} seconds"),
            where=where,
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise InvalidValueError(
            field="model", expected=f"a server at {base}", got=Verbatim(one_line(redact(str(error)))), where=where
        ) from None
