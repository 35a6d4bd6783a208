"""TRL's ``rollout_func`` over rows of :func:`sotopia_env.adapters.rows`, for trainers of your own.

The stage ``grpo`` offers more (self-play, constrained answers, other rewards of turns:
:mod:`sotopia_training.grpo.multi_turn`).
Both play :class:`~sotopia_training.grpo.token_seat.TokenSeat`. A prompt names its episode; the model never reads it::

    data = Dataset.from_list([prompt_row(row) for row in rows(tasks, partner="boulware")])
    GRPOTrainer(model, reward_funcs=[episode_reward], rollout_func=rollout, train_dataset=data, …)

With ``partner="self"``, the rows of a task's seats share episodes if they are in one batch, as with
``shuffle_dataset=False``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sotopia_env.adapters import Seats
from sotopia_env.foundation.extras import check_extra
from sotopia_env.foundation.json_text import decode_json
from sotopia_training.grpo.sampling import largest_count, trainer_sample
from sotopia_training.grpo.token_episodes import TokenPlayer, columns, seats_of_rows
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import GRPOTrainer

KEY = "row"
"""Key of the row's JSON in the only message of a prompt."""


def prompt_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the data set's row of an episode from one of :func:`sotopia_env.adapters.rows`."""
    return {"prompt": [{"role": "user", "content": f"seat {row['focal']}", KEY: json.dumps(row)}]}


def _row(row: Mapping[str, Any]) -> tuple[Hashable, str, Callable[[], Seats]]:
    seats = Seats.of(row)
    # The same seats of the same task, with the same partners and payment.
    seating = json.dumps({**row, "partner": None, "focal": [*seats], "partners": {**seats.specs}}, sort_keys=True)
    return seating, seats.table.task.agents[row.get("focal", 0)], lambda: seats


def episode_reward(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """TRL's reward function: returns the episodes' rewards, a column of :func:`rollout`."""
    return list(reward)


def rollout(
    prompts: Sequence[Sequence[Mapping[str, Any]]], trainer: GRPOTrainer, longest: int = 4096
) -> dict[str, Any]:
    """Plays one episode for each prompt with the policy in training.

    Args:
        prompts: TRL's prompts, one for each generation.
        trainer: its ``max_completion_length`` is the limit of one answer.
        longest: the limit of prompt and conversation together, in tokens; if the next answer may not fit, the seat
            leaves.

    Returns:
        TRL's columns; ``reward`` of each episode, ``None`` if it has none; and ``turn_rewards`` with ``turn_ends``, the
        index in the completion after each own turn, for trainers with an advantage per token.

    Raises:
        MissingExtraError: TRL has a version that the extra ``train`` does not admit.
    """
    check_extra("train")  # what TRL passes to a rollout function changes between its releases
    limits = PromptSettings(max_length=longest, max_answer=int(trainer.args.max_completion_length))
    player = TokenPlayer(trainer.processing_class, limits)
    seats = seats_of_rows(map(_row, (decode_json(prompt[0][KEY]) for prompt in prompts)), player.format)
    player.play_on(seats, trainer_sample(trainer), lambda count: largest_count(count, trainer))
    return {
        **columns(seats, bool(trainer.use_vllm)),
        "reward": [seat.reward for seat in seats],
        "turn_rewards": [seat.turn_rewards for seat in seats],
        "turn_ends": [[turn.end for turn in seat.focal] for seat in seats],
    }
