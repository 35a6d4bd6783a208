"""A cache of answers on disk, so that the same question is not paid for twice. Off by default.

Only answers that the caller accepts are stored: an unreadable verdict would be useless the next time, too.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sotopia_env.chat_model.protocol import ChatReply, ChatRequest
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import canonical_json, decode_json

logger = logging.getLogger(__name__)

_VERSION = 2  # the version of the key and of the stored value
_FILE = "answers.sqlite"
_TABLE = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID"
_SECONDS = 60  # the maximum wait for another process that is writing
# ValueError: text that is not valid Unicode, such as half of a surrogate pair.
_ERRORS = (sqlite3.Error, OSError, ValueError)
_REPLY: TypeAdapter[ChatReply] = TypeAdapter(ChatReply)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Size of a cache: its directory, number of answers, bytes on disk."""

    directory: Path
    answers: int
    size: int


class ResponseCache:
    """A cache of answers, keyed by everything that determines them, including the replicate and re-ask numbers.

    Answers are stored as JSON text in one SQLite file, which several processes may use at once. Rows that cannot be
    read are ignored.
    """

    def __init__(self, directory: str | Path) -> None:
        """Opens the cache, and creates its directory if necessary.

        Raises:
            InvalidValueError: the directory cannot be used.
        """
        self._directory = Path(directory)
        self._answers = _open(self._directory)
        self._has_failed = False

    def key(self, identity: str, parameters: dict[str, Any], request: ChatRequest) -> str:
        """Returns the cache key of a request; role and label are not part of it, since they are not sent to a model."""
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
        # Added only if they are set, so that keys stored before the fields existed stay valid.
        if request.tools:
            question["tools"] = request.tools
        if request.alternatives > 1:
            question["alternatives"] = request.alternatives
        if request.extra:
            question["extra"] = dict(request.extra)
        return hashlib.sha256(canonical_json(question).encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, key: str) -> ChatReply | None:
        """Returns the answer stored under ``key``, with a cost of 0; ``None`` without a readable one."""
        try:
            row = self._answers.execute("SELECT reply FROM answers WHERE key = ?", (key,)).fetchone()
        except _ERRORS as error:
            self._warn("read", error)
            return None
        if row is None or not isinstance(row[0], str):
            return None
        try:
            reply = _REPLY.validate_python(decode_json(row[0]))
        except ValueError:  # invalid JSON, or a pydantic error
            return None
        return replace(reply, cost=0.0, latency=0.0, attempts=0, cached=True)

    def store(self, key: str, reply: ChatReply) -> None:
        """Stores an answer. A failure is only logged, since the caller already has the answer."""
        try:
            text = _REPLY.dump_json(reply).decode("utf-8")
            self._answers.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, text))
        except _ERRORS as error:
            self._warn("stored", error)

    def _warn(self, operation: str, error: Exception) -> None:
        # One warning is enough: with a full disk, every answer fails.
        level = logging.DEBUG if self._has_failed else logging.WARNING
        self._has_failed = True
        logger.log(level, "%s: an answer could not be %s (%r)", self._directory, operation, error)

    def close(self) -> None:
        """Closes the file."""
        self._answers.close()


def _open(directory: Path) -> sqlite3.Connection:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # ``isolation_level=None`` is autocommit. One connection serves all threads of a run, one at a time.
        connection = sqlite3.connect(directory / _FILE, timeout=_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        # A power cut may lose the last answers, but cannot damage the file (SQLite manual, PRAGMA synchronous).
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(_TABLE)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidValueError(f"the cache cannot be opened ({reason})", where=directory) from None
    return connection


def _existing(directory: str | Path) -> Path:
    path = Path(directory)
    if not (path / _FILE).is_file():
        raise InvalidValueError(expected="a response cache", where=path)
    return path


def cache_info(directory: str | Path) -> CacheInfo:
    """Returns the size of a cache.

    Raises:
        InvalidValueError: ``directory`` does not hold a cache.
    """
    path = _existing(directory)
    with closing(_open(path)) as answers:
        ((count,),) = answers.execute("SELECT count(*) FROM answers")
    return CacheInfo(path, count, (path / _FILE).stat().st_size)


def clear_cache(directory: str | Path) -> int:
    """Removes all answers and returns their number.

    Raises:
        InvalidValueError: ``directory`` does not hold a cache.
    """
    with closing(_open(_existing(directory))) as answers:
        count = answers.execute("DELETE FROM answers").rowcount
        answers.execute("VACUUM")
    return count
