"""Batching of prompts: prompts that wait in an event loop at the same time are answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from sotopia_training.models.answer_tree import AnswerSet
from sotopia_training.models.generation import BatchedGenerator, Sampled, Sampling

# Passes of the event loop without a new prompt before a batch starts. Callers that an answer wakes need a few passes
# (futures, gathers) until they ask again.
_QUIET = 4


class Batcher:
    """Collects the prompts that wait in an event loop at the same time, and answers them together.

    A batch starts after a few passes of the loop without a new prompt. It is computed in a separate thread, so that it
    does not block time limits, signals and other models' answers; prompts that arrive meanwhile form the next batch.
    It never waits for a fixed time, so a single prompt is answered immediately.

    One instance may serve several event loops one after the other, but not at the same time.
    """

    def __init__(
        self, make: Callable[[], BatchedGenerator], sampling: Sampling, thread: Executor | None = None
    ) -> None:
        """Creates the batcher; the generator is created with the first batch, in the thread.

        Args:
            make: returns the generator; called until it succeeds. Its exception is raised for every prompt of the
                batch.
            sampling: the sampling of that generator.
            thread: a single thread, shared by all batchers of the same model; by default a new one.
        """
        self.sampling = sampling
        self._make = make
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="generation")
        self._generator: BatchedGenerator | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[_Prompt] = []
        self._unanswered = 0  # batches in progress
        self._gathering = False

    async def sample(self, ids: Sequence[int], seed: int, schema: Mapping[str, Any] | None = None) -> Sampled:
        """Returns an answer to one prompt, constrained to ``schema`` if it is not ``None``."""
        prompt = _Prompt(ids, seed, asyncio.get_running_loop().create_future(), schema)
        sampled: Sampled = await self._answered(prompt)
        return sampled

    async def shares(self, ids: Sequence[int], answers: Sequence[Sequence[int]]) -> tuple[float, ...]:
        """Returns the probabilities of ``answers`` to one prompt; see :class:`~.answer_tree.AnswerSet`."""
        choice = AnswerSet(tuple(ids), tuple(map(tuple, answers)))
        prompt = _Prompt(ids, 0, asyncio.get_running_loop().create_future(), choice=choice)
        shares: tuple[float, ...] = await self._answered(prompt)
        return shares

    async def _answered(self, prompt: _Prompt) -> Any:
        loop = asyncio.get_running_loop()
        # A new loop, as with every ``asyncio.run``: futures of the previous one cannot be answered any more.
        if loop is not self._loop:
            self._loop, self._waiting, self._unanswered, self._gathering = loop, [], 0, False
        self._waiting.append(prompt)
        self._gather(loop)
        return await prompt.answer

    def _ready(self) -> BatchedGenerator:
        if self._generator is None:
            self._generator = self._make()
        return self._generator

    def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._gathering and not self._unanswered:
            self._gathering = True
            loop.call_soon(self._settle, loop, len(self._waiting), 0)

    def _settle(self, loop: asyncio.AbstractEventLoop, previous: int, quiet: int) -> None:
        """Waits until the loop is idle, judged by passes without a new prompt; then starts the batches."""
        count = len(self._waiting)
        quiet = quiet + 1 if count == previous else 0
        if quiet < _QUIET:
            loop.call_soon(self._settle, loop, count, quiet)
            return
        waiting, self._waiting, self._gathering = self._waiting, [], False
        # A caller that ran into its time limit has cancelled its future.
        pending = [prompt for prompt in waiting if not prompt.answer.done()]
        weighed = [prompt for prompt in pending if prompt.choice is not None]
        sampled = [prompt for prompt in pending if prompt.choice is None]
        batches = [
            [sampled[index] for index in batch] for batch in self.sampling.batches([len(p.ids) for p in sampled])
        ]
        for prompts in filter(None, [weighed, *batches]):
            self._unanswered += 1
            loop.run_in_executor(self._thread, self._answer, prompts).add_done_callback(
                partial(self._deliver, loop, prompts)
            )

    def _answer(self, prompts: Sequence[_Prompt]) -> Sequence[Any]:
        if choices := [prompt.choice for prompt in prompts if prompt.choice is not None]:
            return self._ready().shares(choices)
        ids, seeds, schemas = zip(*((p.ids, p.seed, p.schema) for p in prompts), strict=True)
        return self._ready().generate(ids, seeds, schemas)

    def _deliver(
        self, loop: asyncio.AbstractEventLoop, prompts: Sequence[_Prompt], future: asyncio.Future[Sequence[Any]]
    ) -> None:
        if loop is not self._loop:  # a batch of an earlier loop
            return
        self._unanswered -= 1
        error = None if future.cancelled() else future.exception()
        for index, prompt in enumerate(prompts):
            if prompt.answer.done():
                continue
            if future.cancelled():
                prompt.answer.cancel()
            elif error is not None:
                prompt.answer.set_exception(error)
            else:
                prompt.answer.set_result(future.result()[index])
        self._gather(loop)


@dataclass(frozen=True, slots=True)
class _Prompt:
    ids: Sequence[int]
    seed: int
    answer: asyncio.Future[Any]
    schema: Mapping[str, Any] | None = None
    choice: AnswerSet | None = None
