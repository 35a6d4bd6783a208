"""Policy for sending failed requests again: the number of retries, and the wait before each."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, check_whole


def retry_after(headers: Mapping[str, Any], now: datetime | None = None) -> float | None:
    """Returns the seconds a server asks to wait, zero or more; ``None`` if the headers contain no readable wait.

    Reads ``Retry-After`` (RFC 9110 §10.2.3: seconds, or an HTTP date) and ``retry-after-ms``, which some servers add.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("Retry-After") or headers.get("retry-after")
    seconds = _seconds(value)
    return seconds if seconds is not None or value is None else _until(str(value), now or datetime.now(UTC))


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, seconds) if seconds < float("inf") else None


def _until(date: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    # ``parsedate_to_datetime`` returns a naive datetime for the zone "-0000"; HTTP dates are always in GMT.
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


PATIENCE = 600.0
_UNITS = {"s": 1, "m": 60, "h": 3600}


def read_patience(value: str | float) -> float:
    """Returns the seconds in a number, or in a text such as ``90``, ``90s``, ``10m`` or ``1.5h``.

    Raises:
        InvalidValueError: ``value`` is not such a number or text.
    """
    text = str(value).strip()
    factor = _UNITS.get(text[-1:], 0)
    try:
        seconds = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidValueError(expected="seconds, zero or more, or a text such as '10m' or '1h'", got=value)
    return seconds


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of retries, and the wait before each.

    The wait is exponential with full jitter: uniform between zero and ``min(cap, base * 2**n)`` seconds before retry
    n = 0, 1, … (so that callers that failed together do not retry together). If the server asks for a wait, between
    zero and ``base`` seconds are added to it. :mod:`sotopia_env.chat_model.outage` handles longer silence of a model.

    Attributes:
        retries: the maximum number of times that a request is sent again.
        empty_retries: the maximum number of these retries that may follow an answer without text, since such answers
            are billed.
        base: the upper bound of the first wait, in seconds.
        cap: the upper bound of every wait, in seconds.
        patience: seconds to wait for an unresponsive model before the run ends (it can be continued later); 0 for no
            wait, so that calls fail when their retries are used up.
    """

    retries: int = 6
    empty_retries: int = 2
    base: float = 0.5
    cap: float = 30.0
    patience: float = PATIENCE

    def __post_init__(self) -> None:
        for name in ("retries", "empty_retries"):
            check_whole(name, getattr(self, name), 0)
        for name in ("base", "cap", "patience"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidValueError(field=name, expected="seconds, zero or more", got=getattr(self, name))

    def is_long(self, wait: float | None) -> bool:
        """Whether the server asks for a wait of more than ``cap``, the maximum for a single retry."""
        return wait is not None and wait > self.cap

    def delay(self, retry: int, wait: float | None, rng: random.Random) -> float:
        """Returns the seconds before ``retry`` (0 for the first); at least ``wait``, if the server asks for a wait."""
        if wait is not None:
            return wait + rng.uniform(0.0, self.base)
        # The exponent is bounded, since ``2.0 ** retry`` overflows for large numbers of retries.
        return rng.uniform(0.0, min(self.cap, self.base * 2.0 ** min(retry, 60)))
