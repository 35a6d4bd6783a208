"""A forward pass for training that reads each common prefix of a batch's rows only once.

TRL's loss reads every row from its first token, forwards and backwards. With long prompts and short answers, most of
these tokens belong to the same prompt, which is read again for every answer of its group.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sotopia_training.models.key_values import can_be_stored

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_Row = tuple[int, ...]


class PromptReader:
    """Replaces the forward pass of a model's layers by one with the same hidden states and gradients.

    If the results would differ, it uses the original pass: with dropout, and with layers whose cache is not one key and
    one value per token. Generation is not affected.

    Attributes:
        tokens: the number of tokens of all rows so far, including padding.
        read: the number of tokens that were read for them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Replaces the forward pass of ``model``.

        Args:
            model: a causal language model, either the base of an adapter or without one. The process must hold all its
                weights, and gradient checkpointing must be off, because it needs layers without a cache.
        """
        self.tokens = self.read = 0
        self._config = model.config
        self._layers = model.base_model
        self._forward = self._layers.forward
        self._has_plain_cache = can_be_stored(model)

        @functools.wraps(type(self._layers).forward)  # callers inspect its signature
        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._read(*args, **kwargs)

        self._layers.forward = forward

    def _read(self, *args: Any, **kwargs: Any) -> Any:
        named = {name: value for name, value in kwargs.items() if value is not None}
        if args or named.keys() != {"input_ids", "attention_mask", "use_cache"} or named["use_cache"]:
            return self._forward(*args, **kwargs)
        ids, mask = named["input_ids"], named["attention_mask"]  # (rows, tokens)
        column = self._column(ids, mask)
        self.tokens += ids.numel()
        if column:
            return self._read_beginnings(ids, mask, column)
        self.read += ids.numel()
        return self._forward(**kwargs)

    def _column(self, ids: torch.Tensor, mask: torch.Tensor) -> int:
        """Returns the column at which the common prefixes end; 0 if the original pass must be used."""
        from torch import nn

        drops = getattr(self._config, "attention_dropout", 0) or any(
            isinstance(part, nn.Dropout) and part.p for part in self._layers.modules()
        )
        if not self._has_plain_cache or (self._layers.training and drops):  # each row needs separate dropout
            return 0
        return common_columns(_rows(ids, mask))

    def _read_beginnings(self, ids: torch.Tensor, mask: torch.Tensor, column: int) -> Any:
        import torch
        from transformers import DynamicCache

        # All different beginnings end at the same column, so that the rest of the rows is one rectangular batch.
        rows = _rows(ids[:, :column], mask[:, :column])
        numbers = {row: number for number, row in enumerate(dict.fromkeys(rows))}
        first = torch.tensor([rows.index(row) for row in numbers], device=ids.device)  # (beginnings,)
        beginning = torch.tensor([numbers[row] for row in rows], device=ids.device)  # (rows,)
        cache = DynamicCache(config=self._config)
        head = self._forward(
            input_ids=ids[first, :column], attention_mask=mask[first, :column], past_key_values=cache, use_cache=True
        )
        # (beginnings, …) to (rows, …). Autograd sums the gradients of all rows of a group in their beginning.
        cache.batch_select_indices(beginning)
        output = self._forward(input_ids=ids[:, column:], attention_mask=mask, past_key_values=cache, use_cache=True)
        self.read += len(first) * column + ids[:, column:].numel()
        # (rows, tokens, hidden), as from a single pass
        output.last_hidden_state = torch.cat([head.last_hidden_state[beginning], output.last_hidden_state], 1)
        output.past_key_values = None
        return output


def _rows(ids: torch.Tensor, mask: torch.Tensor) -> list[_Row]:
    """Returns the rows' token ids, with -1 for masked tokens, so that padding compares equal."""
    return [tuple(row) for row in ids.masked_fill(mask == 0, -1).tolist()]


def common_columns(rows: Sequence[_Row]) -> int:
    """Returns the number of leading columns, possibly 0, for which the fewest tokens are read.

    Each different prefix of this width is read once, followed by the rest of every row, which has at least one
    token.

    Args:
        rows: the token ids of the rows, all of the same length.
    """
    width, ordered = len(rows[0]), sorted(rows)
    # In sorted order, equal beginnings are adjacent. So the number of different beginnings of width w is 1 plus the
    # number of neighbours that share fewer than w columns, which is an index into the sorted list ``shared``.
    shared = sorted(min(_common(*pair), width - 1) for pair in pairwise(ordered))
    costs = {0: len(rows) * width}
    for number, columns in enumerate(shared):
        costs.setdefault(columns, (number + 1) * columns + len(rows) * (width - columns))
    return min(costs, key=lambda columns: costs[columns])


def _common(first: _Row, second: _Row) -> int:
    pairs = enumerate(zip(first, second, strict=True))
    return next((column for column, (left, right) in pairs if left != right), len(first))
