"""Sampling from a model for many prompts at once.

Prompts wait until the event loop has nothing else to do (:class:`Batcher`), are sorted by length, padded on the left
and decoded together with a cache of keys and values (:class:`BatchedGenerator`). Rows that have ended leave the batch.

What a row samples depends on its prompt and its seed alone, not on its neighbours: step ``t`` of a row takes one number
in (0, 1), a hash of (seed, t), and the token at which the cumulative distribution passes it. One reservation: matrix
products of another shape round differently, so the distribution itself may differ in its last bits from batch to batch.
A token changes when the number falls into that gap: hardly ever in float32, now and then in half precision. On one
machine, with the same batches, results are equal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sotopia_env.errors import InvalidValueError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
_SHRINK = 0.75  # the share of rows still going below which the others are cut out of the batch
_QUIET = 4  # passes of the event loop without a new prompt until a batch is begun


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are sampled, and how many prompts at once.

    Attributes:
        max_new_tokens: of one answer, its end token included; at least 1.
        temperature: the logits are divided by it; 0 takes the likeliest token.
        top_p: only the likeliest tokens that together reach this probability are sampled, above 0 to 1.
        max_batch: prompts that are decoded together.
        max_tokens: prompt and answer tokens of these together, padding included: the bound on the cache's memory. A
            single prompt may exceed it.
    """

    max_new_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    max_batch: int = 64
    max_tokens: int = 1 << 17

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_batch", "max_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidValueError(f"{name}: expected a whole number, 1 or more, got {value!r}")
        if not _is_number(self.temperature) or not 0 <= self.temperature <= 10:
            raise InvalidValueError(f"temperature: expected a number from 0 to 10, got {self.temperature!r}")
        if not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise InvalidValueError(f"top_p: expected a number above 0, at most 1, got {self.top_p!r}")

    def batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Returns the prompts' indices in batches of like length, the longest first."""
        order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
        found: list[list[int]] = []
        for index in order:
            room = self.max_tokens // (lengths[found[-1][0]] + self.max_new_tokens) if found else 0
            if found and len(found[-1]) < min(self.max_batch, room):
                found[-1].append(index)
            else:
                found.append([index])
        return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was sampled after one prompt.

    Attributes:
        ids: token ids, the end token included; never empty.
        logprobs: of each, under the model at the sampling temperature (at 1 for temperature 0), before top-p.
        finished: whether the last is an end token; if not, the limit of tokens was reached.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


def uniforms(seeds: Sequence[int], steps: int) -> Any:
    """Returns numbers in (0, 1) as a float64 array (seeds, steps): the SplitMix64 sequence of each seed.

    Args:
        seeds: any integers; their lowest 64 bits count.
        steps: how many numbers of each.
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
        model: a causal language model of transformers, with an adapter or without; on its device already.
        sampling: how.
        end_ids: tokens that end an answer.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sampling: Sampling = Sampling(),
        end_ids: Sequence[int] | None = None,
    ) -> None:
        """Prepares; nothing is computed.

        Args:
            model: not copied: its weights may change between calls, as they do in training.
            tokenizer: says which token pads.
            sampling: how to sample.
            end_ids: tokens that end an answer; by default the tokenizer's end token and those of the model's
                generation settings.
        """
        self.model = model
        self.sampling = sampling
        self.end_ids = tuple(sorted(_end_ids(model, tokenizer) if end_ids is None else set(end_ids)))
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end_ids[0]

    def generate(self, prompt_ids: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Sampled]:
        """Returns one answer for each prompt, in their order.

        The model computes in evaluation mode and is left in the mode it was in. Equal prompts are read once.

        Args:
            prompt_ids: token ids up to where the answer begins; none is empty.
            seeds: one for each prompt.

        Raises:
            InvalidValueError: not one seed for each prompt, or an empty prompt.
        """
        if len(prompt_ids) != len(seeds):
            raise InvalidValueError(f"seeds: expected one for each of {len(prompt_ids)} prompts, got {len(seeds)}")
        if not all(prompt_ids):
            raise InvalidValueError("prompt_ids: expected at least one token in each prompt, got an empty one")
        found: dict[int, Sampled] = {}
        with _evaluation_mode(self.model):
            for batch in self.sampling.batches([len(ids) for ids in prompt_ids]):
                answers = self._in_memory([prompt_ids[index] for index in batch], [seeds[index] for index in batch])
                found.update(zip(batch, answers, strict=True))
        return [found[index] for index in range(len(prompt_ids))]

    def _in_memory(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Sampled]:
        """One batch, or two halves of it one after the other where the device's memory holds no more."""
        import torch

        try:
            return self._decode(prompts, seeds)
        except torch.OutOfMemoryError:
            if len(prompts) == 1:
                raise
            logger.warning("no memory to answer %d prompts at once; answering half of them at a time", len(prompts))
        torch.cuda.empty_cache()
        half = len(prompts) // 2
        return self._in_memory(prompts[:half], seeds[:half]) + self._in_memory(prompts[half:], seeds[half:])

    def _decode(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Sampled]:
        """One batch, from prompts to answers."""
        import torch

        device, most = self.model.device, self.sampling.max_new_tokens
        logits, cache, mask = self._read(prompts)
        noise = torch.from_numpy(uniforms(seeds, most)).to(device)
        ends = torch.tensor(self.end_ids, device=device)
        tokens = torch.full((len(prompts), most), self._pad, device=device)  # (rows, most)
        logprobs = torch.zeros((len(prompts), most), dtype=torch.float32, device=device)
        lengths = torch.full((len(prompts),), most, device=device)
        rows = torch.arange(len(prompts), device=device)  # which prompt each row of the batch belongs to
        going = torch.ones(len(prompts), dtype=torch.bool, device=device)
        position = mask.sum(1, keepdim=True)
        for step in range(most):
            chosen, chance = _choose(logits, noise[rows, step], self.sampling)
            tokens[rows[going], step], logprobs[rows[going], step] = chosen[going], chance[going]
            ended = going & torch.isin(chosen, ends)
            lengths[rows[ended]] = step + 1
            going &= ~ended
            left = int(going.sum())
            if not left or step + 1 == most:
                break
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            if left <= _SHRINK * len(rows):
                kept = going.nonzero().squeeze(1)
                cache.batch_select_indices(kept)
                rows, mask, position, chosen, going = (t[kept] for t in (rows, mask, position, chosen, going))
            logits = self._forward(chosen[:, None], mask, position, cache)
            position = position + 1
        return _cut(tokens, logprobs, lengths, set(self.end_ids))

    def _read(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Logits after each prompt, the cache and the attention mask; equal prompts are computed once."""
        import torch

        different = {tuple(ids): None for ids in prompts}
        place = {ids: number for number, ids in enumerate(different)}
        longest, device = max(map(len, different)), self.model.device
        padded = [[self._pad] * (longest - len(ids)) + list(ids) for ids in different]
        holes = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in different]
        ids, mask = torch.tensor(padded, device=device), torch.tensor(holes, device=device)  # (different, longest)
        cache = _new_cache(self.model, self.sampling.max_new_tokens)
        logits = self._forward(ids, mask, (mask.cumsum(1) - 1).clamp(min=0), cache)
        if len(different) < len(prompts):
            rows = torch.tensor([place[tuple(ids)] for ids in prompts], device=device)
            cache.batch_select_indices(rows)
            logits, mask = logits[rows], mask[rows]
        return logits, cache, mask

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits of the last position, (rows, vocabulary)."""
        found = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        last: torch.Tensor = found.logits[:, -1]
        return last


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    given = configured if isinstance(configured, list | tuple) else [configured]
    return {end for end in (tokenizer.eos_token_id, *given) if end is not None}


@contextmanager
def _evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """No dropout and no gradients; afterwards the model trains if it did before.

    A model that is being trained gets no inference mode: what it computes and keeps there, such as the frequencies of
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


def _choose(logits: torch.Tensor, uniform: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """One token for each row and its log-probability: ``logits`` (rows, vocabulary), ``uniform`` (rows,)."""
    import torch

    scaled = logits.float() / (sampling.temperature or 1.0)
    logprobs = scaled.log_softmax(-1)
    if sampling.temperature == 0:
        chosen = logprobs.argmax(-1)
    else:
        chances = logprobs.exp()
        if sampling.top_p < 1:
            chances = _likeliest(chances, sampling.top_p)
        passed = chances.cumsum(-1, dtype=torch.float64)
        wanted = uniform[:, None] * passed[:, -1:]
        chosen = torch.searchsorted(passed, wanted, right=True).squeeze(1)
    return chosen, logprobs.gather(1, chosen[:, None]).squeeze(1)


def _likeliest(chances: torch.Tensor, top_p: float) -> torch.Tensor:
    """The probabilities with zeros outside of the smallest set of likeliest tokens that reaches ``top_p``."""
    ordered, places = chances.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    return chances.scatter(1, places, ordered.where(before < top_p, ordered.new_zeros(())))


def _cut(tokens: torch.Tensor, logprobs: torch.Tensor, lengths: torch.Tensor, ends: set[int]) -> list[Sampled]:
    found = []
    for ids, chances, length in zip(tokens.tolist(), logprobs.tolist(), lengths.tolist(), strict=True):
        found.append(Sampled(tuple(ids[:length]), tuple(chances[:length]), ids[length - 1] in ends))
    return found


def _new_cache(model: PreTrainedModel, room: int) -> Any:
    """The model's kind of cache; layers that would be copied for every token get room to grow instead."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    found = DynamicCache(config=model.config)
    if all(type(layer) is DynamicLayer for layer in found.layers):
        found.layers = [_growing_layer()(room) for _ in found.layers]
    return found


@cache
def _growing_layer() -> Any:
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):
        """Writes new keys and values behind the old ones: concatenating them took half of the time of decoding."""

        def __init__(self, room: int) -> None:
            super().__init__()
            self._room = room
            self._buffers: dict[str, Any] = {}

        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            self.keys = self._extended("keys", key_states)
            self.values = self._extended("values", value_states)
            return self.keys, self.values

        def batch_select_indices(self, indices: Any) -> None:
            super().batch_select_indices(indices)
            self._buffers.clear()  # they hold the rows as they were

        def _extended(self, name: str, new: Any) -> Any:
            old, buffer = getattr(self, name), self._buffers.get(name)
            held = old.shape[-2] if old.numel() else 0
            size = held + new.shape[-2]
            if buffer is None or buffer.shape[-2] < size:
                buffer = self._buffers[name] = new.new_empty(*new.shape[:-2], size + self._room, new.shape[-1])
                if held:
                    buffer[..., :held, :] = old
            buffer[..., held:size, :] = new
            return buffer[..., :size, :]

    return GrowingLayer


# --- many callers -------------------------------------------------------------------------------------------------


class Batcher:
    """Gathers the prompts that wait in an event loop at one moment, and has them answered together.

    A batch is begun when the loop has gone round a few times without a new prompt. It is computed in one thread beside
    the loop's, so that time limits, signals and other models' answers are not held up by it; prompts that come
    meanwhile make the next batch. There is no delay by the clock: a single prompt is answered at once.

    One instance may serve several event loops one after the other, but not at the same time.
    """

    def __init__(
        self, make: Callable[[], BatchedGenerator], sampling: Sampling, thread: Executor | None = None
    ) -> None:
        """Prepares; the generator is made with the first batch, in its thread.

        Args:
            make: returns the generator; called once. What it raises, every prompt of that batch raises.
            sampling: of that generator.
            thread: a single thread, shared by all that use the same model; one of its own by default.
        """
        self.sampling = sampling
        self._make = make
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="generation")
        self._generator: BatchedGenerator | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[_Prompt] = []
        self._unanswered = 0  # batches under way
        self._gathering = False

    async def sample(self, ids: Sequence[int], seed: int) -> Sampled:
        """Returns an answer to one prompt."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # whatever waited in another loop died with it
            self._loop, self._waiting, self._unanswered, self._gathering = loop, [], 0, False
        prompt = _Prompt(ids, seed, loop.create_future())
        self._waiting.append(prompt)
        self._gather(loop)
        return await prompt.answer

    def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._gathering and not self._unanswered:
            self._gathering = True
            loop.call_soon(self._settle, loop, len(self._waiting), 0)

    def _settle(self, loop: asyncio.AbstractEventLoop, seen: int, quiet: int) -> None:
        """Waits for the loop to have nothing else to do, as far as can be told from no new prompts coming."""
        count = len(self._waiting)
        quiet = quiet + 1 if count == seen else 0
        if quiet < _QUIET:
            loop.call_soon(self._settle, loop, count, quiet)
            return
        waiting, self._waiting, self._gathering = self._waiting, [], False
        wanted = [prompt for prompt in waiting if not prompt.answer.done()]
        for batch in self.sampling.batches([len(prompt.ids) for prompt in wanted]):
            prompts = [wanted[index] for index in batch]
            self._unanswered += 1
            loop.run_in_executor(self._thread, self._answer, prompts).add_done_callback(
                partial(self._deliver, loop, prompts)
            )

    def _answer(self, prompts: Sequence[_Prompt]) -> list[Sampled]:
        if self._generator is None:
            self._generator = self._make()
        return self._generator.generate([prompt.ids for prompt in prompts], [prompt.seed for prompt in prompts])

    def _deliver(
        self, loop: asyncio.AbstractEventLoop, prompts: Sequence[_Prompt], done: asyncio.Future[list[Sampled]]
    ) -> None:
        if loop is not self._loop:
            return
        self._unanswered -= 1
        error = None if done.cancelled() else done.exception()
        for index, prompt in enumerate(prompts):
            if prompt.answer.done():
                continue
            if done.cancelled():
                prompt.answer.cancel()
            elif error is not None:
                prompt.answer.set_exception(error)
            else:
                prompt.answer.set_result(done.result()[index])
        self._gather(loop)


@dataclass(frozen=True, slots=True)
class _Prompt:
    ids: Sequence[int]
    seed: int
    answer: asyncio.Future[Sampled]
