"""Probabilities of lettered options, from the tokens that a server says a model might have written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sotopia_env.chat_model.protocol import TokenChoice
from sotopia_env.policies.interviews import ANSWER_KEY

_BLANK = " \t\n\u0120\u2581"  # with the marks of a blank in the tokens of some servers


def key_shares(tokens: Iterable[TokenChoice], keys: Sequence[str]) -> tuple[float, ...] | None:
    """Returns the probabilities of the keys where a model wrote one of them as its answer; they sum to 1.

    A key that is not among the best tokens that the server sent gets 0.

    Args:
        tokens: the tokens of the answer, with the best ones at each position.
        keys: the keys of the options, single letters.

    Returns:
        ``None`` if no single token of the answer is the key.
    """
    text = ""
    for token in tokens:
        before = text.rstrip(f'{_BLANK}"')
        if before.endswith(":") and before[:-1].rstrip().endswith(f'"{ANSWER_KEY}"') and _bare(token.text) in keys:
            sums = dict.fromkeys(keys, 0.0)
            for alternative, probability in token.probabilities.items():
                if _bare(alternative) in sums:
                    sums[_bare(alternative)] += probability
            total = sum(sums.values())
            return tuple(share / total for share in sums.values()) if total else None
        text += token.text
    return None


def mean_shares(orders: Sequence[Sequence[str]], shares: Sequence[tuple[float, ...] | None]) -> dict[str, float] | None:
    """Returns the mean probability of each option over several orders of them; ``None`` if one has no probabilities."""
    totals = dict.fromkeys(orders[0], 0.0)
    for order, part in zip(orders, shares, strict=True):
        if part is None:
            return None
        for option, share in zip(order, part, strict=True):
            totals[option] += share / len(orders)
    return totals


def _bare(token: str) -> str:
    """A token without the quotes, blanks and braces that tokenizers merge with a letter."""
    return token.strip(f'{_BLANK}"{{}}').upper()
