"""Sampling from a model for many prompts at once.

Prompts (collected by :mod:`sotopia_training.models.batching`) are sorted by length, padded on the left and decoded
together with a key-value cache (:class:`BatchedGenerator`). Finished rows leave the batch.

The tokens of a row depend only on its prompt and its seed, not on the other rows: step ``t`` of a row uses one number
in (0, 1), a hash of (seed, t), and takes the token at which the cumulative distribution exceeds it. There is one
exception: matrix products of other shapes round differently, so the last bits of the distribution may depend on the
batch, and the token changes if the number falls between the two values. This is very rare in float32 and occasional in
half precision. On one machine, the same batches give the same results.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError, check_whole
from sotopia_training.models.answer_tree import AnswerSet, probabilities
from sotopia_training.models.constraints import Constraint, grammars_of, masked
from sotopia_training.models.key_values import Prefix, Prefixes, can_be_stored, fill, join, new_cache

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
# A forward pass of this many tokens takes about as long as the overhead of one more pass.
_SHORT = 64
# Share of active rows below which finished rows are removed: a removal copies the cache, so it must save enough.
_SHRINK = 0.75


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters and batch limits.

    Attributes:
        max_new_tokens: the maximum number of tokens of an answer, including the end token; at least 1.
        temperature: divides the logits; 0 takes the likeliest token.
        top_p: the share, above 0 and at most 1: only the likeliest tokens that together reach this probability are
            sampled.
        max_batch: the maximum number of prompts per batch.
        max_tokens: the maximum number of prompt and answer tokens per batch, including padding, which limits the
            memory of the cache. A single prompt may exceed it.
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
            # Rows are padded to the longest, which is the first of its batch.
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
        ids: the token ids, including the end token; never empty.
        logprobs: the log-probability of each token under the model at the sampling temperature (at 1 for temperature
            0), before top-p.
        finished: whether the last token is an end token; if not, the token limit was reached.
        unconstrained: the reason why the answer or its rest is not constrained to the requested schema; empty if it is.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool
    unconstrained: str = ""


def uniforms(seeds: Sequence[int], steps: int) -> Any:
    """Returns numbers in (0, 1) as a float64 array (seeds, steps): the SplitMix64 sequence of each seed.

    Args:
        seeds: integers, of which the lowest 64 bits are used.
        steps: the number of values per seed.
    """
    import numpy as np

    # SplitMix64 (Steele, Lea and Flood, 2014): any step of any seed in one expression. Overflow is part of it.
    start = np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)[:, None]  # (seeds, 1)
    z = start + np.arange(1, steps + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # (seeds, steps)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    high = (z ^ (z >> np.uint64(31))) >> np.uint64(32)
    # + 0.5: never exactly 0 or 1.
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
        """Creates the generator, without computing anything.

        Args:
            model: the model, which is not copied. Without ``prefixes`` its weights may change between calls, as in
                training.
            tokenizer: the tokenizer, which names the padding and end tokens.
            sampling: the parameters and batch limits.
            end_ids: the tokens that end an answer; by default the tokenizer's end token and those of the model's
                generation settings.
            prefixes: stores the keys and values of prompts and answers for later calls, which read only the new tokens
                of prompts that begin with a stored sequence. Generators of the same weights may share it. It has no
                effect on models with a sliding window or linear attention.
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
            prompt_ids: the token ids of each prompt, up to the beginning of the answer; at least one.
            seeds: the seed of each prompt.
            schemas: the JSON schema that constrains the answer to each prompt; ``None`` for free text.

        Raises:
            InvalidValueError: the number of seeds or schemas differs from the number of prompts, or a prompt is empty.
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

    def shares(self, choices: Sequence[AnswerSet]) -> list[tuple[float, ...]]:
        """Returns the probabilities of the answers of each choice if one of them must follow its prompt.

        Nothing is stored for later calls: a question is no part of a conversation.
        """
        with _evaluation_mode(self.model):
            return probabilities(self.model, choices, self._prefixes, self.sampling.temperature)

    def _decode_in_memory(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], schemas: Sequence[Mapping[str, Any] | None]
    ) -> list[Sampled]:
        """Decodes one batch. If memory runs out, it drops the stored prefixes, then decodes the two halves in turn."""
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
        # Not len(tokenizer): the output layer may be padded to a multiple of 64.
        vocabulary, eos = self.model.get_output_embeddings().weight.shape[0], self._tokenizer.eos_token_id
        end = eos if eos in self.end_ids else self.end_ids[0]
        return grammars_of(self._tokenizer, vocabulary, end).constraint(schema)

    def _decode(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], constraints: Sequence[Constraint | None]
    ) -> list[Sampled]:
        """Decodes one batch, with one constraint per prompt."""
        import torch

        device, limit = self.model.device, self.sampling.max_new_tokens
        logits, cache, mask = self._read(prompts)  # (rows, vocabulary), cache, (rows, columns)
        noise = torch.from_numpy(uniforms(seeds, limit)).to(device)  # (prompts, limit)
        ends = torch.tensor(self.end_ids, device=device)
        # Results are indexed by prompt; logits, cache, mask, position, token and active by the rows that are left.
        tokens = torch.full((len(prompts), limit), self._pad, device=device)  # (prompts, limit)
        logprobs = torch.zeros((len(prompts), limit), dtype=torch.float32, device=device)
        lengths = torch.full((len(prompts),), limit, device=device)  # (prompts,)
        rows = torch.arange(len(prompts), device=device)  # (rows,): the prompt of each row
        active = torch.ones(len(prompts), dtype=torch.bool, device=device)
        position = mask.sum(1, keepdim=True)  # (rows, 1): that of the first answer token
        for step in range(limit):
            logits = masked(logits, [constraints[row] for row in rows.tolist()])
            token, logprob = _sample(logits, noise[rows, step], self.sampling)  # (rows,), (rows,)
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
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)  # (rows, columns + 1)
            if remaining <= _SHRINK * len(rows):
                indices = active.nonzero().squeeze(1)
                self._prefixes.take(cache, _read_rows(prompts, tokens, lengths, rows, ~active), indices)
                rows, mask, position, token, active = (t[indices] for t in (rows, mask, position, token, active))
            # Finished rows that are still in the batch are computed, too, but not recorded.
            logits = self._forward(token[:, None], mask, position, cache)
            position = position + 1
        self._prefixes.take(cache, _read_rows(prompts, tokens, lengths, rows, torch.ones_like(active)), rows[:0])
        failures = ["" if constraint is None else constraint.failure for constraint in constraints]
        return _answers(tokens, logprobs, lengths, set(self.end_ids), failures)

    def _read(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Returns the logits after each prompt, the cache and the attention mask; equal prompts are computed once."""
        import torch

        unique = list(dict.fromkeys(map(tuple, prompts)))
        capacity = max(map(len, unique)) + self.sampling.max_new_tokens
        prefixes = self._prefixes.withdraw(unique, reserved=len(prompts) * capacity)
        unread = [len(ids) - prefix.tokens for ids, prefix in zip(unique, prefixes, strict=True)]
        # With stored beginnings, the numbers of new tokens differ widely, and one pass would pad them to the longest.
        groups = _alike(unread) if self._prefixes.stores else [list(range(len(unique)))]
        parts = [
            self._read_group([unique[row] for row in group], [prefixes[row] for row in group], capacity)
            for group in groups
        ]
        logits, cache, mask = parts[0] if len(parts) == 1 else self._joined(parts, capacity)
        # Rows are now in the order of the groups; this restores the prompts' order and duplicates equal prompts.
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
        """Reads different prompts, padded on the left, from the first column that is not stored for all of them."""
        import torch

        longest, device = max(map(len, prompts)), self.model.device
        padded = [[self._pad] * (longest - len(ids)) + list(ids) for ids in prompts]
        holes = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
        ids, mask = torch.tensor(padded, device=device), torch.tensor(holes, device=device)  # (rows, longest)
        # All rows of one pass begin at the same column, so the row with the most new tokens decides it.
        unread = max(len(ids) - prefix.tokens for ids, prefix in zip(prompts, prefixes, strict=True))
        cache = new_cache(self.model, capacity)
        fill(cache, prefixes, [max(0, len(ids) - unread) for ids in prompts])
        positions = (mask.cumsum(1) - 1).clamp(min=0)  # (rows, longest); padding does not count
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
        """Returns the logits of the last position, (rows, vocabulary)."""
        import torch

        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            # An index, not the number 1: a slice of the states is not contiguous, and their product with the head then
            # copies the head once for every row.
            logits_to_keep=torch.tensor([ids.shape[1] - 1], device=ids.device),
        )
        last: torch.Tensor = output.logits[:, -1]
        return last


def _alike(unread: Sequence[int]) -> list[list[int]]:
    """Returns groups of rows to read together; shorter rows are padded, at most to about twice their length."""
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
    """Returns one token for each row and its log-probability.

    Args:
        logits: the logits, (rows, vocabulary).
        uniform: a number in (0, 1) for each row, (rows,).
        sampling: the temperature and top-p.
    """
    import torch

    scaled = logits.float() / (sampling.temperature or 1.0)
    logprobs = scaled.log_softmax(-1)
    if sampling.temperature == 0:
        token = logprobs.argmax(-1)
    else:
        probabilities = logprobs.exp()
        if sampling.top_p < 1:
            probabilities = _likeliest(probabilities, sampling.top_p)
        # Inverse transform sampling, in float64: in float32 the sums over a large vocabulary would be off by more than
        # the probabilities of rare tokens. Scaled by the last sum, which top-p and rounding keep from being exactly 1.
        # ``right=True`` takes the first token whose sum is above the threshold, which never has probability 0.
        cumulative = probabilities.cumsum(-1, dtype=torch.float64)  # (rows, vocabulary)
        threshold = uniform[:, None] * cumulative[:, -1:]  # (rows, 1)
        token = torch.searchsorted(cumulative, threshold, right=True).squeeze(1)
    return token, logprobs.gather(1, token[:, None]).squeeze(1)


def _likeliest(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Returns the probabilities with zeros outside of the smallest set of likeliest tokens that reaches ``top_p``."""
    descending, indices = probabilities.sort(dim=-1, descending=True, stable=True)
    preceding = descending.cumsum(-1) - descending  # (rows, vocabulary): of all likelier tokens together
    return probabilities.scatter(1, indices, descending.where(preceding < top_p, descending.new_zeros(())))


def _read_rows(
    prompts: Sequence[Sequence[int]],
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    rows: torch.Tensor,
    ends: torch.Tensor,
) -> list[tuple[int, int, list[int]]]:
    """Returns the finished rows of the cache, with their first column and the token ids whose keys are in the cache."""
    # The last sampled token was never read by the model, so it has no keys and values yet.
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
