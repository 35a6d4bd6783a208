"""Sampling from a model for many prompts at once.

Prompts (collected by :mod:`training.models.batching`) are sorted by length, padded on the left and decoded together
with a key-value cache (:class:`BatchedGenerator`). Finished rows leave the batch.

The tokens of a row depend only on its prompt and its seed, not on the other rows: step ``t`` of a row uses one number
in (0, 1), a hash of (seed, t), and takes the token at which the cumulative distribution passes it. One limit: matrix
products of another shape round differently, so the distribution may differ in its last bits from batch to batch, and a
token changes when the number falls into that gap: hardly ever in float32, sometimes in half precision. On one machine,
with the same batches, results are equal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sotopia_env.errors import InvalidValueError, check_whole
from training.models.constraints import Constraint, grammars_of, masked
from training.models.key_values import Prefix, Prefixes, can_be_stored, fill, join, new_cache

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
_SHORT = 64  # tokens that are read in about the time that one more pass takes
_SHRINK = 0.75  # share of active rows below which finished rows are removed from the batch


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters and batch limits.

    Attributes:
        max_new_tokens: limit on one answer, end token included; at least 1.
        temperature: divides the logits; 0 takes the likeliest token.
        top_p: samples only from the likeliest tokens that together reach this probability, above 0 to 1.
        max_batch: prompts per batch.
        max_tokens: prompt and answer tokens per batch, padding included: the limit on the cache's memory. A single
            prompt may exceed it.
    """

    max_new_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    max_batch: int = 64
    max_tokens: int = 1 << 17

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_batch", "max_tokens"):
            value = getattr(self, name)
            check_whole(name, value, 1)
        if not _is_number(self.temperature) or not 0 <= self.temperature <= 10:
            raise InvalidValueError(field="temperature", expected="a number from 0 to 10", got=self.temperature)
        if not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise InvalidValueError(field="top_p", expected="a number above 0, at most 1", got=self.top_p)

    def batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Returns the prompts' indices in batches of similar length, the longest first."""
        order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
        batches: list[list[int]] = []
        for index in order:
            room = self.max_tokens // (lengths[batches[-1][0]] + self.max_new_tokens) if batches else 0
            if batches and len(batches[-1]) < min(self.max_batch, room):
                batches[-1].append(index)
            else:
                batches.append([index])
        return batches


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The sampled answer to one prompt.

    Attributes:
        ids: token ids, the end token included; never empty.
        logprobs: of each token, under the model at the sampling temperature (at 1 for temperature 0), before top-p.
        finished: whether the last token is an end token; if not, the token limit was reached.
        unconstrained: why it, or its rest, does not keep to the schema that was asked for; empty if it does.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool
    unconstrained: str = ""


def uniforms(seeds: Sequence[int], steps: int) -> Any:
    """Returns numbers in (0, 1) as a float64 array (seeds, steps): the SplitMix64 sequence of each seed.

    Args:
        seeds: any integers; their lowest 64 bits are used.
        steps: numbers per seed.
    """
    import numpy as np

    start = np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)[:, None]
    z = start + np.arange(1, steps + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # wraps around, as it should
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    high = (z ^ (z >> np.uint64(31))) >> np.uint64(32)
    return (high.astype(np.float64) + 0.5) / 2.0**32


class BatchedGenerator:
    """Samples answers to prompts of token ids.

    Attributes:
        model: a causal language model of transformers, with or without an adapter, on its device.
        sampling: parameters and batch limits.
        end_ids: tokens that end an answer.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sampling: Sampling = Sampling(),
        end_ids: Sequence[int] | None = None,
        prefixes: Prefixes | None = None,
    ) -> None:
        """Prepares; computes nothing.

        Args:
            model: not copied; its weights may change between calls, as in training, without ``prefixes``.
            tokenizer: names the padding and end tokens.
            sampling: parameters and batch limits.
            end_ids: tokens that end an answer; by default the tokenizer's end token and those of the model's
                generation settings.
            prefixes: stores the keys and values of prompts and answers for later calls, which read only what is new in
                prompts that begin like them. Generators of the same weights may share it. Without effect on models with
                a sliding window or linear attention.
        """
        self.model = model
        self.sampling = sampling
        self._tokenizer = tokenizer
        self.end_ids = tuple(sorted(_end_ids(model, tokenizer) if end_ids is None else set(end_ids)))
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end_ids[0]
        self._prefixes = prefixes if prefixes is not None and can_be_stored(model) else Prefixes(0)

    def generate(
        self,
        prompt_ids: Sequence[Sequence[int]],
        seeds: Sequence[int],
        schemas: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> list[Sampled]:
        """Returns one answer for each prompt, in their order.

        The model runs in evaluation mode and returns to its previous mode. Equal prompts are computed once.

        Args:
            prompt_ids: token ids up to the beginning of the answer; none is empty.
            seeds: one for each prompt.
            schemas: JSON schemas that answers must keep to, one for each prompt; ``None`` for free text.

        Raises:
            InvalidValueError: not one seed or schema for each prompt, or an empty prompt.
        """
        schemas = [None] * len(prompt_ids) if schemas is None else schemas
        if len(schemas) != len(prompt_ids):
            raise InvalidValueError(
                field="schemas", expected=f"one for each of {len(prompt_ids)} prompts", got=len(schemas)
            )
        if len(prompt_ids) != len(seeds):
            raise InvalidValueError(
                field="seeds", expected=f"one for each of {len(prompt_ids)} prompts", got=len(seeds)
            )
        if not all(prompt_ids):
            raise InvalidValueError(field="prompt_ids", expected="at least one token in each prompt", got=[])
        samples: dict[int, Sampled] = {}
        with _evaluation_mode(self.model):
            for batch in self.sampling.batches([len(ids) for ids in prompt_ids]):
                answers = self._decode_in_memory(
                    [prompt_ids[index] for index in batch],
                    [seeds[index] for index in batch],
                    [schemas[index] for index in batch],
                )
                samples.update(zip(batch, answers, strict=True))
        return [samples[index] for index in range(len(prompt_ids))]

    def _decode_in_memory(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], schemas: Sequence[Mapping[str, Any] | None]
    ) -> list[Sampled]:
        """Decodes one batch; if memory does not suffice, without what is stored, then in halves one after the other."""
        import torch

        try:
            return self._decode(prompts, seeds, [self._constraint(schema) for schema in schemas])
        except torch.OutOfMemoryError:
            if len(prompts) == 1 and not self._prefixes:
                raise
        if self._prefixes:
            logger.warning("no memory to answer %d prompts at once; dropping the stored ones", len(prompts))
            self._prefixes.clear()
            torch.cuda.empty_cache()
            return self._decode_in_memory(prompts, seeds, schemas)
        logger.warning("no memory to answer %d prompts at once; answering half of them at a time", len(prompts))
        torch.cuda.empty_cache()
        half = len(prompts) // 2
        return [
            sampled
            for part in (slice(half), slice(half, None))
            for sampled in self._decode_in_memory(prompts[part], seeds[part], schemas[part])
        ]

    def _constraint(self, schema: Mapping[str, Any] | None) -> Constraint | None:
        if schema is None:
            return None
        vocabulary, own_end = self.model.get_output_embeddings().weight.shape[0], self._tokenizer.eos_token_id
        end = own_end if own_end in self.end_ids else self.end_ids[0]
        return grammars_of(self._tokenizer, vocabulary, end).constraint(schema)

    def _decode(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], constraints: Sequence[Constraint | None]
    ) -> list[Sampled]:
        """Decodes one batch; ``constraints`` are those of its rows."""
        import torch

        device, limit = self.model.device, self.sampling.max_new_tokens
        logits, cache, mask = self._read(prompts)
        noise = torch.from_numpy(uniforms(seeds, limit)).to(device)
        ends = torch.tensor(self.end_ids, device=device)
        tokens = torch.full((len(prompts), limit), self._pad, device=device)  # (rows, limit)
        logprobs = torch.zeros((len(prompts), limit), dtype=torch.float32, device=device)
        lengths = torch.full((len(prompts),), limit, device=device)
        rows = torch.arange(len(prompts), device=device)  # index of the prompt of each row in the batch
        active = torch.ones(len(prompts), dtype=torch.bool, device=device)
        position = mask.sum(1, keepdim=True)
        for step in range(limit):
            logits = masked(logits, [constraints[row] for row in rows.tolist()])
            token, logprob = _sample(logits, noise[rows, step], self.sampling)
            for row, sampled in zip(rows.tolist(), token.tolist(), strict=True):
                constraint = constraints[row]
                if constraint is not None and sampled not in self.end_ids:
                    constraint.take(sampled)
            tokens[rows[active], step], logprobs[rows[active], step] = token[active], logprob[active]
            finished = active & torch.isin(token, ends)
            lengths[rows[finished]] = step + 1
            active &= ~finished
            remaining = int(active.sum())
            if not remaining or step + 1 == limit:
                break
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            if remaining <= _SHRINK * len(rows):
                indices = active.nonzero().squeeze(1)
                self._prefixes.take(cache, _read_rows(prompts, tokens, lengths, rows, ~active), indices)
                rows, mask, position, token, active = (t[indices] for t in (rows, mask, position, token, active))
            logits = self._forward(token[:, None], mask, position, cache)
            position = position + 1
        self._prefixes.take(cache, _read_rows(prompts, tokens, lengths, rows, torch.ones_like(active)), rows[:0])
        failures = ["" if constraint is None else constraint.failure for constraint in constraints]
        return _answers(tokens, logprobs, lengths, set(self.end_ids), failures)

    def _read(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Logits after each prompt, the cache and the attention mask; equal prompts are computed once."""
        import torch

        unique = list(dict.fromkeys(map(tuple, prompts)))
        capacity = max(map(len, unique)) + self.sampling.max_new_tokens
        prefixes = self._prefixes.withdraw(unique, reserved=len(prompts) * capacity)
        unread = [len(ids) - prefix.tokens for ids, prefix in zip(unique, prefixes, strict=True)]
        groups = _alike(unread) if self._prefixes.stores else [list(range(len(unique)))]
        parts = [
            self._read_group([unique[row] for row in group], [prefixes[row] for row in group], capacity)
            for group in groups
        ]
        logits, cache, mask = parts[0] if len(parts) == 1 else self._joined(parts, capacity)
        row_of = {unique[number]: row for row, number in enumerate(number for group in groups for number in group)}
        order = [row_of[tuple(ids)] for ids in prompts]
        if order != list(range(len(unique))):
            rows = torch.tensor(order, device=self.model.device)
            cache.batch_select_indices(rows)
            logits, mask = logits[rows], mask[rows]
        return logits, cache, mask

    def _read_group(
        self, prompts: Sequence[Sequence[int]], prefixes: Sequence[Prefix], capacity: int
    ) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Reads different prompts from the first column on that is not stored of all, padded on the left."""
        import torch

        longest, device = max(map(len, prompts)), self.model.device
        padded = [[self._pad] * (longest - len(ids)) + list(ids) for ids in prompts]
        holes = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
        ids, mask = torch.tensor(padded, device=device), torch.tensor(holes, device=device)  # (rows, longest)
        unread = max(len(ids) - prefix.tokens for ids, prefix in zip(prompts, prefixes, strict=True))
        cache = new_cache(self.model, capacity)
        fill(cache, prefixes, [max(0, len(ids) - unread) for ids in prompts])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        past = cache.get_seq_length()
        return self._forward(ids[:, past:], mask, positions[:, past:], cache), cache, mask

    def _joined(
        self, parts: Sequence[tuple[torch.Tensor, Any, torch.Tensor]], capacity: int
    ) -> tuple[torch.Tensor, Any, torch.Tensor]:
        import torch
        from torch.nn.functional import pad

        logits, caches, masks = zip(*parts, strict=True)
        cache, width = new_cache(self.model, capacity), max(mask.shape[1] for mask in masks)
        join(cache, caches)
        return torch.cat(logits), cache, torch.cat([pad(mask, (width - mask.shape[1], 0)) for mask in masks])

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits of the last position, (rows, vocabulary)."""
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        last: torch.Tensor = output.logits[:, -1]
        return last


def _alike(unread: Sequence[int]) -> list[list[int]]:
    """Rows in groups that are read together; those with less to read are padded, at most to about twice of it."""
    groups: list[list[int]] = []
    for row in sorted(range(len(unread)), key=lambda row: -unread[row]):
        if groups and 2 * unread[row] + _SHORT >= unread[groups[-1][0]]:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = configured if isinstance(configured, list | tuple) else [configured]
    return {end for end in (tokenizer.eos_token_id, *ids) if end is not None}


@contextmanager
def _evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """Turns off dropout and gradients, and restores the model's mode afterwards.

    A model in training gets no inference mode: tensors that it computes there and keeps, such as the frequencies of
    some rotary embeddings, could not be used in training.
    """
    import torch

    trains = bool(model.training)
    model.train(False)
    try:
        with torch.no_grad() if trains else torch.inference_mode():
            yield
    finally:
        model.train(trains)


def _sample(logits: torch.Tensor, uniform: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """One token for each row and its log-probability: ``logits`` (rows, vocabulary), ``uniform`` (rows,)."""
    import torch

    scaled = logits.float() / (sampling.temperature or 1.0)
    logprobs = scaled.log_softmax(-1)
    if sampling.temperature == 0:
        token = logprobs.argmax(-1)
    else:
        probabilities = logprobs.exp()
        if sampling.top_p < 1:
            probabilities = _likeliest(probabilities, sampling.top_p)
        cumulative = probabilities.cumsum(-1, dtype=torch.float64)
        threshold = uniform[:, None] * cumulative[:, -1:]
        token = torch.searchsorted(cumulative, threshold, right=True).squeeze(1)
    return token, logprobs.gather(1, token[:, None]).squeeze(1)


def _likeliest(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The probabilities with zeros outside of the smallest set of likeliest tokens that reaches ``top_p``."""
    descending, indices = probabilities.sort(dim=-1, descending=True, stable=True)
    preceding = descending.cumsum(-1) - descending
    return probabilities.scatter(1, indices, descending.where(preceding < top_p, descending.new_zeros(())))


def _read_rows(
    prompts: Sequence[Sequence[int]],
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    rows: torch.Tensor,
    ends: torch.Tensor,
) -> list[tuple[int, int, list[int]]]:
    """Rows of the cache that end, their first columns and the token ids that were read: not the last one sampled."""
    indices, longest = ends.nonzero().squeeze(1), max(map(len, prompts))
    numbers = rows[indices]
    return [
        (row, longest - len(prompts[number]), [*prompts[number], *answer[: length - 1]])
        for row, number, answer, length in zip(
            indices.tolist(), numbers.tolist(), tokens[numbers].tolist(), lengths[numbers].tolist(), strict=True
        )
    ]


def _answers(
    tokens: torch.Tensor, logprobs: torch.Tensor, lengths: torch.Tensor, ends: set[int], failures: Sequence[str]
) -> list[Sampled]:
    rows = zip(tokens.tolist(), logprobs.tolist(), lengths.tolist(), failures, strict=True)
    return [
        Sampled(tuple(ids[:length]), tuple(values[:length]), ids[length - 1] in ends, failure)
        for ids, values, length, failure in rows
    ]
