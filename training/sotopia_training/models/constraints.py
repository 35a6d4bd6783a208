"""Constrained decoding: masks tokens that would violate a JSON schema before each token is sampled.

llguidance (the extra ``constrained``) compiles a schema once and matches it against the tokens of each row. The mask
changes the distribution: recorded log-probabilities are those of the masked distribution.

If the engine cannot constrain an answer, because of its schema, the tokenizer or a limit of the engine, the answer
continues unconstrained and is marked with the reason, and one warning is logged.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
_AS_WRITTEN: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""The white space of ``json.dumps``, as in training data: a trained model has learnt no other form."""


def is_available() -> bool:
    """Whether llguidance is installed."""
    return importlib.util.find_spec("llguidance") is not None


class Constraint:
    """The tokens that may come next in one answer.

    Attributes:
        failure: the reason why the answer is not, or no longer, constrained; empty if it is constrained.
    """

    def __init__(self, matcher: Any, vocabulary: int, end: int, warn: Callable[[str], None], failure: str = "") -> None:
        """Creates the constraint at the beginning of an answer.

        Args:
            matcher: llguidance's matcher; ``None`` with a ``failure``.
            vocabulary: the number of the model's logits.
            end: the token that ends an answer, the only one allowed after a complete answer.
            warn: called with the reason of a failure within the answer.
            failure: the reason why the answer cannot be constrained.
        """
        self.failure = failure
        self._matcher, self._vocabulary, self._end, self._warn = matcher, vocabulary, end, warn

    def allowed(self) -> NDArray[np.bool_] | None:
        """Returns whether each token may come next, (vocabulary,); ``None`` if all may."""
        import numpy as np

        if self.failure:
            return None
        if not self._matcher.is_stopped():
            # One bit per token, the lowest bit of a byte first.
            packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            allowed = np.unpackbits(packed, bitorder="little")[: self._vocabulary].astype(bool)
            if allowed.any() and not self._failed():
                return allowed
        # The matcher stops both after a complete answer and after an error.
        if self._failed():
            return None
        ended = np.zeros(self._vocabulary, dtype=bool)
        ended[self._end] = True
        return ended

    def take(self, token: int) -> None:
        """Advances by a token of the answer; end tokens are not part of it."""
        if not self.failure and not self._matcher.is_stopped():
            self._matcher.consume_token(token)

    def _failed(self) -> bool:
        if self._matcher.is_error():
            self.failure = _first_line(self._matcher.get_error())
            self._warn(self.failure)
        return bool(self.failure)


@lru_cache(maxsize=4)
def grammars_of(tokenizer: PreTrainedTokenizerBase, vocabulary: int, end: int) -> Grammars:
    """Returns the cached grammars of a tokenizer; the arguments are those of :class:`Grammars`."""
    return Grammars(tokenizer, vocabulary, end)


class Grammars:
    """Constraints over the tokens of one model."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, end: int) -> None:
        """Reads the tokenizer, which takes about a second for 50,000 tokens.

        Args:
            tokenizer: the tokenizer of the model.
            vocabulary: the number of the model's logits, which may exceed the number of the tokenizer's tokens.
            end: the token that ends a complete answer.
        """
        import llguidance.hf

        self._vocabulary, self._end = vocabulary, end
        self._tokenizer: Any = None
        self._unreadable = ""
        # The engine supports several kinds of fast tokenizers, and raises various errors for the others.
        try:
            self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocabulary)
        except (AssertionError, ValueError, RuntimeError, TypeError, KeyError, AttributeError) as error:
            self._unreadable = f"the tokenizer cannot be read ({_first_line(str(error)) or type(error).__name__})"
            logger.warning("answers are not constrained: %s", self._unreadable)
        self._grammar = lru_cache(maxsize=256)(self._compile)
        self._has_failed = False

    def constraint(self, schema: Mapping[str, Any]) -> Constraint:
        """Returns the constraint of a new answer."""
        # Keys are not sorted: answers have the properties in the order of the schema.
        grammar, failure = self._grammar(json.dumps(schema))
        matcher = None if failure else _new_matcher(self._tokenizer, grammar)
        return Constraint(matcher, self._vocabulary, self._end, self._warn, failure)

    def _warn(self, failure: str) -> None:
        if not self._has_failed:
            logger.warning("an answer continues unconstrained: %s; later ones are only marked in records", failure)
        self._has_failed = True

    def _compile(self, schema: str) -> tuple[str, str]:
        """Returns a schema's grammar, or an empty one and the reason why it cannot be compiled."""
        import llguidance

        if self._unreadable:
            return "", self._unreadable
        error = ""
        # What the engine does not know, such as `propertyNames`, is left out only where the whole cannot be compiled:
        # every answer is read by its form in any case, and most of a schema is better than none of it.
        for lenient in (False, True):
            try:
                grammar = llguidance.LLMatcher.grammar_from_json_schema(
                    schema, overrides=_AS_WRITTEN | {"lenient": lenient}
                )
                error = _new_matcher(self._tokenizer, grammar).get_error()
            except ValueError as invalid:
                error = str(invalid)
            if not error:
                return grammar, ""
        failure = f"a schema cannot be compiled ({_first_line(error)})"
        logger.warning("answers are not constrained: %s", failure)
        return "", failure


def _new_matcher(tokenizer: Any, grammar: str) -> Any:
    import llguidance

    return llguidance.LLMatcher(tokenizer, grammar, log_level=0)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]


def masked(logits: torch.Tensor, constraints: Sequence[Constraint | None]) -> torch.Tensor:
    """Returns the logits with minus infinity for tokens that a row's constraint does not allow next.

    Args:
        logits: the logits, (rows, vocabulary).
        constraints: the constraint of each row; ``None`` leaves the row unchanged.
    """
    import numpy as np
    import torch

    candidates = [(row, constraint.allowed()) for row, constraint in enumerate(constraints) if constraint is not None]
    masks = {row: mask for row, mask in candidates if mask is not None}
    if not masks:
        return logits
    index = torch.tensor([*masks], device=logits.device)  # (constrained rows,)
    allowed = torch.from_numpy(np.stack([*masks.values()])).to(logits.device)  # (constrained rows, vocabulary)
    return logits.index_copy(0, index, logits[index].masked_fill(~allowed, float("-inf")))
