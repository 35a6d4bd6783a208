r"""Text from outside, made harmless: as a quoted literal, or as it stands without what could pose or act.

Two things are written as ``\uXXXX``, by what they are and not by a list of names:

- Characters that cannot be seen, that end lines or that reorder text: the Unicode categories Cc, Cf, Cs, Zl and Zp, and
  the letters and marks that Unicode itself calls ignorable. So emoji joined by U+200D fall apart into their parts, and
  Persian or Indic words show their joiners U+200C and U+200D as escapes; all of it can still be read.
- The first character of everything that has the *shape* of a control token: ``<word>`` without blanks (``</s>``,
  ``<extra_id_0>``, but also ``<b>``), ``<|``, ``[WORD]`` (unless it is written as people write: ``[laughs]``,
  ``[Laughs]``, ``[0]``), ``|WORD|``, ``>>WORD<<`` and square brackets beside a tilde.
"""

from __future__ import annotations

import json
import re
import unicodedata

# The categories Cc (but the line end and the tab, which JSON escapes and authors may use), Cf, Cs, Zl and Zp, and what
# else has Default_Ignorable_Code_Point, reserved ones included. Written out, so that every version of Python, whose
# tables differ, escapes the same; a test compares them with unicodedata.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# No longer than 128, which no token is, so that a long run of openings costs no more than its length.
_TOKEN = re.compile(
    r'<(?=[|\uff5c]|[^\s">]{1,128}>)'
    r'|\[(?!(?:[A-Z]?[^\sA-Z0-9_|@~"\]]{0,128}|[0-9.,:;*/+-]{0,128})\])(?=[^\s"\]]{1,128}\])'
    r"|\|(?=[A-Z_]{3,64}\|)|>(?=[A-Z_0-9]{3,64}<<)|\](?=~)|\[(?=\w{0,8}~)"
)
_OPENING = re.compile(r"[<\[|>\]]")
_ASCII = re.compile(r"[\t\n -~]*\Z")  # nothing unseen in it
_STRUCTURE = re.compile(r"[\"“”„‟«»‹›|¦│∣#;·•∙⋅‧()<>\[\]{}\\]|[,:](?!\d)|(?<!\d)[,:]")
_PLAIN = re.compile(r"[ !#-;=?-Z^-{}~]*\Z")  # printable ASCII without any of " \ < > [ ] |


def _escape(match: re.Match[str]) -> str:
    raw = match.group().encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2)])


def pose(text: str) -> str:
    """Returns the first character of ``text`` by which it could pose as part of a line, or an empty text.

    People, issues and options stand unquoted in turns and on the table (``Turn #3 | Ana · offers (#2): price $84``,
    ``Votes: Ana for museum, Ben for park.``). So their names may hold nothing of which such lines are built, also in
    other widths (NFKC), and nothing that :func:`disarm` would change; ``10:30`` and ``1,000`` are fine.
    """
    match = _STRUCTURE.search(unicodedata.normalize("NFKC", text))
    if match:
        return match.group()
    return next((one for one, other in zip(text, disarm(text), strict=False) if one != other), "")


def quote(text: str) -> str:
    r"""Returns ``text`` as a JSON string literal on one line that no reader can mistake for anything else.

    What is risky (see the module's text) is written as ``\uXXXX``; ``json.loads(quote(text)) == text`` for every text.
    """
    if _PLAIN.match(text):
        return f'"{text}"'
    return disarm(json.dumps(text, ensure_ascii=False))


def disarm(text: str) -> str:
    r"""Returns ``text`` as it stands, line ends and tabs included, with only what is risky written as ``\uXXXX``.

    For authors' texts, for a model's own words in a message of their own, and for terminals. Doing it twice changes
    nothing more.
    """
    if not _ASCII.match(text):
        text = _UNSEEN.sub(_escape, text)
    # Again, because an escape within brackets has digits, which make a token's shape of them: "[<]>".
    while _OPENING.search(text) and (escaped := _TOKEN.sub(_escape, text)) != text:
        text = escaped
    return text


def disarm_line(text: str) -> str:
    r"""Returns ``text`` as :func:`disarm` does, with its line ends written as ``\u000a``, too."""
    return disarm(text).replace("\n", "\\u000a")
