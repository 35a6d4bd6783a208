"""Keys and values of attention: the cache of one batch, and stored sequences for prompts that begin with them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    _KeysAndValues = tuple[torch.Tensor, torch.Tensor]  # of one layer and row: (heads, tokens, size)

_BYTES = array("q").itemsize


def new_cache(model: PreTrainedModel, capacity: int) -> Any:
    """Returns a cache of the model's kind; plain layers allocate their memory at once instead of growing by copies.

    Args:
        model: the model, which determines the kind of each layer.
        capacity: the number of tokens of a row, prompt and answer together.
    """
    from transformers import DynamicCache

    kv_cache = DynamicCache(config=model.config)
    if _is_plain(kv_cache):
        kv_cache.layers = [_growing_layer()(capacity) for _ in kv_cache.layers]
    return kv_cache


def can_be_stored(model: PreTrainedModel) -> bool:
    """Whether every layer has one key and one value per token: no sliding window, no linear attention."""
    from transformers import DynamicCache

    return _is_plain(DynamicCache(config=model.config))


def token_bytes(model: PreTrainedModel) -> int:
    """Returns the bytes of the keys and values of one token, in all layers."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    # Grouped-query attention has fewer heads of keys and values than of queries. 2: keys and values.
    numbers = config.num_hidden_layers * 2 * (getattr(config, "num_key_value_heads", None) or heads) * size
    return int(numbers * model.dtype.itemsize)


def _is_plain(kv_cache: Any) -> bool:
    from transformers.cache_utils import DynamicLayer

    return bool(kv_cache.layers) and all(type(layer) is DynamicLayer for layer in kv_cache.layers)


@cache
def _growing_layer() -> Any:
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):
        """Writes new keys and values behind the old ones in a buffer; concatenation took half of the decoding time."""

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

        def reset(self) -> None:
            super().reset()
            self._buffers.clear()

        def _extended(self, name: str, new: Any) -> Any:
            old, buffer = getattr(self, name), self._buffers.get(name)
            length = old.shape[-2] if old.numel() else 0  # (rows, heads, tokens, size)
            size = length + new.shape[-2]
            if buffer is None or buffer.shape[-2] < size:
                room = max(size, self._capacity)
                buffer = self._buffers[name] = new.new_empty(*new.shape[:-2], room, new.shape[-1])
                if length:
                    buffer[..., :length, :] = old
            buffer[..., length:size, :] = new
            return buffer[..., :size, :]  # a view, not a copy

    return GrowingLayer


@dataclass(slots=True)
class Prefix:
    """The stored prefix of one prompt.

    Attributes:
        tokens: the number of its first tokens that are stored, less than its length; 0 if none is stored.
        layers: the keys and values of a sequence that begins with them, by layer.
    """

    tokens: int
    layers: list[_KeysAndValues]


class Prefixes:
    """Keys and values of token sequences, the least recently used first, for later prompts that start with them.

    They are valid as long as the model's weights do not change, and only for models that :func:`can_be_stored`.
    """

    def __init__(self, max_tokens: int) -> None:
        """Creates an empty store.

        Args:
            max_tokens: the maximum number of stored tokens and tokens of the batch in progress together. Beyond it, the
                least recently used sequences are dropped; 0 stores nothing.
        """
        self._max_tokens = max_tokens
        self._sequences: dict[bytes, list[_KeysAndValues]] = {}

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self._sequences)

    @property
    def stores(self) -> bool:
        """Whether sequences are stored at all."""
        return self._max_tokens > 0

    @property
    def tokens(self) -> int:
        """The number of stored tokens."""
        return sum(map(len, self._sequences)) // _BYTES

    def clear(self) -> None:
        """Drops all sequences."""
        self._sequences.clear()

    def withdraw(self, prompts: Sequence[Sequence[int]], reserved: int) -> list[Prefix]:
        """Returns the longest stored prefix of each prompt.

        If a prompt repeats most of a sequence, the sequence is removed from the store, because the prompt will replace
        it. A sequence that shares only a short prefix stays, for example the sequence of another episode with the same
        instructions.

        Args:
            prompts: the token ids of the prompts of a batch.
            reserved: the number of tokens of the limit that the batch will use; the oldest other sequences are dropped
                to make room.
        """
        matches = [self._longest(prompt) for prompt in prompts]
        prefixes = [Prefix(tokens, [*self._sequences.get(name, ())]) for name, tokens in matches]
        for name, tokens in sorted(set(matches)):
            layers = self._sequences.pop(name, None)
            # Fewer than half of its tokens are repeated: it is probably another episode's, and is kept.
            if layers is not None and 2 * tokens * _BYTES < len(name):
                self._sequences[name] = layers  # as the most recently used
        self._limit(self._max_tokens - reserved)
        return prefixes

    def longest(self, prompt: Sequence[int]) -> Prefix:
        """Returns the longest stored prefix of a prompt, which stays stored."""
        name, tokens = self._longest(prompt)
        return Prefix(tokens, [*self._sequences.get(name, ())])

    def take(self, kv_cache: Any, rows: Sequence[tuple[int, int, Sequence[int]]], staying: torch.Tensor) -> None:
        """Stores rows of a cache, and removes all rows except ``staying``.

        Args:
            kv_cache: a cache of :func:`new_cache`.
            rows: the index in the cache, the first column and the token ids of each row to store.
            staying: the indices of the rows that stay in the cache.
        """
        # Layer by layer: a copy of all layers at once would nearly double the peak memory.
        rows = rows if self.stores else ()
        sequences: list[list[_KeysAndValues]] = [[] for _ in rows]
        for layer in kv_cache.layers if len(rows) or len(staying) else ():  # else the cache is not used again
            for layers, (row, first, ids) in zip(sequences, rows, strict=True):
                columns = slice(first, first + len(ids))
                layers.append((layer.keys[row, :, columns].clone(), layer.values[row, :, columns].clone()))
            layer.batch_select_indices(staying)
        for (_, _, ids), layers in zip(rows, sequences, strict=True):
            self._sequences.pop(_name(ids), None)
            self._sequences[_name(ids)] = layers
        self._limit(self._max_tokens)

    def _longest(self, prompt: Sequence[int]) -> tuple[bytes, int]:
        """Returns the sequence that shares the most first tokens with the prompt, and their number."""
        # Without the last token: it must be read again, because its logits are not stored.
        name = _name(prompt[:-1])
        lengths = {stored: _common(name, stored) for stored in self._sequences}
        longest = max(lengths, key=lambda stored: lengths[stored], default=b"")
        tokens = lengths.get(longest, 0)
        return (longest, tokens) if tokens else (b"", 0)

    def _limit(self, tokens: int) -> None:
        excess = self.tokens - tokens
        while excess > 0 and self._sequences:
            oldest = next(iter(self._sequences))
            del self._sequences[oldest]
            excess -= len(oldest) // _BYTES


def fill(kv_cache: Any, prefixes: Sequence[Prefix], lengths: Sequence[int]) -> None:
    """Moves prefixes into an empty cache, one row each, padded on the left; the prefixes lose their layers.

    Args:
        kv_cache: an empty cache of :func:`new_cache`.
        prefixes: the prefix of each row.
        lengths: the number of first tokens of each prefix that are used; may be 0.
    """
    for layer in kv_cache.layers if any(lengths) else ():
        # ``pop`` frees each layer after it was copied, so that the peak is one layer above the total.
        pieces = [prefix.layers.pop(0) if prefix.layers else None for prefix in prefixes]
        layer.update(*(_left_padded(pieces, lengths, part) for part in (0, 1)))


def join(kv_cache: Any, parts: Sequence[Any]) -> None:
    """Moves the rows of several caches into an empty one, padded on the left to one width.

    Args:
        kv_cache: an empty cache of :func:`new_cache`.
        parts: caches of the same model, which are emptied.
    """
    import torch
    from torch.nn.functional import pad

    width = max(part.get_seq_length() for part in parts)
    for layer, *layers in zip(kv_cache.layers, *(part.layers for part in parts), strict=True):
        rows = [(part_layer.keys, part_layer.values) for part_layer in layers]
        keys, values = (
            # ``pad`` counts from the last dimension: none of the size, on the left of the tokens.
            torch.cat([pad(tensor, (0, 0, width - tensor.shape[-2], 0)) for tensor in tensors])
            for tensors in zip(*rows, strict=True)
        )
        layer.update(keys, values)  # (all rows, heads, width, size)
        for part_layer in layers:
            part_layer.reset()


def common_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """Returns the number of first tokens that two sequences share."""
    return _common(_name(first), _name(second))


def _name(ids: Sequence[int]) -> bytes:
    """Returns token ids as bytes, which Python compares much faster than lists of integers."""
    return array("q", ids).tobytes()


def _common(first: bytes, second: bytes) -> int:
    """Returns the number of first tokens that two sequences share."""
    # Bisection: a few comparisons of large slices are faster than one comparison per token in Python.
    low, high = 0, min(len(first), len(second)) // _BYTES
    if second.startswith(first[: high * _BYTES]):
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if first[low * _BYTES : middle * _BYTES] == second[low * _BYTES : middle * _BYTES]:
            low = middle
        else:
            high = middle - 1
    return low


def _left_padded(pieces: Sequence[_KeysAndValues | None], lengths: Sequence[int], part: int) -> torch.Tensor:
    """Returns the first tokens of each row's keys or values, (rows, heads, longest, size); padding is zero."""
    tensors = [
        None if piece is None or not length else piece[part] for piece, length in zip(pieces, lengths, strict=True)
    ]
    heads, _, size = next(tensor.shape for tensor in tensors if tensor is not None)
    batch = next(tensor for tensor in tensors if tensor is not None).new_zeros(len(pieces), heads, max(lengths), size)
    for row, tensor, length in zip(batch, tensors, lengths, strict=True):
        if tensor is not None:  # (heads, tokens, size)
            row[:, -length:] = tensor[:, :length]
    return batch
