"""An evaluator that computes GOAL and FIN exactly from the moves of an episode."""

from __future__ import annotations

from collections.abc import Mapping

from sotopia_env.evaluators.evaluator import Basis, ComputedEvaluator
from sotopia_env.foundation.errors import EvaluationError, InvalidTaskError
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.world.episode import VERIFIED, Episode, Evaluation, Score
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.reward import RANGES, Dimension
from sotopia_env.world.scenario import Task

_FACTORS = ((Dimension.GOAL, 10.0), (Dimension.FINANCIAL_AND_MATERIAL_BENEFITS, 5.0))
"""Score = factor × share, clipped to the dimension's range: the best outcome gets the top of the range, no agreement
gets 0, and on FIN an agreement that is worse than no agreement gets a negative score."""


class VerifiedOutcome(ComputedEvaluator):
    """Computes the outcome from the moves and scores every agent's share of its possible gain.

    An agent's *share* is (payoff - no_agreement) / (best - no_agreement). ``best`` is its best payoff over the outcomes
    in which no seat whose assent is needed is worse off than without an agreement. The share is 0 without an agreement,
    1 at the best outcome, and negative if the agent agreed to something worse than no agreement.

    * GOAL = 10 × share, clipped to [0, 10];
    * FIN = 5 × share, clipped to [-5, 5].

    Words change neither. The other five dimensions are not measured: a judge can score them beside the outcome
    (``verified+judge:MODEL``, :class:`sotopia_env.evaluators.composite.Composite`).
    """

    name = VERIFIED

    def applies(self, episode: Episode) -> bool:
        """Whether the task has an outcome that can be verified."""
        return episode.task.scenario.outcome is not None

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """GOAL and FIN for a task with an outcome; empty for other tasks."""
        return {} if task.scenario.outcome is None else {dimension: "verified" for dimension, _ in _FACTORS}

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns GOAL and FIN for every agent, and the outcome itself.

        Raises:
            EvaluationError: the task has no outcome, or more outcomes than can be counted exactly.
        """
        task = episode.task
        if task.scenario.outcome is None:
            raise EvaluationError(
                f"verified: task {task.id!r} has no outcome, so no move measures it; a judge can score it "
                "(evaluator 'judge:MODEL')"
            )
        try:
            outcome = outcome_of(task, episode.plain_turns)
        except InvalidTaskError as error:
            raise EvaluationError(f"{self.name}: {error}") from error
        scores = share_scores(task, outcome, self.name)
        return Evaluation(evaluator=self.name, parameters=dict(self.parameters), scores=scores, outcome=outcome)


def share_scores(task: Task, outcome: OutcomeResult, source: str) -> tuple[Score, ...]:
    """Returns GOAL and FIN of every agent from its share of the possible gain (see :class:`VerifiedOutcome`)."""
    return tuple(
        Score(
            agent=agent,
            dimension=dimension,
            value=value,
            reasoning=f"It got {share:.0%} of what it could gain: {outcome.reason}",
            source=source,
        )
        for agent, share in zip(task.agents, outcome.shares, strict=True)
        for dimension, value in scores_of_share(share).items()
    )


def scores_of_share(share: float) -> dict[Dimension, float]:
    """Returns GOAL and FIN for a share of the possible gain (see :class:`VerifiedOutcome`)."""
    return {
        dimension: min(max(factor * share, RANGES[dimension][0]), RANGES[dimension][1])
        for dimension, factor in _FACTORS
    }
