"""Notice of servers that cut long prompts without an error: the count of prompt tokens stands still as prompts grow."""

from __future__ import annotations

import logging
from dataclasses import dataclass

logger = logging.getLogger(__name__)

_SAME = 0.98  # share of the largest count; servers cut at whole tokens of whole messages
_GROWTH = 1.5  # estimates of one count differ by less, unless the text is of another kind
_TIMES = 3


@dataclass(slots=True)
class TruncationWatch:
    """Compares estimated and counted tokens of prompts, and warns once.

    Attributes:
        name: the model's name, for the warning.
    """

    name: str
    _most: int = 0  # the largest count
    _shortest: int = 0  # the smallest estimate with about this count
    _seen: int = 0
    _has_warned: bool = False

    def note(self, estimate: int, counted: int | None) -> None:
        """Adds the prompt of an answer.

        Args:
            estimate: the estimated tokens of the prompt that was sent.
            counted: the server's count; ``None`` if it does not count.
        """
        if counted is None or self._has_warned or counted < _SAME * self._most:
            return
        if _SAME * counted > self._most:
            self._most, self._shortest, self._seen = counted, estimate, 0
        self._shortest = min(self._shortest, estimate)
        self._seen += estimate >= _GROWTH * self._shortest
        if self._seen == _TIMES:
            self._has_warned = True
            logger.warning(
                "model %r: its server counts %d prompt tokens for prompts of about %d and of about %d: it seems to cut "
                "long prompts without an error; raise its context (num_ctx for Ollama), or set context_limit=%d",
                self.name, self._most, self._shortest, estimate, self._most,
            )  # fmt: skip
