"""Constrained decoding: which tokens may follow so that an answer keeps to a JSON schema.

The grammar engine is ``llguidance`` (MIT; extra ``constrained``). Each row of a batch has a matcher of its own, which
gets the tokens that were sampled and says which may come next; what may not is masked before sampling, in plain torch.
So the recorded log-probabilities are those of the distribution that was sampled from, not the free model's.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
_BITS = 32


def is_available() -> bool:
    """Whether llguidance is installed."""
    return importlib.util.find_spec("llguidance") is not None


class Grammars:
    """Matchers over the tokens of one model.

    A schema that the engine cannot compile, or a tokenizer that it cannot read, leaves answers unconstrained; that is
    logged once for each.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
        """Reads the tokenizer, which takes about a second for 50,000 tokens.

        Args:
            tokenizer: of the model.
            vocabulary: number of the model's logits, which may be more than the tokenizer's tokens.
        """
        import llguidance.hf

        self.vocabulary = vocabulary
        self._tokenizer: Any = None
        try:  # the engine reads fast tokenizers of several kinds, and has no error of its own for the others
            self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary)
        except (AssertionError, ValueError, RuntimeError, TypeError, KeyError, AttributeError) as error:
            logger.warning("answers are not constrained: the tokenizer cannot be read (%s)", _first_line(error))
        self._grammar = lru_cache(maxsize=256)(self._compile)

    def matcher(self, schema: Mapping[str, Any] | None) -> Any:
        """Returns a new matcher at the beginning of an answer; ``None`` where nothing constrains it."""
        if schema is None or self._tokenizer is None:
            return None
        grammar = self._grammar(json.dumps(schema, sort_keys=True))
        return None if grammar is None else _new_matcher(self._tokenizer, grammar)

    def _compile(self, schema: str) -> str | None:
        import llguidance

        compiled = llguidance.LLMatcher.grammar_from_json_schema
        try:
            grammar: str = compiled(schema, overrides={"whitespace_flexible": False})
            error = _new_matcher(self._tokenizer, grammar).get_error()
        except ValueError as invalid:
            error = str(invalid)
        if error:
            logger.warning("answers are not constrained: a schema cannot be compiled (%s)", error.splitlines()[0])
            return None
        return grammar


def _new_matcher(tokenizer: Any, grammar: str) -> Any:
    import llguidance

    return llguidance.LLMatcher(tokenizer, grammar)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def masked(logits: torch.Tensor, matchers: Sequence[Any], end: int) -> torch.Tensor:
    """Returns the logits with those tokens at minus infinity that a row's matcher does not allow next.

    Args:
        logits: (rows, vocabulary).
        matchers: of each row; ``None`` leaves a row as it is.
        end: the token that ends an answer; the only one after a complete answer.
    """
    import llguidance.torch
    import torch

    rows = [row for row, matcher in enumerate(matchers) if matcher is not None]
    if not rows:
        return logits
    # llguidance's own torch kernel is compiled at its first use, which takes seconds and a C compiler.
    bits = llguidance.torch.allocate_token_bitmask(len(rows), logits.shape[1])  # (rows, vocabulary / 32)
    for number, row in enumerate(rows):
        llguidance.torch.fill_next_token_bitmask(matchers[row], bits, number)
    shifts = torch.arange(_BITS, dtype=torch.int32)
    allowed = (torch.bitwise_right_shift(bits[:, :, None], shifts) & 1).bool().flatten(1)[:, : logits.shape[1]]
    for number, row in enumerate(rows):
        if matchers[row].is_stopped() or not bool(allowed[number].any()):
            allowed[number] = False
            allowed[number, end] = True
    index = torch.tensor(rows, device=logits.device)
    free = logits[index].masked_fill(~allowed.to(logits.device), float("-inf"))
    return logits.index_copy(0, index, free)


def consume(matchers: Sequence[Any], tokens: Sequence[int], ends: Sequence[int]) -> None:
    """Tells each row's matcher which token was sampled; end tokens are not part of an answer."""
    for matcher, token in zip(matchers, tokens, strict=True):
        if matcher is not None and token not in ends and not matcher.is_stopped():
            matcher.consume_token(token)
