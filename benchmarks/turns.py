"""Turns of whole episodes, sampled with and without the keys and values of the turns before.

The model is tiny, untrained and on the CPU; only the ratio means something. Both sides play the same episodes.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Figure

if TYPE_CHECKING:
    from sotopia_training.models.generation import BatchedGenerator

GROUPS, GROUP_SIZE, ANSWER, ROUNDS = 8, 8, 48, 2
# Numbers of tokens: of a first prompt, and between an answer and the next one.
FIRST, PARTNER = range(400, 601), range(100, 301)
OWN_TURNS = range(3, 7)
# Token ids of prompts and partners, and those that end answers.
ORDINARY, ENDS = range(10, 240), range(240, 250)


def tiny() -> tuple[Any, Any]:
    """A model of two layers of width 128, and its tokenizer."""
    from sotopia_training.models.loading import load_causal_lm
    from sotopia_training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
    from sotopia_training.models.tokenizers import load_tokenizer
    from sotopia_training.stage.settings import ModelSettings

    words = make_tiny_tokenizer(["words for a tokenizer"])
    with tempfile.TemporaryDirectory() as name:
        folder = make_tiny_model(Path(name) / "tiny", words, context=4096)
        return load_causal_lm(ModelSettings(base=str(folder), lora=None)).eval(), load_tokenizer(folder)


def play(generator: BatchedGenerator) -> int:
    """Plays all episodes; returns the number of answers."""
    draw = random.Random(0)
    starts = [draw.choices(ORDINARY, k=draw.choice(FIRST)) for _ in range(GROUPS)]
    episodes = [(list(ids), draw.choice(OWN_TURNS)) for ids in starts for _ in range(GROUP_SIZE)]
    count = 0
    while episodes:
        answers = generator.generate([ids for ids, _ in episodes], range(count, count + len(episodes)))
        count += len(answers)
        # Finished episodes leave the batch, so its size shrinks as in a real rollout.
        episodes = [
            ([*ids, *answer.ids, *draw.choices(ORDINARY, k=draw.choice(PARTNER))], left - 1)
            for (ids, left), answer in zip(episodes, answers, strict=True)
            if left > 1
        ]
    return count


def figures() -> list[Figure]:
    """The ratio of CPU time with to CPU time without the keys and values of earlier turns."""
    import torch
    from sotopia_training.fitting.loop import quiet
    from sotopia_training.models.generation import BatchedGenerator, Sampling
    from sotopia_training.models.key_values import Prefixes

    torch.set_num_threads(1)
    quiet()
    model, tokenizer = tiny()
    seconds: dict[bool, list[float]] = {True: [], False: []}
    count = 0
    for number in range(2 * ROUNDS):
        reuse = number % 2 == 1
        sampling = Sampling(ANSWER, max_batch=128)
        prefixes = Prefixes(sampling.max_tokens) if reuse else None
        generator = BatchedGenerator(model, tokenizer, sampling, ENDS, prefixes)
        start = time.process_time()
        count = play(generator)
        seconds[reuse].append(time.process_time() - start)
    again, stored = (statistics.median(seconds[reuse]) for reuse in (False, True))
    note = f"{GROUPS * GROUP_SIZE} episodes, {count} answers; {stored:.1f} s, all read again {again:.1f} s"
    return [Figure("turns with stored keys and values / all read again", stored / again, "", 1, note=note)]
