"""A cache of answers on disk, so that no question is paid for twice. Off by default.

Only answers that the caller accepts are stored: an unreadable verdict would be useless the next time, too.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.errors import InvalidValueError
from sotopia_env.records import canonical_json

logger = logging.getLogger(__name__)

_VERSION = 2  # of the key and of the stored value
_FILE = "cache.db"
_REPLY: TypeAdapter[ChatReply] = TypeAdapter(ChatReply)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Size of a cache: its directory, number of answers, bytes on disk."""

    directory: Path
    answers: int
    size: int


class ResponseCache:
    """Answers by everything that determines them, including the replicate index and the number of the re-ask."""

    def __init__(self, directory: str | Path) -> None:
        """Opens the cache, and makes its directory if there is none.

        Raises:
            InvalidValueError: diskcache is not installed, or the directory cannot be used.
        """
        self._directory = Path(directory)
        self._store = _open(self._directory)
        timeout: type[Exception] = importlib.import_module("diskcache").Timeout
        # ValueError: text that is no Unicode, such as half of a surrogate pair.
        self._errors = (sqlite3.Error, timeout, OSError, ValueError)
        self._has_failed = False

    def key(self, identity: str, parameters: dict[str, Any], request: ChatRequest) -> str:
        """Returns the key of a question to a model; role and label, which a model never sees, are left out."""
        question = {
            "version": _VERSION,
            "model": identity,
            "parameters": parameters,
            "messages": request.messages,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            "schema": request.schema,
            "logprobs": request.logprobs,
            "replicate": request.replicate,
            "reask": request.reask,
        }
        return hashlib.sha256(canonical_json(question).encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, key: str) -> ChatReply | None:
        """Returns the answer stored under ``key``, at no cost; ``None`` if there is none that can be read."""
        try:
            text = self._store.get(key)
        except self._errors as error:
            self._warn("read", error)
            return None
        if text is None:
            return None
        try:
            reply = _REPLY.validate_json(text)
        except ValidationError:
            return None
        return replace(reply, cost=0.0, latency=0.0, attempts=0, cached=True)

    def store(self, key: str, reply: ChatReply) -> None:
        """Stores an answer. A failure is only logged, since the caller has the answer already."""
        try:
            self._store.set(key, _REPLY.dump_json(reply).decode("utf-8"))
        except self._errors as error:
            self._warn("stored", error)

    def _warn(self, operation: str, error: Exception) -> None:
        level = logging.DEBUG if self._has_failed else logging.WARNING  # a full disk fails at every answer
        self._has_failed = True
        logger.log(level, "%s: an answer could not be %s (%r)", self._directory, operation, error)

    def close(self) -> None:
        """Closes the files."""
        self._store.close()


def _open(directory: Path) -> Any:
    try:
        diskcache = importlib.import_module("diskcache")  # optional, and without type annotations
    except ImportError:
        raise InvalidValueError("the response cache needs the package diskcache, which is not installed") from None
    try:
        # No eviction: only `clear_cache` removes answers.
        return diskcache.Cache(str(directory), eviction_policy="none", cull_limit=0)
    except OSError as error:
        raise InvalidValueError(f"{directory}: expected a directory for the cache ({error.strerror})") from None


def _existing(directory: str | Path) -> Path:
    path = Path(directory)
    if not (path / _FILE).is_file():
        raise InvalidValueError(f"{path}: expected a response cache, found none")
    return path


def cache_info(directory: str | Path) -> CacheInfo:
    """Returns the size of a cache.

    Raises:
        InvalidValueError: there is no cache.
    """
    path = _existing(directory)
    with _open(path) as store:
        return CacheInfo(path, len(store), store.volume())


def clear_cache(directory: str | Path) -> int:
    """Removes every answer and returns how many there were.

    Raises:
        InvalidValueError: there is no cache.
    """
    with _open(_existing(directory)) as store:
        return int(store.clear())
