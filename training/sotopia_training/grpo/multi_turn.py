"""Whole episodes in TRL: a ``rollout_func`` that plays them, and a trainer whose advantages may differ between turns.

TRL's contracts, as tested with 1.16: the function receives prompts that are already repeated ``num_generations`` times
and returns exactly one row for each; its further columns are passed to the reward functions; groups are consecutive
blocks. So a block shares task, seat, partner and seed, and only the policy's sampling differs within it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, Verbatim
from sotopia_env.world import RANGES, Dimension, Episode, Scalarisation
from sotopia_training.attribution.by_outcome import make_attributor
from sotopia_training.attribution.credits import Attributor, SeatScore, Unattributed, seat_score
from sotopia_training.attribution.settings import COUNTERFACTUAL
from sotopia_training.fitting.loop import has_sharded_weights
from sotopia_training.grpo.branches import Branches, check_verified
from sotopia_training.grpo.masked_head import MaskedHead
from sotopia_training.grpo.sampling import largest_count, trainer_sample
from sotopia_training.grpo.self_play import SelfPlay
from sotopia_training.grpo.settings import RewardSettings
from sotopia_training.grpo.situations import Situation
from sotopia_training.grpo.token_episodes import TokenEpisode, TokenPlayer
from sotopia_training.models.prompt_reader import PromptReader

if TYPE_CHECKING:
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

logger = logging.getLogger(__name__)
GIVE_UP = 64
"""Number of consecutive unscored episodes after which training ends, because nothing can be learnt from them."""
KEY = "situation"
"""Key of the situation's number in the only message of a prompt, where Arrow and TRL preserve it."""
CREDITS = "turn_credits"
"""Column with (start, end, reward) of every focal turn, if turns have their own rewards."""


def prompt_rows(situations: Sequence[Situation]) -> list[dict[str, Any]]:
    """Returns the data set's rows: one prompt per situation, with task, seat and partner as columns."""
    return [
        {
            "prompt": [{"role": "user", "content": f"{item.task.id}, {item.seat}", KEY: str(number)}],
            "task": item.task.id,
            "seat": item.seat,
            "partner": item.partner.name,
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
        """Creates the rollout and checks the attributor.

        Args:
            player: plays and evaluates the episodes.
            situations: the situations, by their number in the prompts.
            reward: the settings of an episode's reward.
            self_play: draws the partners; ``None`` uses those of the situations.
            head: trains the episodes under the masks of their sampling; ``None`` for free text.

        Raises:
            InvalidValueError: the attributor of turn credits does not cover the dimension or a task.
        """
        self._player = player
        self._situations = situations
        self._reward = reward
        self._self_play = self_play
        self._head = head
        self._scalar = Scalarisation.of(reward.scalarisation)
        self._failed = 0
        self._branches: Branches | None = None
        self._attributor: Attributor | None = None
        if reward.credit == COUNTERFACTUAL:
            check_verified(situations, _credited_dimension(reward))
            self._branches = Branches(player, _credited_dimension(reward), reward.samples, reward.invalid)
        elif reward.credit != "episode":
            self._attributor = make_attributor(reward.credit)
            check_attributable(self._attributor, situations, reward)

    def __call__(self, prompts: Sequence[Sequence[Mapping[str, str]]], trainer: GRPOTrainer) -> dict[str, Any]:
        """Returns one sequence for each prompt: ids, mask, reward, scores and, with attribution, turn credits."""
        numbers = [int(prompt[0][KEY]) for prompt in prompts]
        # One object for all episodes of a group: they share the partner, and branches recognise equal states by it.
        situations = {number: self._situation(number, trainer) for number in numbers}
        episodes = self.play([situations[number] for number in numbers], trainer)
        if self._head is not None:
            self._head.note(episodes)
        output: dict[str, Any] = {
            "prompt_ids": [episode.prompt for episode in episodes],
            "completion_ids": [episode.completion for episode in episodes],
            # The importance correction compares the sampler's log-probabilities with those of the model in training.
            "logprobs": [episode.logprobs for episode in episodes] if trainer.use_vllm else None,
            "env_mask": [episode.mask for episode in episodes],
            "episode_reward": [self.reward(episode) for episode in episodes],
            "scores": [episode.scores for episode in episodes],
            "facts": [self._facts(episode) for episode in episodes],
        }
        if self._attributor is not None:
            output[CREDITS] = [self.credits(episode) for episode in episodes]
        if self._branches is not None:
            output |= self._measured(self._branches, episodes, trainer, output["facts"])
        return output

    def _measured(
        self, branches: Branches, episodes: Sequence[TokenEpisode], trainer: GRPOTrainer, facts: list[dict[str, float]]
    ) -> dict[str, Any]:
        """Returns the measured gains of all turns, and the facts with their cost."""
        sample = trainer_sample(trainer)
        gains, tokens = branches.gains(episodes, sample, lambda count: largest_count(count, trainer))
        cost = {"branch_tokens": tokens / len(episodes)}
        credits = [_by_tokens(episode, parts) for episode, parts in zip(episodes, gains, strict=True)]
        return {CREDITS: credits, "facts": [{**row, **cost} for row in facts]}

    def _situation(self, number: int, trainer: GRPOTrainer) -> Situation:
        situation = self._situations[number]
        if self._self_play is None:
            return situation
        return self._self_play.with_partner(situation, number, trainer.state.global_step)

    def play(self, situations: Sequence[Situation], trainer: GRPOTrainer) -> list[TokenEpisode]:
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

    def reward(self, episode: TokenEpisode) -> float | None:
        """Returns the reward of an episode: its scalarised scores, and the penalty for impossible answers.

        ``None`` if it has no scores: TRL then leaves it out of its group and gives it no advantage.
        """
        if episode.failure:
            return None
        return self._scalar(episode.vector) + self._penalty(episode)

    def _penalty(self, episode: TokenEpisode) -> float:
        return 0.0 if episode.valid is None else self._reward.invalid * (1 - episode.valid)

    def _facts(self, episode: TokenEpisode) -> dict[str, float]:
        parts = {} if episode.failure else {"score": self._scalar(episode.vector), "penalty": self._penalty(episode)}
        return {**parts, **_facts(episode)}

    def credits(self, episode: TokenEpisode) -> list[tuple[int, int, float]]:
        """Returns start and end of each focal turn's tokens, with the turn's reward.

        Empty for an episode without scores, or if the attributor cannot attribute it.
        """
        assert self._attributor is not None
        if episode.failure:
            return []
        parts = turn_rewards(self._attributor, episode, self._reward)
        return _by_tokens(episode, parts)


def _by_tokens(episode: TokenEpisode, parts: Mapping[int, float]) -> list[tuple[int, int, float]]:
    """Returns start and end of each focal turn's tokens, with its part."""
    return [(turn.start, turn.end, parts[turn.turn]) for turn in episode.focal if turn.turn in parts]


def check_attributable(attributor: Attributor, situations: Sequence[Situation], reward: RewardSettings) -> None:
    """Checks, before the first episode, that turns can have separate rewards.

    Raises:
        InvalidValueError: the attributor does not cover the dimension, or a task.
    """
    name = _credited_dimension(reward)
    score = SeatScore(name, 0.0, *RANGES[Dimension(name)])
    for item in situations:
        unplayed = Episode(key=item.task.id, task=item.task, rules=item.rules)
        if not attributor.applies(unplayed, score):
            raise InvalidValueError(
                field="reward.credit",
                expected=f"an attributor that can rate turns for {name} in every task",
                got=Verbatim(f"{attributor.name!r}, which cannot in task {item.task.id!r}"),
            )


def turn_rewards(attributor: Attributor, episode: TokenEpisode, reward: RewardSettings) -> dict[int, float]:
    """Returns r_t = G · A of every focal turn by index; impossible answers get the penalty.

    A score below 0 is a loss and is attributed to the turns that caused it. The result is empty if the score is
    missing: the episode then has no effect on training, unlike rewards of 0.

    Raises:
        InvalidValueError: the scalarisation is not a single dimension.
    """
    record, seat = episode.record, episode.situation.seat
    score = seat_score(record, seat, _credited_dimension(reward))
    if isinstance(score, Unattributed):
        return _without_credits(episode, score)
    base = score.base("signed")
    importance = attributor.attribute(record, seat, score, base < 0)
    if isinstance(importance, Unattributed):
        return _without_credits(episode, importance)
    parts = {turn: base * weight for turn, weight in importance.by_turn.items()}
    return {turn.turn: reward.invalid if turn.failure else parts.get(turn.turn, 0.0) for turn in episode.focal}


def _without_credits(episode: TokenEpisode, missing: Unattributed) -> dict[int, float]:
    logger.warning(
        "reward.credit: an episode of task %r without credits: %s", episode.situation.task.id, missing.reason
    )
    return {}


def _credited_dimension(reward: RewardSettings) -> str:
    """Returns the full name of the dimension whose score is divided among the turns."""
    single = Scalarisation.of(reward.scalarisation).single
    if single is None:
        raise InvalidValueError(
            "an attributor needs one dimension as scalarisation, e.g. 'goal'", field="reward.credit"
        )
    return single.value


def _facts(episode: TokenEpisode) -> dict[str, float]:
    outcome = episode.evaluation.outcome if episode.evaluation else None
    seat = episode.situation.task.seat_of[episode.situation.seat]
    facts = {
        "turns": float(len(episode.focal)),
        "too_long": float(episode.too_long),
        "unscored": float(bool(episode.failure)),
    }
    if episode.valid is not None:
        facts["valid"] = episode.valid
    if outcome is not None:
        facts |= {"agreement": float(outcome.agreed), "share": float(outcome.shares[seat])}
    return facts


def episode_reward(
    completions: Sequence[Any],
    episode_reward: Sequence[float | None],
    scores: Sequence[Mapping[str, float]],
    facts: Sequence[Mapping[str, float]],
    log_metric: Callable[[str, float], None],
    turn_credits: Sequence[Sequence[tuple[int, int, float]]] = (),
    **_: Any,
) -> list[float | None]:
    """Returns the episodes' rewards; TRL's reward function.

    Logs the turns' rewards, if there are any, the scored dimensions and the facts.
    """
    for credits in turn_credits:
        for _start, _end, credit in credits:
            log_metric("turns/credit", credit)
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
    """

    def __init__(self, make: Callable[[], Any], epoch: Callable[[], int]) -> None:
        """Creates the sampler.

        Args:
            make: returns TRL's sampler at its start.
            epoch: returns the number of complete epochs.
        """
        self._make, self._epoch = make, epoch

    def __len__(self) -> int:
        return len(self._make())

    def __iter__(self) -> Iterator[int]:
        sampler = self._make()
        for _ in range(self._epoch()):
            deque(sampler, maxlen=0)  # exhausts the order of one epoch
        return iter(sampler)


def trainer_class() -> type[GRPOTrainer]:
    """Returns TRL's trainer, extended by advantages per turn and by prompts that are read once per group."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    class SotopiaGRPOTrainer(GRPOTrainer):
        """GRPO in which the tokens of a turn get that turn's advantage, (batch, tokens), if rows have turn credits.

        Every report contains the tokens of this process since the last one: those sampled, those in the rows of the
        loss with prompts and padding, and those of the latter that were read.
        """

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._sampled, self._readers = 0, prompt_readers(self)

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            if "loss" in logs:
                logs |= {"tokens/sampled": self._sampled, **counts(self._readers)}
                self._sampled = 0
            super().log(logs, start_time)

        def _get_train_sampler(self, dataset: Any = None) -> EpochSampler:
            make = partial(super()._get_train_sampler, dataset)
            return EpochSampler(make, lambda: int(self.state.epoch or 0))

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
            self._sampled += int((output["completion_mask"] * output.get("tool_mask", 1)).sum())
            if CREDITS in inputs[0]:
                size = self.num_generations or 1
                width = output["completion_ids"].size(1)
                output["advantages"] = self._by_turn([row[CREDITS] for row in inputs], size, width)
            return output

        def _by_turn(self, credits: list[list[tuple[int, int, float]]], size: int, width: int) -> torch.Tensor:
            from accelerate.utils import gather_object

            all_credits = gather_object(credits)  # a group may be divided among processes
            start = self.accelerator.process_index * len(credits)
            rows = turn_advantages(all_credits, size, width, self.scale_rewards)  # (rows of all processes, tokens)
            return rows[start : start + len(credits)].to(self.accelerator.device)

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
        reader.tokens = reader.read = 0
    return figures if readers else {}


def turn_advantages(
    credits: Sequence[Sequence[tuple[int, int, float]]], group: int, width: int, scale: str
) -> torch.Tensor:
    """Returns advantages of shape (rows, width): a turn's reward minus the mean over all turns of its group.

    Args:
        credits: for each row, (start, end, reward) of each focal turn.
        group: the number of consecutive rows per group.
        width: the number of tokens per row, including padding.
        scale: the turns whose standard deviation divides advantages: those of the ``group`` or the ``batch``, or
            ``none``.
    """
    import torch

    advantages = torch.zeros(len(credits), width)  # (rows, width)
    rewards = torch.tensor([reward for row in credits for _, _, reward in row])  # (turns of the batch,)
    for first in range(0, len(credits), group):
        rows = range(first, first + group)
        # The baseline is the mean over turns, not over episodes as in TRL: turns are the units that have rewards, and
        # an episode with many of them counts more.
        values = torch.tensor([reward for row in rows for _, _, reward in credits[row]])  # (turns of the group,)
        if len(values) < 2:
            continue  # a single turn is its own mean, and has no standard deviation
        mean = values.mean()
        # + 1e-4: as in TRL, so that equal rewards are not divided by 0.
        spread = 1.0 if scale == "none" else (rewards if scale == "batch" else values).std() + 1e-4
        for row in rows:
            for start, end, reward in credits[row]:
                advantages[row, start:end] = (reward - mean) / spread
    return advantages
