"""Answers kept on disk, so that the same question is not paid for twice. Off unless a directory is given.

Only answers that the caller accepts are kept: a verdict that could not be read would be as useless the next time.
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

_VERSION = 2  # of the key and of what is kept
_FILE = "cache.db"
_reply: TypeAdapter[ChatReply] = TypeAdapter(ChatReply)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache holds: its directory, number of answers, bytes on disk."""

    directory: Path
    answers: int
    size: int


class ResponseCache:
    """Answers by everything that determines them, the replicate index and the number of the re-ask included."""

    def __init__(self, directory: str | Path) -> None:
        """Opens the cache, and makes its directory if there is none.

        Raises:
            InvalidValueError: the library it is built on is not installed, or the directory cannot be used.
        """
        self._directory = Path(directory)
        self._store = _open(self._directory)
        timeout: type[Exception] = importlib.import_module("diskcache").Timeout
        # ValueError: text that is no Unicode, such as half of a surrogate pair.
        self._errors = (sqlite3.Error, timeout, OSError, ValueError)
        self._warned = False

    def key(self, identity: str, parameters: dict[str, Any], request: ChatRequest) -> str:
        """Returns the key of a question to a model; role and label, which a model never sees, are left out."""
        asked = {
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
        return hashlib.sha256(canonical_json(asked).encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, key: str) -> ChatReply | None:
        """Returns the answer kept under ``key``, free of charge, or ``None``. What cannot be read is asked again."""
        try:
            kept = self._store.get(key)
        except self._errors as error:
            self._warn("read", error)
            return None
        if kept is None:
            return None
        try:
            reply = _reply.validate_json(kept)
        except ValidationError:
            return None
        return replace(reply, cost=0.0, latency=0.0, attempts=0, cached=True)

    def put(self, key: str, reply: ChatReply) -> None:
        """Keeps an answer; where that fails it is only warned about, for the answer is there and paid for."""
        try:
            self._store.set(key, _reply.dump_json(reply).decode("utf-8"))
        except self._errors as error:
            self._warn("kept", error)

    def _warn(self, done: str, error: Exception) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING  # a full disk would say so at every answer
        self._warned = True
        logger.log(level, "%s: an answer could not be %s (%s: %s)", self._directory, done, type(error).__name__, error)

    def close(self) -> None:
        """Lets go of the files."""
        self._store.close()


def _open(directory: Path) -> Any:
    try:
        diskcache = importlib.import_module("diskcache")  # optional, and without type annotations
    except ImportError:
        raise InvalidValueError("the response cache needs the package diskcache, which is not installed") from None
    try:
        # Nothing is dropped behind the user's back: `clear_cache` empties it.
        return diskcache.Cache(str(directory), eviction_policy="none", cull_limit=0)
    except OSError as error:
        raise InvalidValueError(f"{directory}: expected a directory for the cache ({error.strerror})") from None


def _existing(directory: str | Path) -> Path:
    path = Path(directory)
    if not (path / _FILE).is_file():
        raise InvalidValueError(f"{path}: expected a response cache, found none")
    return path


def cache_info(directory: str | Path) -> CacheInfo:
    """Returns what a cache holds.

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
