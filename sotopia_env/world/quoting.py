"""Text of others, made harmless: as a quoted literal, as it stands without control tokens, and for a terminal."""

from __future__ import annotations

import json
import re

# Characters that end a line somewhere, reorder text, are invisible, or open control tokens of chat templates.
_RISKY = re.compile(
    r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
    r"|<(?=[|\uff5c])|<(?=/?(?:s|bos|eos|pad|unk|mask|sep|cls|sop|eop|eod|think|[a-z]+(?:_[a-z]+)+)>)|<(?=</?SYS>>)"
    r"|\[(?=/?(?:[A-Z]{3,}(?:_[A-Z]+)*|[gs]MASK)\])"
)


_PLAIN = re.compile(r"[ !#-;=?-Z^-~]*\Z")  # printable ASCII without ", <, [ and the backslash


def _escape(match: re.Match[str]) -> str:
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in _utf16_units(match.group()))


def _utf16_units(text: str) -> list[bytes]:
    raw = text.encode("utf-16-be")
    return [raw[i : i + 2] for i in range(0, len(raw), 2)]


def quote(text: str) -> str:
    r"""Returns ``text`` as a JSON string literal on one line that no reader can mistake for anything else.

    Line ends of every alphabet, characters that reorder text or are invisible, and the openings of chat templates'
    control tokens are written as ``\u
    ``json.loads(quote(text)) == text`` for every text.
    """
    if _PLAIN.match(text):
        return f'"{text}"'
    return _RISKY.sub(_escape, json.dumps(text, ensure_ascii=False))


def disarm(text: str) -> str:
    r"""Returns ``text`` as it stands, line ends included, with only the risky characters written as ``\uXXXX``.

    For showing a model its own words again: these stand in a message of their own, where no quotes are needed, but may
    repeat what somebody else said.
    """
    if text.isascii() and "<" not in text and "[" not in text and "\x7f" not in text:
        return text  # of ASCII nothing else is risky
    # Most lines hold nothing that could be risky, and to see so costs a tenth of the search.
    return "\n".join([line if _is_harmless(line) else _RISKY.sub(_escape, line) for line in text.split("\n")])


def _is_harmless(line: str) -> bool:
    return line.isprintable() and "<" not in line and "[" not in line


# Besides the control characters, those that turn the direction of a line round and could so show it as another text.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Returns ``text`` with control characters other than line ends written out, so that none reaches a terminal."""
    return _CONTROL.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
