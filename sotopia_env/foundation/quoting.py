r"""Escaping of text from outside: as a quoted literal, or unquoted with only the risky characters escaped.

Two kinds of characters are written as ``\uXXXX``. They are recognized by their properties, not by a list of names:

- Characters that are invisible, end lines or reorder text: the Unicode categories Cc, Cf, Cs, Zl and Zp, and the
  letters and marks that Unicode calls ignorable. Therefore, emoji joined by U+200D are split into their parts, and the
  joiners U+200C and U+200D in Persian or Indic words appear as escapes; the text can still be read.
- The first character of everything with the *shape* of a control token: ``<word>`` without blanks (``</s>``,
  ``<extra_id_0>``, but also ``<b>``), ``<|``, ``[WORD]`` (but not in forms that people use: ``[laughs]``, ``[Laughs]``,
  ``[0]``), ``|WORD|``, ``>>WORD<<`` and square brackets beside a tilde.
"""

from __future__ import annotations

import json
import re
import unicodedata

# The categories Cc (except line end and tab, which JSON escapes and authors may use), Cf, Cs, Zl and Zp, and all other
# characters with Default_Ignorable_Code_Point, including reserved ones. The ranges are explicit, so that all versions
# of Python escape the same characters although their Unicode tables differ; a test compares them with unicodedata.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Tokens are shorter than 128 characters; the limit keeps the time linear for a long run of opening brackets.
_TOKEN = re.compile(
    r'<(?=[|\uff5c]|[^\s">]{1,128}>)'
    r'|\[(?!(?:[A-Z]?[^\sA-Z0-9_|@~"\]]{0,128}|[0-9.,:;*/+-]{0,128})\])(?=[^\s"\]]{1,128}\])'
    r"|\|(?=[A-Z_]{3,64}\|)|>(?=[A-Z_0-9]{3,64}<<)|\](?=~)|\[(?=\w{0,8}~)"
)
_OPENING = re.compile(r"[<\[|>\]]")
_ASCII = re.compile(r"[\t\n -~]*\Z")  # contains no invisible characters
_STRUCTURE = re.compile(r"[\"“”„‟«»‹›|¦│∣#;·•∙⋅‧()<>\[\]{}\\]|[,:](?!\d)|(?<!\d)[,:]")
_PLAIN = re.compile(r"[ !#-;=?-Z^-{}~]*\Z")  # printable ASCII without any of " \ < > [ ] |


def _escape_match(match: re.Match[str]) -> str:
    raw = match.group().encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2)])


def structural_character(text: str) -> str:
    """Returns the first character with which ``text`` could imitate the structure of a line, or an empty text.

    Names of people, issues and options appear unquoted in turns and on the table (``Turn #3 | Ana · offers (#2): price
    $84``, ``Votes: Ana for museum, Ben for park.``). They must not contain characters that structure such lines, also
    in other widths (NFKC), or that :func:`escape` would change; ``10:30`` and ``1,000`` are allowed.
    """
    match = _STRUCTURE.search(unicodedata.normalize("NFKC", text))
    if match:
        return match.group()
    return next((one for one, other in zip(text, escape(text), strict=False) if one != other), "")


def quote(text: str) -> str:
    r"""Returns ``text`` as a JSON string literal on one line that cannot be confused with anything else.

    Risky characters (see the module's docstring) are written as ``\uXXXX``. ``json.loads(quote(text)) == text`` holds
    for every text.
    """
    if _PLAIN.match(text):
        return f'"{text}"'
    return escape(json.dumps(text, ensure_ascii=False))


def escape(text: str) -> str:
    r"""Returns ``text`` with only risky characters written as ``\uXXXX``; line ends and tabs are kept.

    For authors' texts, for a model's own text in a separate message, and for terminals. The function is idempotent.
    """
    if not _ASCII.match(text):
        text = _UNSEEN.sub(_escape_match, text)
    # Repeated, because an escape within brackets adds digits, which can give them the shape of a token: "[<]>".
    while _OPENING.search(text) and (escaped := _TOKEN.sub(_escape_match, text)) != text:
        text = escaped
    return text


def escape_line(text: str) -> str:
    r"""Returns ``text`` as :func:`escape` does, with its line ends written as ``\u000a``, too."""
    return escape(text).replace("\n", "\\u000a")
