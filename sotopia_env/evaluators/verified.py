"""GOAL and FIN from the task's own outcome specification: exact, and no opinion in it."""

from __future__ import annotations

from sotopia_env import tasks
from sotopia_env.errors import EvaluationError, InvalidTaskError, UnknownNameError
from sotopia_env.evaluators.evaluator import ComputedEvaluator
from sotopia_env.world.episode import Evaluation, OutcomeResult, Score, Transcript
from sotopia_env.world.reward import RANGES, Dimension
from sotopia_env.world.scenario import Task

_FACTORS = ((Dimension.GOAL, 10.0), (Dimension.FINANCIAL_AND_MATERIAL_BENEFITS, 5.0))
"""Score = factor × share, clipped to the dimension's range: the best outcome earns the top of the range, none earns 0,
and on FIN an agreement worse than none costs."""

_CHECKED = ("verified", "checked")


class VerifiedOutcome(ComputedEvaluator):
    """Reads the outcome from the transcript with the task family's own reader and scores every agent's share of it.

    An agent's *share* is (payoff - disagreement) / (best - disagreement): 0 without an agreement, 1 at the best it
    could hope for, below 0 when it agreed to something worse than nothing.

    * GOAL = 10 × share, clipped to [0, 10];
    * FIN = 5 × share, clipped to [-5, 5].

    The other five dimensions are left to others (see :class:`sotopia_env.evaluators.composite.Composite`).
    """

    name = "verified"

    def applies(self, transcript: Transcript) -> bool:
        """Whether the task has an outcome that can be verified."""
        return transcript.task.scenario.outcome is not None

    def evaluate(self, transcript: Transcript) -> Evaluation:
        """Returns GOAL and FIN for every agent, and the outcome itself.

        Raises:
            EvaluationError: the task has no outcome specification, one of a family that does not exist, or one that
                the family cannot read.
        """
        task = transcript.task
        outcome = _outcome(task, transcript)
        if len(outcome.shares) != len(task.agents):
            raise EvaluationError(
                f"{self.name}: expected {len(task.agents)} shares for task {task.id!r}, got {len(outcome.shares)}"
            )
        scores = tuple(
            Score(
                agent=agent,
                dimension=dimension,
                value=min(max(factor * share, RANGES[dimension][0]), RANGES[dimension][1]),
                reasoning=f"It got {share:.0%} of what it could gain: {outcome.reason}",
                source=self.name,
            )
            for agent, share in zip(task.agents, outcome.shares, strict=True)
            for dimension, factor in _FACTORS
        )
        return Evaluation(evaluator=self.name, parameters=dict(self.parameters), scores=scores, outcome=outcome)


def _outcome(task: Task, transcript: Transcript) -> OutcomeResult:
    spec = task.scenario.outcome
    if spec is None:
        raise EvaluationError(
            f"verified: task {task.id!r} has no outcome specification, so there is nothing to verify; "
            "use an evaluator that judges the transcript, such as 'rules'"
        )
    try:
        family = tasks.family(spec.family)
    except UnknownNameError as error:
        raise EvaluationError(f"verified: task {task.id!r}: {error}") from error
    _check(task)
    return family.read(task, transcript.turns)


def _check(task: Task) -> None:
    """Checks a task once: it may come from anywhere, not only from the families and from files, which check it."""
    if _CHECKED in task.memo:
        return
    try:
        tasks.check(task)
    except InvalidTaskError as error:
        raise EvaluationError(f"verified: {error}") from error
    task.memo[_CHECKED] = True
