"""Whether a server is asked to enforce the schema of an answer."""

from __future__ import annotations

import logging
import re
from typing import Literal

from sotopia_env.chat_model.attempt import FailedAttempt
from sotopia_env.errors import InvalidValueError

logger = logging.getLogger(__name__)

Structured = Literal["auto", "on", "off"]
"""Ask for it and go without where the server refuses; insist; never ask."""
_MODES = ("auto", "on", "off")
_ABOUT = re.compile(
    r"response[_ ]?format|json[_ ]?schema|guided|structured output|grammar|requested parameters", re.IGNORECASE
)


class SchemaSupport:
    """Remembers whether a server takes ``response_format``."""

    def __init__(self, mode: Structured) -> None:
        """Begins with the benefit of the doubt.

        Raises:
            InvalidValueError: there is no such mode.
        """
        if mode not in _MODES:
            raise InvalidValueError(f"structured: expected one of {', '.join(map(repr, _MODES))}, got {mode!r}")
        self.mode = mode
        self._refused = False

    @property
    def wanted(self) -> bool:
        """Whether to ask for it now."""
        return self.mode != "off" and not self._refused

    def refused_by(self, failure: FailedAttempt) -> bool:
        """Notes a failure, and returns whether the request shall be sent again without the schema."""
        about = failure.status in (400, 404, 422) and _ABOUT.search(str(failure)) is not None
        if self.mode != "auto" or not about:
            return False
        if not self._refused:
            logger.info("the server enforces no schemas; answers are parsed without: %s", failure)
        self._refused = True
        return True
