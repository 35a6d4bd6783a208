"""Whole episodes in TRL: a ``rollout_func`` that plays them, and a trainer whose advantages may differ between turns.

TRL's contracts, as tested with 1.16: the function receives prompts that are already repeated ``num_generations`` times
and returns exactly one row for each; its further columns are passed to the reward functions; groups are consecutive
blocks. So a block shares task, seat, partners and seed, and only the policy's sampling differs within it: the baseline
of an advantage is that of one role against the same partners (role-conditioned advantage estimation, as in SPIRAL, Liu
et al., arXiv 2506.24119), also where the policy plays all seats. The rows of these seats share episodes: the first
episode of each of their blocks is one episode, and so on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.naming.seats import role_of
from sotopia_training.fitting.group_figures import RewardedRow, effective_sample_size, group_figures
from sotopia_training.fitting.loop import has_sharded_weights
from sotopia_training.grpo.masked_head import MaskedHead
from sotopia_training.grpo.sampling import largest_count, trainer_sample
from sotopia_training.grpo.self_play import SelfPlay
from sotopia_training.grpo.settings import RewardSettings
from sotopia_training.grpo.situations import Situation
from sotopia_training.grpo.token_episodes import TokenPlayer, columns
from sotopia_training.grpo.token_seat import TokenSeat
from sotopia_training.grpo.turn_rewards import TurnRewarder, by_tokens, make_turn_rewarder
from sotopia_training.models.prompt_reader import PromptReader

if TYPE_CHECKING:
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

logger = logging.getLogger(__name__)
GIVE_UP = 64
"""Number of consecutive unscored episodes after which training ends, because nothing can be learnt from them."""
KEY = "situation"
"""Key of the situation's number in the only message of a prompt, where Arrow and TRL preserve it."""
TURN_REWARDS = "turn_rewards"
"""Column with (start, end, reward) of every focal turn, if turns have their own rewards."""


def prompt_rows(situations: Sequence[Situation]) -> list[dict[str, Any]]:
    """Returns the data set's rows: one prompt per situation, with task, seat and partner as columns.

    Rows with the same ``episode`` are seats of one episode, if the policy plays them all.
    """
    keys = dict.fromkeys(item.task.id if item.shared else number for number, item in enumerate(situations))
    episodes = {key: number for number, key in enumerate(keys)}
    return [
        {
            "prompt": [{"role": "user", "content": f"{item.task.id}, {item.seat}", KEY: str(number)}],
            "task": item.task.id,
            "seat": item.seat,
            "partner": item.partner,
            "episode": episodes[item.task.id if item.shared else number],
        }
        for number, item in enumerate(situations)
    ]


class EpisodeRollout:
    """Plays the situations of TRL's prompts (its ``rollout_func``)."""

    def __init__(
        self,
        player: TokenPlayer,
        situations: Sequence[Situation],
        reward: RewardSettings,
        self_play: SelfPlay | None = None,
        head: MaskedHead | None = None,
    ) -> None:
        """Creates the rollout and checks the rewards of turns.

        Args:
            player: plays and evaluates the episodes.
            situations: the situations, by their number in the prompts.
            reward: the settings of an episode's reward.
            self_play: draws the partners; ``None`` uses those of the situations.
            head: trains the episodes under the masks of their sampling; ``None`` for free text.

        Raises:
            InvalidValueError: the rewards of turns do not cover the dimension or a task.
        """
        self._player = player
        self._situations = situations
        self._reward = reward
        self._self_play = self_play
        self._head = head
        self._failed = 0
        self._turns = make_turn_rewarder(reward, player, situations)

    def __call__(self, prompts: Sequence[Sequence[Mapping[str, str]]], trainer: GRPOTrainer) -> dict[str, Any]:
        """Returns one sequence for each prompt: ids, mask, reward, scores, and the turns' rewards if there are any."""
        numbers = [int(prompt[0][KEY]) for prompt in prompts]
        # One object for all episodes of a group: they share the partner, and equal states are recognised by it.
        situations = {number: self._situation(number, trainer) for number in numbers}
        episodes = self.play([situations[number] for number in numbers], trainer)
        if self._head is not None:
            self._head.note(episodes)
        output: dict[str, Any] = {
            **columns(episodes, bool(trainer.use_vllm)),
            "episode_reward": [self.reward(episode) for episode in episodes],
            "scores": [episode.scores for episode in episodes],
            "facts": [self._facts(episode) for episode in episodes],
            "role": [role_of(episode.table.task, episode.agent) for episode in episodes],
        }
        if self._turns is not None:
            output |= self._of_turns(self._turns, episodes, trainer, output["facts"])
        return output

    def _of_turns(
        self, turns: TurnRewarder, episodes: Sequence[TokenSeat], trainer: GRPOTrainer, facts: list[dict[str, float]]
    ) -> dict[str, Any]:
        """Returns the rewards of all turns, and the facts with their cost."""
        sample = trainer_sample(trainer)
        rewards, tokens = turns.rewards(episodes, sample, lambda count: largest_count(count, trainer))
        cost = {} if tokens is None else {"continuation_tokens": tokens / len(episodes)}
        rows = [by_tokens(episode, by_turn) for episode, by_turn in zip(episodes, rewards, strict=True)]
        return {TURN_REWARDS: rows, "facts": [{**row, **cost} for row in facts]}

    def _situation(self, number: int, trainer: GRPOTrainer) -> Situation:
        situation = self._situations[number]
        if self._self_play is None:
            return situation
        return self._self_play.with_partners(situation, trainer.state.global_step)

    def play(self, situations: Sequence[Situation], trainer: GRPOTrainer) -> list[TokenSeat]:
        """Plays the episodes with the policy in training.

        Raises:
            EvaluationError: :data:`GIVE_UP` consecutive episodes are unscored; names the last reason.
        """
        episodes = self._player.play(situations, trainer_sample(trainer), lambda count: largest_count(count, trainer))
        for episode in episodes:
            self._failed = self._failed + 1 if episode.failure else 0
            if episode.failure:
                logger.warning("an episode without a reward: %s", episode.failure)
            if self._failed >= GIVE_UP:
                raise EvaluationError(f"the last {GIVE_UP} episodes could not be scored; {episode.failure}")
        if self._self_play is not None:
            from accelerate.utils import gather_object

            self._self_play.note(episodes, trainer.state.global_step, gather_object)
        return episodes

    def reward(self, episode: TokenSeat) -> float | None:
        """Returns the reward of an episode: its scalarised scores, and the penalty for impossible answers.

        ``None`` if it has no scores: TRL then leaves it out of its group and gives it no advantage.
        """
        # The penalty is added, not substituted: the score already contains the cost of a refused answer.
        return None if episode.reward is None else episode.reward + self._penalty(episode)

    def _penalty(self, episode: TokenSeat) -> float:
        return 0.0 if episode.valid is None else self._reward.invalid * (1 - episode.valid)

    def _facts(self, episode: TokenSeat) -> dict[str, float]:
        score = episode.reward
        return {**({} if score is None else {"score": score, "penalty": self._penalty(episode)}), **episode.facts}


def episode_reward(
    completions: Sequence[Any],
    episode_reward: Sequence[float | None],
    scores: Sequence[Mapping[str, float]],
    facts: Sequence[Mapping[str, float]],
    log_metric: Callable[[str, float], None],
    turn_rewards: Sequence[Sequence[tuple[int, int, float]]] = (),
    role: Sequence[str] = (),
    **_: Any,
) -> list[float | None]:
    """Returns the episodes' rewards; TRL's reward function.

    Logs them by role, the turns' rewards, if there are any, the scored dimensions and the facts.
    """
    for name, value in zip(role, episode_reward, strict=False):
        if value is not None:
            log_metric(f"roles/{name}", value)
    for turns in turn_rewards:
        for _start, _end, reward in turns:
            log_metric("turns/reward", reward)
    for kind, rows in (("scores", scores), ("episodes", facts)):
        for row in rows:
            for name, value in row.items():
                log_metric(f"{kind}/{name}", value)
    return list(episode_reward)


# --- the trainer ---------------------------------------------------------------------------------------------------


class EpochSampler:
    """The order of the rows in the trainer's current epoch, which is the same in a resumed and an uninterrupted run.

    TRL's sampler draws the epochs' orders one after the other, and a resumed run has a new sampler, which would begin
    with the order of the first epoch. The trainer's state contains the epoch in every process, also if the run resumes
    in the middle of it.

    Rows of one episode are moved to the first of them, because only in one batch can they be played together.
    """

    def __init__(self, make: Callable[[], Any], epoch: Callable[[], int], episodes: Sequence[int] = ()) -> None:
        """Creates the sampler.

        Args:
            make: returns TRL's sampler at its start.
            epoch: returns the number of complete epochs.
            episodes: the number of each row's episode; by default every row has one of its own.
        """
        self._make, self._epoch, self._episodes = make, epoch, episodes
        self._rows: dict[int, list[int]] = {}
        for row, episode in enumerate(episodes):
            self._rows.setdefault(episode, []).append(row)

    def __len__(self) -> int:
        return len(self._make())

    def __iter__(self) -> Iterator[int]:
        sampler = self._make()
        for _ in range(self._epoch()):
            deque(sampler, maxlen=0)  # exhausts the order of one epoch
        if len(self._rows) == len(self._episodes):
            return iter(sampler)
        order = dict.fromkeys(self._episodes[row] for row in sampler)
        rows = [row for episode in order for row in self._rows[episode]]
        # Blocks and repetitions are TRL's, over these rows in this order.
        blocks = {name: getattr(sampler, name) for name in ("mini_repeat_count", "batch_size", "repeat_count")}
        return (rows[position] for position in type(sampler)(rows, **blocks, shuffle=False))


def trainer_class() -> type[GRPOTrainer]:
    """Returns TRL's trainer, extended by advantages per turn and by prompts that are read once per group."""
    from transformers import Trainer
    from trl.trainer.grpo_trainer import GRPOTrainer

    class SotopiaGRPOTrainer(GRPOTrainer):
        """GRPO in which the tokens of a turn get that turn's advantage, (batch, tokens), if rows have rewards of turns.

        Every report contains the tokens of this process since the last one: the sampled tokens, the tokens in the rows
        of the loss (with prompts and padding), and how many of the latter were read. It also has the means since the
        last one of :mod:`sotopia_training.fitting.group_figures`.
        """

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._sampled, self._readers = 0, prompt_readers(self)
            self._batches: list[dict[str, float]] = []

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            if "loss" in logs:
                logs |= {"tokens/sampled": self._sampled, **counts(self._readers), **_means(self._batches)}
                self._sampled, self._batches = 0, []
                super().log(logs, start_time)
            else:
                # Not TRL's, which would move the step's figures into this report, such as that of dev episodes.
                Trainer.log(self, logs, start_time)

        def _get_train_sampler(self, dataset: Any = None) -> EpochSampler:
            make = partial(super()._get_train_sampler, dataset)
            rows = self.train_dataset if dataset is None else dataset
            episodes = rows["episode"] if "episode" in rows.column_names else ()
            return EpochSampler(make, lambda: int(self.state.epoch or 0), episodes)

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
            self._sampled += int((output["completion_mask"] * output.get("tool_mask", 1)).sum())
            # TRL's advantages are (batch,), one per row; its loss also takes one per token.
            if TURN_REWARDS in inputs[0]:
                size = self.num_generations or 1
                width = output["completion_ids"].size(1)
                output["advantages"] = self._by_turn([row[TURN_REWARDS] for row in inputs], size, width)
            self._note_groups(inputs, output)
            return output

        def _note_groups(self, inputs: list[dict[str, Any]], output: Mapping[str, Any]) -> None:
            from accelerate.utils import gather_object

            advantages = output["advantages"].float()  # (rows,), or (rows, tokens) with rewards of turns
            mask = output["completion_mask"] * output.get("tool_mask", 1)
            if advantages.dim() > 1:
                advantages = (advantages.abs() * mask).sum(1) / mask.sum(1).clamp(min=1)
            figures = {"effective_sample_size": effective_sample_size(gather_object(advantages.tolist()))}
            if "episode_reward" in inputs[0]:  # whole episodes
                rows = [RewardedRow(row["episode_reward"], row["facts"].get("penalty", 0.0)) for row in inputs]
                figures |= group_figures(gather_object(rows), self.num_generations or 1)
            self._batches.append(figures)

        def _by_turn(self, rewards: list[list[tuple[int, int, float]]], size: int, width: int) -> torch.Tensor:
            from accelerate.utils import gather_object

            all_rewards = gather_object(rewards)  # a group may be divided among processes
            start = self.accelerator.process_index * len(rewards)
            rows = turn_advantages(all_rewards, size, width, self.scale_rewards)  # (rows of all processes, tokens)
            return rows[start : start + len(rewards)].to(self.accelerator.device)

    return SotopiaGRPOTrainer


def prompt_readers(trainer: GRPOTrainer) -> list[PromptReader]:
    """Returns readers for the model in training and its reference; none if layers cannot use a cache."""
    from peft import PeftModel

    if trainer.args.gradient_checkpointing or has_sharded_weights(trainer):
        return []
    models = [trainer.model] if trainer.ref_model is None else [trainer.model, trainer.ref_model]
    return [PromptReader(model.get_base_model() if isinstance(model, PeftModel) else model) for model in models]


def counts(readers: Sequence[PromptReader]) -> dict[str, int]:
    """Returns the readers' token counts for a report, and resets them to 0."""
    figures = {"tokens/rows": sum(r.tokens for r in readers), "tokens/read": sum(r.read for r in readers)}
    for reader in readers:
        # The next report counts from here.
        reader.tokens = reader.read = 0
    return figures if readers else {}


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: fmean(row[name] for row in rows if name in row) for name in names}


def turn_advantages(
    turns: Sequence[Sequence[tuple[int, int, float]]], group: int, width: int, scale: str
) -> torch.Tensor:
    """Returns advantages of shape (rows, width): a turn's reward minus the mean over all turns of its group.

    Args:
        turns: for each row, (start, end, reward) of each focal turn.
        group: the number of consecutive rows per group.
        width: the number of tokens per row, including padding.
        scale: the turns whose standard deviation divides advantages: those of the ``group`` or the ``batch``, or
            ``none``.
    """
    import torch

    advantages = torch.zeros(len(turns), width)  # (rows, width)
    rewards = torch.tensor([reward for row in turns for _, _, reward in row])  # (turns of the batch,)
    for first in range(0, len(turns), group):
        rows = range(first, first + group)
        # The baseline is the mean over turns, not over episodes as in TRL: turns are the units that have rewards, and
        # an episode with many of them counts more.
        values = torch.tensor([reward for row in rows for _, _, reward in turns[row]])  # (turns of the group,)
        if len(values) < 2:
            continue  # a single turn is its own mean, and has no standard deviation
        mean = values.mean()
        # + 1e-4: as in TRL, so that equal rewards are not divided by 0.
        spread = 1.0 if scale == "none" else (rewards if scale == "batch" else values).std() + 1e-4
        for row in rows:
            for start, end, reward in turns[row]:
                advantages[row, start:end] = (reward - mean) / spread
    return advantages
