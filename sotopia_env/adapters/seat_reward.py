"""The reward of a seat or the reason why it has none: the one record that adapters translate for their hosts.

Beside it, the rewards of the seat's single turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, get_args

from sotopia_env.envs.episode_reward import EpisodeReward, Payment
from sotopia_env.evaluators.evaluator import members_of
from sotopia_env.evaluators.probes.evaluator import FactsEvaluator
from sotopia_env.evaluators.turn_rewards import belief_rewards, is_determined, standing_rewards
from sotopia_env.foundation.errors import EvaluationError, UnknownNameError
from sotopia_env.world.answers import Belief
from sotopia_env.world.episode import Episode, Evaluator
from sotopia_env.world.reward import DIMENSIONS

TurnRewardKind = Literal["standing", "belief"]
"""What the rewards of turns are changes of: the seat's standing, or what the others believe."""
TURN_REWARD_KINDS: tuple[TurnRewardKind, ...] = get_args(TurnRewardKind)


@dataclass(frozen=True, slots=True)
class SeatReward:
    """The reward of a seat for the episode as it is now.

    Attributes:
        value: the reward; ``None`` without one, which is never 0 for a host: TRL gets ``None``, Inspect NaN, and a host
            that has no word for it the exception.
        unscored: why there is no reward: the episode goes on, or a partner or the evaluator failed; ``None`` with one.
        scores: the scores in native ranges by dimension, without those that nothing measured; empty without a reward.
    """

    value: float | None = None
    unscored: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, payment: Payment) -> Self:
        """Returns the record of a payment."""
        scores = zip(DIMENSIONS, payment.vector.tolist(), payment.measured.tolist(), strict=True)
        measured = {dimension.value: score for dimension, score, is_measured in scores if is_measured}
        return cls(float(payment.reward), scores=measured)

    def paid(self) -> float:
        """Returns the reward, for hosts that take a number and nothing else.

        Raises:
            EvaluationError: there is no reward.
        """
        if self.value is None:
            raise EvaluationError(f"no reward: {self.unscored}")
        return self.value


def check_kind(kind: str) -> TurnRewardKind:
    """Returns the kind.

    Raises:
        UnknownNameError: it is not one of :data:`TURN_REWARD_KINDS`.
    """
    if kind not in TURN_REWARD_KINDS:
        raise UnknownNameError(field="turns", got=kind, valid=TURN_REWARD_KINDS)
    return kind


async def beliefs_so_far(evaluator: Evaluator | None, episode: Episode) -> tuple[Belief, ...]:
    """Returns what the seats believe before and after every turn of an episode that goes on; empty if nobody is asked.

    Only the member of the evaluator that asks is used, not those that judge.

    Raises:
        EvaluationError: a policy could not be asked.
    """
    members = () if evaluator is None else (evaluator, *members_of(evaluator))
    probing = [member for member in members if isinstance(member, FactsEvaluator) and member.probe == "turns"]
    return (await probing[0].evaluate(episode)).beliefs if probing else ()


def rewards_of_turns(
    episode: Episode, agent: str, kind: TurnRewardKind, payment: EpisodeReward, beliefs: Sequence[Belief] = ()
) -> tuple[float, ...] | None:
    """Returns the rewards of a seat's turns in their order; ``None`` if they are not known.

    * ``standing``: the change of what the seat can obtain at once, in the unit of its reward
      (:func:`~sotopia_env.evaluators.turn_rewards.standing_rewards`); not known if moves do not determine the reward,
      as in a task without an outcome.
    * ``belief``: the change of what the others believe
      (:func:`~sotopia_env.evaluators.turn_rewards.belief_rewards`); before the end only by ``beliefs``.

    Args:
        episode: the episode so far.
        agent: the seat.
        kind: what the rewards are changes of.
        payment: how the reward of the episode is computed.
        beliefs: those of :func:`beliefs_so_far` for this episode, as long as it is not evaluated.

    Raises:
        InvalidValueError: ``kind`` is ``belief``, and no other seat's beliefs are recorded.
    """
    if kind == "belief":
        is_measured = bool(episode.evaluations) or any(belief.turns == len(episode.turns) for belief in beliefs)
        source = None if episode.evaluations else beliefs
        return belief_rewards(episode, agent, source).values if is_measured else None
    scalarisation = payment.scalarisation
    if payment.basis != "verified" or scalarisation is None or not is_determined(scalarisation):
        return None
    return standing_rewards(episode, agent, scalarisation).values
