"""Text of unknown origin on a person's screen."""

from __future__ import annotations

import re

# Besides the control characters, those that turn the direction of a line round and could so show it as another text.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Returns ``text`` with control characters other than line ends written out, so that none reaches a terminal."""
    return _CONTROL.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


__all__ = ["printable"]
