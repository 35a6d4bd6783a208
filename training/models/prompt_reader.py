"""Reading each common beginning of a batch's rows once, in training: the answers of a group follow the same prompt.

TRL's loss reads every row from its first token on, forwards and backwards. With long prompts and short answers, most of
that is the same prompt, read again for every answer of its group.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from training.models.key_values import can_be_stored

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_Row = tuple[int, ...]


class PromptReader:
    """Takes the place of the forward pass of a model's layers; its hidden states and gradients are the same.

    It reads as before wherever that would not be so: with dropout, and with layers whose cache is not one key and one
    value for each token. Generation passes through it unchanged.

    Attributes:
        tokens: of the rows so far, padding included.
        read: tokens that were read for them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Changes the model.

        Args:
            model: a causal language model, the base of an adapter or without one; in a process that holds all weights,
                and without gradient checkpointing, which needs layers without a cache.
        """
        self.tokens = self.read = 0
        self._config = model.config
        self._layers = model.base_model
        self._forward = self._layers.forward
        self._has_plain_cache = can_be_stored(model)

        @functools.wraps(type(self._layers).forward)  # its signature tells callers which arguments there are
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
        """Where the common beginnings end; 0 if the rows are to be read one by one."""
        from torch import nn

        drops = getattr(self._config, "attention_dropout", 0) or any(
            isinstance(part, nn.Dropout) and part.p for part in self._layers.modules()
        )
        if not self._has_plain_cache or (self._layers.training and drops):  # a row's own dropout, not its group's
            return 0
        return common_columns(_rows(ids, mask))

    def _read_beginnings(self, ids: torch.Tensor, mask: torch.Tensor, column: int) -> Any:
        import torch
        from transformers import DynamicCache

        rows = _rows(ids[:, :column], mask[:, :column])
        numbers = {row: number for number, row in enumerate(dict.fromkeys(rows))}
        first = torch.tensor([rows.index(row) for row in numbers], device=ids.device)  # (different beginnings,)
        beginning = torch.tensor([numbers[row] for row in rows], device=ids.device)  # (rows,)
        cache = DynamicCache(config=self._config)
        head = self._forward(
            input_ids=ids[first, :column], attention_mask=mask[first, :column], past_key_values=cache, use_cache=True
        )
        cache.batch_select_indices(beginning)  # gradients of all rows of a group add up in their beginning
        output = self._forward(input_ids=ids[:, column:], attention_mask=mask, past_key_values=cache, use_cache=True)
        self.read += len(first) * column + ids[:, column:].numel()
        # (rows, tokens, hidden), as of one pass
        output.last_hidden_state = torch.cat([head.last_hidden_state[beginning], output.last_hidden_state], 1)
        output.past_key_values = None
        return output


def _rows(ids: torch.Tensor, mask: torch.Tensor) -> list[_Row]:
    """The rows' token ids; -1 where a token is masked, whatever it is."""
    return [tuple(row) for row in ids.masked_fill(mask == 0, -1).tolist()]


def common_columns(rows: Sequence[_Row]) -> int:
    """Returns the number of columns, maybe 0, with which the fewest tokens are read.

    The different beginnings of so many columns are read once each, and of every row what follows; at least one token.

    Args:
        rows: of equal length.
    """
    width, ordered = len(rows[0]), sorted(rows)
    # In this order, neighbours that share fewer columns have different beginnings.
    shared = sorted(min(_common(*pair), width - 1) for pair in pairwise(ordered))
    costs = {0: len(rows) * width}
    for number, columns in enumerate(shared):
        costs.setdefault(columns, (number + 1) * columns + len(rows) * (width - columns))
    return min(costs, key=lambda columns: costs[columns])


def _common(one: _Row, other: _Row) -> int:
    return next((column for column, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))
