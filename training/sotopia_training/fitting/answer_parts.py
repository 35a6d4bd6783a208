"""The parts of an answer: the tokens of its move, and those of the words beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sotopia_env.foundation.json_text import ANSWER_DECODER
from sotopia_training.models.tokenizers import answer_ids, answer_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BETWEEN = " \t\r\n,:"
Span = tuple[int, int]
_NOTHING: Span = (0, 0)


def move_tokens(tokenizer: PreTrainedTokenizerBase, completion: str) -> list[bool]:
    """Returns for each token of an answer, its end token included, whether it has a part of the move."""
    start, end = _spans(completion).get("move", _NOTHING)
    return _tokens(tokenizer, completion, lambda before, after: start < after and before < end)


def word_tokens(tokenizer: PreTrainedTokenizerBase, completion: str) -> list[bool]:
    """Returns for each token, its end token included, whether it is words beside a move and nothing else.

    An answer without a move has none: its words are all that it does.
    """
    spans = _spans(completion)
    start, end = spans.get("argument", _NOTHING) if "move" in spans else _NOTHING
    # Without the quotation marks: a token that has one of them is a part of the form.
    return _tokens(tokenizer, completion, lambda before, after: start < before and after < end)


def _tokens(tokenizer: PreTrainedTokenizerBase, completion: str, holds: Callable[[int, int], bool]) -> list[bool]:
    ids = answer_ids(tokenizer, completion)
    # The end of each token in the text, measured on prefixes: tokenizers without offsets have it, too.
    ends = [len(answer_text(tokenizer, ids[: count + 1])) for count in range(len(ids))]
    return [before < after and holds(before, after) for before, after in zip([0, *ends], ends, strict=False)]


def _spans(completion: str) -> dict[str, Span]:
    """Returns where the value of each key of an action as JSON begins and ends; nothing for other texts."""
    spans: dict[str, Span] = {}
    at = _skip(completion, 0, " \t\r\n{")
    try:
        while completion[at:].strip() != "}":
            key, at = ANSWER_DECODER.raw_decode(completion, at)
            start = _skip(completion, at, _BETWEEN)
            value, at = ANSWER_DECODER.raw_decode(completion, start)
            if value is not None:
                spans[str(key)] = (start, at)
            at = _skip(completion, at, _BETWEEN)
    except (ValueError, RecursionError):  # not JSON, or not an object
        return {}
    return spans


def _skip(text: str, start: int, characters: str) -> int:
    return len(text) - len(text[start:].lstrip(characters))
