"""Keys and values of attention: the cache of one batch, and sequences stored for prompts that begin with them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    _KeysAndValues = tuple[torch.Tensor, torch.Tensor]  # of one layer and row: (heads, tokens, size)

_BYTES = array("q").itemsize


def new_cache(model: PreTrainedModel, capacity: int) -> Any:
    """Returns a cache of the model's kind; layers that would be copied for every token get room instead.

    Args:
        model: decides the kind of each layer.
        capacity: tokens of a row, of the prompt and the answer.
    """
    from transformers import DynamicCache

    kv_cache = DynamicCache(config=model.config)
    if _is_plain(kv_cache):
        kv_cache.layers = [_growing_layer()(capacity) for _ in kv_cache.layers]
    return kv_cache


def can_be_stored(model: PreTrainedModel) -> bool:
    """Whether every layer holds one key and one value for each token: no sliding window, no linear attention."""
    from transformers import DynamicCache

    return _is_plain(DynamicCache(config=model.config))


def _is_plain(kv_cache: Any) -> bool:
    from transformers.cache_utils import DynamicLayer

    return bool(kv_cache.layers) and all(type(layer) is DynamicLayer for layer in kv_cache.layers)


@cache
def _growing_layer() -> Any:
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):
        """Writes new keys and values after the old ones; concatenation took half of the decoding time."""

        def __init__(self, capacity: int) -> None:
            super().__init__()
            self._capacity = capacity
            self._buffers: dict[str, Any] = {}

        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            self.keys = self._extended("keys", key_states)
            self.values = self._extended("values", value_states)
            return self.keys, self.values

        def batch_select_indices(self, indices: Any) -> None:
            super().batch_select_indices(indices)
            self._buffers.clear()  # they hold the rows before the selection

        def _extended(self, name: str, new: Any) -> Any:
            old, buffer = getattr(self, name), self._buffers.get(name)
            length = old.shape[-2] if old.numel() else 0
            size = length + new.shape[-2]
            if buffer is None or buffer.shape[-2] < size:
                room = max(size, self._capacity)
                buffer = self._buffers[name] = new.new_empty(*new.shape[:-2], room, new.shape[-1])
                if length:
                    buffer[..., :length, :] = old
            buffer[..., length:size, :] = new
            return buffer[..., :size, :]

    return GrowingLayer


class Prefixes:
    """Keys and values of token sequences, oldest first, each for the next prompts that begin with it.

    Valid as long as the model's weights do not change, and only for models that :func:`can_be_stored`.
    """

    def __init__(self, max_tokens: int) -> None:
        """Begins with none.

        Args:
            max_tokens: limit on all stored tokens, beyond which the oldest sequences are dropped; 0 stores nothing.
        """
        self._max_tokens = max_tokens
        self._sequences: dict[bytes, list[_KeysAndValues]] = {}

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self._sequences)

    def __contains__(self, name: object) -> bool:
        """Whether a sequence is stored, by its name of :meth:`retain`."""
        return name in self._sequences

    def retain(self, prompts: Sequence[Sequence[int]]) -> list[bytes]:
        """Drops the sequences that no prompt begins with.

        Returns:
            The name of each prompt's sequence, the longest one that it begins with; empty where there is none.
        """
        names = [self._longest(prompt) for prompt in prompts]
        used = set(names)
        self._sequences = {name: layers for name, layers in self._sequences.items() if name in used}
        return names

    def clear(self) -> None:
        """Drops all sequences."""
        self._sequences.clear()

    def move_to(self, kv_cache: Any, prompts: Sequence[Sequence[int]], reserved: int) -> int:
        """Moves what is stored of the prompts into an empty cache, one row for each, padded on the left.

        All rows must be read from the same column on, so tokens beyond that column are read again.

        Args:
            kv_cache: of :func:`new_cache`.
            prompts: different ones.
            reserved: tokens that the batch will take of the limit; the oldest other sequences make room.

        Returns:
            The number of columns; prompts that are padded on the left to equal lengths are to be read from there on.
        """
        names = [self._longest(prompt) for prompt in prompts]
        unread = max(len(prompt) - len(name) // _BYTES for prompt, name in zip(prompts, names, strict=True))
        lengths = [max(0, len(prompt) - unread) for prompt in prompts]  # 0 where nothing is stored
        sequences = {name: self._sequences.pop(name) for name in set(names) if name}
        self._limit(self._max_tokens - reserved)
        columns = max(lengths)
        for layer in kv_cache.layers if columns else ():
            parts = {name: layers.pop(0) for name, layers in sequences.items()}  # frees those of the layer before
            pieces = [parts[name] if length else None for name, length in zip(names, lengths, strict=True)]
            layer.update(*(_left_padded(pieces, lengths, part) for part in (0, 1)))
        return columns

    def take(self, kv_cache: Any, rows: Sequence[tuple[int, int, Sequence[int]]], staying: torch.Tensor) -> None:
        """Stores rows of a cache, and removes all but ``staying``; layer by layer, so that memory suffices.

        Args:
            kv_cache: of :func:`new_cache`.
            rows: index in the cache, first column and token ids of each row to store.
            staying: indices of the rows that stay in the cache.
        """
        rows = rows if self._max_tokens else ()
        sequences: list[list[_KeysAndValues]] = [[] for _ in rows]
        for layer in kv_cache.layers if len(rows) or len(staying) else ():  # else all of it goes
            for layers, (row, first, ids) in zip(sequences, rows, strict=True):
                columns = slice(first, first + len(ids))
                layers.append((layer.keys[row, :, columns].clone(), layer.values[row, :, columns].clone()))
            layer.batch_select_indices(staying)
        self._sequences |= {_name(ids): layers for (_, _, ids), layers in zip(rows, sequences, strict=True)}
        self._limit(self._max_tokens)

    def _longest(self, prompt: Sequence[int]) -> bytes:
        """The longest sequence that is shorter than the prompt, whose last token must be read to go on."""
        name = _name(prompt)
        return max((s for s in self._sequences if len(s) < len(name) and name.startswith(s)), key=len, default=b"")

    def _limit(self, tokens: int) -> None:
        excess = sum(map(len, self._sequences)) // _BYTES - tokens
        while excess > 0 and self._sequences:
            oldest = next(iter(self._sequences))
            del self._sequences[oldest]
            excess -= len(oldest) // _BYTES


def _name(ids: Sequence[int]) -> bytes:
    """Token ids as bytes, which are compared fast."""
    return array("q", ids).tobytes()


def _left_padded(pieces: Sequence[_KeysAndValues | None], lengths: Sequence[int], part: int) -> torch.Tensor:
    """The first tokens of each row's keys or values, (rows, heads, longest, size); masked columns are zeros."""
    tensors = [None if piece is None else piece[part] for piece in pieces]  # (heads, tokens, size)
    heads, _, size = next(tensor.shape for tensor in tensors if tensor is not None)
    batch = next(tensor for tensor in tensors if tensor is not None).new_zeros(len(pieces), heads, max(lengths), size)
    for row, tensor, length in zip(batch, tensors, lengths, strict=True):
        if tensor is not None:
            row[:, -length:] = tensor[:, :length]
    return batch
