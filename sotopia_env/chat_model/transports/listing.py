"""Free checks of a server: whether it responds, accepts the key and has the model."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import aiohttp

from sotopia_env.chat_model.transports.attempt import is_page, one_line, page_message
from sotopia_env.chat_model.transports.completion import label_of
from sotopia_env.chat_model.transports.connections import connection_problem, read_body
from sotopia_env.chat_model.transports.keys import redact
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Verbatim, Where
from sotopia_env.foundation.json_text import decode_json

_SECONDS = 5.0
MOST_LIST_BYTES = 4_000_000  # the lists of the largest gateways have several hundred thousand bytes


async def check_reachable(name: str, base: str, session: aiohttp.ClientSession) -> None:
    """Checks that a server responds at its base URL.

    Args:
        name: the model as the user named it.
        base: the server's base URL.
        session: the session that sends the request.

    Raises:
        InvalidValueError: no server responds.
    """
    await _get(name, base, base, session)


async def check_listed(name: str, model: str, base: str, variable: str | None, session: aiohttp.ClientSession) -> None:
    """Checks that an OpenAI-compatible server lists the model; a server that lists no models passes.

    Args:
        name: the model as the user named it.
        model: the name of the model on the server.
        base: the server's base URL.
        variable: the environment variable with the key that ``session`` sends; ``None`` if it sends no key.
        session: the session that sends the request.

    Raises:
        InvalidValueError: no server responds at the base URL, it does not accept the key, it redirects (the key is
            not sent to the new address), its API is under ``/v1``, or it serves a web page.
        UnknownNameError: the server lists its models, and this one is not among them.
    """
    where = Where(record=f"model {name!r}")
    status, raw, location = await _get(name, base, f"{base}/models", session)
    if 300 <= status < 400 and location:
        raise InvalidValueError(
            field="model",
            expected=f"a server at {base}",
            got=Verbatim(f"HTTP {status} to Location {one_line(redact(location))}"),
            where=where,
            hint="use the address that does not redirect",
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
    # A gateway that lists a pattern such as "openai/*" accepts names that are not in the list.
    has_pattern = any("*" in entry for entry in names)
    if names and not has_pattern and not any(_same(model, entry) for entry in names):
        raise UnknownNameError(field="model", got=model, valid=names, where=base)


async def _find_base(name: str, base: str, session: aiohttp.ClientSession) -> None:
    """Refuses a base URL without a list of models if the same URL with ``/v1`` has one."""
    if urlsplit(base).path.strip("/"):
        return
    status, raw, _ = await _get(name, base, f"{base}/v1/models", session)
    if status == 200 and _names(raw):
        raise InvalidValueError(
            field="model", expected=f"the base URL {base}/v1", got=base, where=Where(record=f"model {name!r}")
        )


def _same(model: str, entry: str) -> bool:
    """Whether an entry of the list is ``model``, ignoring a prefix with the owner and a tag that only one has."""
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
        # Some servers that fail at this request close the connection later; the first request would then fail on it.
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
        problem = Verbatim(one_line(redact(connection_problem(error))))
        raise InvalidValueError(field="model", expected=f"a server at {base}", got=problem, where=where) from None
