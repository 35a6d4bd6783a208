"""TRL's ``rollout_func`` over :class:`~sotopia_env.adapters.TextSeat`: conversations as text, one row for each prompt.

For trainers of your own; the stage ``grpo`` has more (self-play, constrained answers, other rewards of turns:
:mod:`sotopia_training.grpo.multi_turn`). A prompt names its episode and is never read by the model::

    data = Dataset.from_list([prompt_row(row) for row in rows(tasks, partner="boulware")])
    GRPOTrainer(model, reward_funcs=[episode_reward], rollout_func=rollout, train_dataset=data, …)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sotopia_env.adapters import TextSeat
from sotopia_env.foundation.extras import check_extra
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.waiting import all_at_once, wait
from sotopia_training.grpo.sampling import trainer_sample
from sotopia_training.models.tokenizers import answer_text, glue_ids, prompt_ids

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import GRPOTrainer

KEY = "row"
"""Key of the row's JSON in the only message of a prompt."""


def prompt_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the data set's row of an episode from one of :func:`sotopia_env.adapters.rows`."""
    return {"prompt": [{"role": "user", "content": f"seat {row['focal']}", KEY: json.dumps(row)}]}


def episode_reward(reward: Sequence[float], **_: Any) -> list[float]:
    """TRL's reward function: that of the episodes, as :func:`rollout` returns it."""
    return list(reward)


@dataclass
class _Row:
    seat: TextSeat
    prompt: list[int] = field(default_factory=list)
    completion: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


def rollout(
    prompts: Sequence[Sequence[Mapping[str, Any]]], trainer: GRPOTrainer, longest: int = 4096
) -> dict[str, Any]:
    """Plays one episode for each prompt with the policy in training, on one process.

    Args:
        prompts: those of TRL, one for each generation.
        trainer: its ``max_completion_length`` is the limit of one answer.
        longest: the limit of all that follows the prompt, at least ``max_completion_length``; an episode whose next
            answer may not fit ends there, and what was agreed so far counts.

    Returns:
        TRL's columns; ``reward`` of each episode; and ``turn_rewards`` with ``turn_ends``, the index in the completion
        after each own turn, for trainers with an advantage per token.

    Raises:
        MissingExtraError: TRL has a version that the extra ``train`` does not admit.
    """
    check_extra("train")  # what TRL passes to a rollout function changes between its releases
    rows = [_Row(TextSeat.of(decode_json(prompt[0][KEY]), reasks=0)) for prompt in prompts]
    tokenizer, sample = trainer.processing_class, trainer_sample(trainer)
    openings = wait(all_at_once(row.seat.begin() for row in rows))
    for row, messages in zip(rows, openings, strict=True):
        row.prompt = prompt_ids(tokenizer, messages)
    room = longest - int(trainer.args.max_completion_length)
    while acting := [row for row in rows if row.seat.reward is None]:
        answers, logprobs = sample([[*row.prompt, *row.completion] for row in acting])
        texts = [answer_text(tokenizer, answer) for answer in answers]
        news = wait(all_at_once(row.seat.say(text) for row, text in zip(acting, texts, strict=True)))
        full = []
        for number, (row, (messages, done)) in enumerate(zip(acting, news, strict=True)):
            answer = list(answers[number]) or [int(tokenizer.eos_token_id)]
            _extend(row, answer, 1, None if logprobs is None else list(logprobs[number]))
            row.ends.append(len(row.completion))
            if done:
                continue
            glue = glue_ids(tokenizer, [{"role": "assistant", "content": "{}"}, *messages])
            if len(row.completion) + len(glue) > room:  # the row ends with the policy's own tokens, as TRL expects
                full.append(row.seat)
            else:
                _extend(row, glue, 0, None)
        wait(all_at_once(seat.end() for seat in full))
    for row in rows:
        if not row.completion:  # a partner ended it before the seat's first turn; TRL needs a token
            _extend(row, [int(tokenizer.eos_token_id)], 0, None)
    return {
        "prompt_ids": [row.prompt for row in rows],
        "completion_ids": [row.completion for row in rows],
        "logprobs": [row.logprobs for row in rows] if trainer.use_vllm else None,
        "env_mask": [row.mask for row in rows],
        "reward": [row.seat.reward for row in rows],
        "turn_rewards": [row.seat.turn_rewards for row in rows],
        "turn_ends": [row.ends for row in rows],
    }


def _extend(row: _Row, ids: list[int], mask: int, logprobs: list[float | None] | None) -> None:
    row.completion += ids
    row.mask += [mask] * len(ids)
    row.logprobs += logprobs or [0.0] * len(ids)
