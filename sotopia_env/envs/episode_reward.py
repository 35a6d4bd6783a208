"""The definition of an episode's reward, fixed before its first turn: evaluator, scalarisation, kind of evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from sotopia_env.evaluators.evaluator import Basis, measures, weakest
from sotopia_env.evaluators.verified import VerifiedOutcome
from sotopia_env.foundation.errors import EvaluationError, InvalidTaskError, InvalidValueError
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.world.episode import Evaluation, Evaluator
from sotopia_env.world.outcome import outcome_at
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import DIMENSIONS, Dimension, RewardVector, Scalarisation
from sotopia_env.world.scenario import Task

_WAYS_OUT = (
    "name a judge, as in evaluator='verified+judge:MODEL', or play tasks with an outcome, such as task='bargaining'"
)


class Payment(NamedTuple):
    """An agent's payment at the end.

    Attributes:
        reward: the scalar, or the vector of an environment with vector rewards.
        vector: native scores, float32, shape (7,); 0 where ``measured`` is false, because PettingZoo's and MOMAland's
            checks compare infos by ``==``, which NaN fails.
        measured: bool, shape (7,): whether the dimension has a score.
    """

    reward: RewardVector | float
    vector: RewardVector
    measured: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EpisodeReward:
    """The reward of an episode of one task.

    Attributes:
        evaluator: the evaluator that scores the episode.
        scalarisation: how the reward is computed; ``None`` for the vector.
        bases: the dimensions that the evaluator scores in the task, as far as it says so, each with its evidence:
            moves or a judge.
    """

    evaluator: Evaluator
    scalarisation: Scalarisation | None
    bases: Mapping[Dimension, Basis]

    @classmethod
    def of(
        cls, task: Task, evaluator: Evaluator | None, scalarisation: Scalarisation | None, vector: bool = False
    ) -> Self:
        """Returns the reward, with defaults by task: the verified GOAL in [0, 1] where it has an outcome.

        Args:
            task: the task to play.
            evaluator: the evaluator; ``None`` for the moves, which need a task with an outcome.
            scalarisation: the number to pay; ``None`` for GOAL mapped to [0, 1] where it is verified or not all seven
                dimensions are scored, and their mean elsewhere.
            vector: whether all seven scores are paid.

        Raises:
            InvalidValueError: nothing measures the reward in this task. The message names the two ways out: a judge and
                another task.
        """
        if evaluator is None:
            evaluator = VerifiedOutcome()
        bases = measures(evaluator, task)
        if vector:
            scalarisation = None
        elif scalarisation is None:
            # The mean is the default only where all seven dimensions are scored, which takes a judge.
            verified = bases.get(Dimension.GOAL) == "verified"
            by_goal = verified or len(bases) < len(DIMENSIONS)
            scalarisation = Scalarisation(weights={Dimension.GOAL: 1.0}) if by_goal else Scalarisation()
        reward = cls(evaluator, scalarisation, bases)
        reward._check(task)
        return reward

    def _check(self, task: Task) -> None:
        if self.scalarisation is not None and self.scalarisation.share:
            if task.scenario.outcome is None:
                raise InvalidValueError(
                    f"'share' expects tasks with an outcome, and task {task.id!r} has none",
                    field="scalarisation",
                    hint=_WAYS_OUT,
                )
            return
        scored = ", ".join(d.value for d in self.bases) or "none of the seven"
        missing = [d.value for d in self._dimensions if d not in self.bases]
        if missing or not self.bases:
            reward = "the vector" if self.scalarisation is None else f"scalarisation {str(self.scalarisation)!r}"
            raise InvalidValueError(
                f"{reward} needs {', '.join(missing) or 'a score'}, and {self.evaluator.name!r} scores {scored} in "
                f"task {task.id!r}",
                field="evaluator",
                hint=_WAYS_OUT,
            )

    @property
    def _dimensions(self) -> tuple[Dimension, ...]:
        """The dimensions without which nothing can be paid; a vector needs none of them."""
        return () if self.scalarisation is None else self.scalarisation.dimensions

    @property
    def info(self) -> dict[str, str]:
        """Texts for ``infos``: ``evaluator``, ``scalarisation`` and ``basis``."""
        name = "vector" if self.scalarisation is None else str(self.scalarisation)
        return {"evaluator": self.evaluator.name, "scalarisation": name, "basis": self.basis}

    @property
    def basis(self) -> Basis:
        """The evidence of the weakest part of the reward."""
        if self.scalarisation is not None and self.scalarisation.share:
            return "verified"
        # A vector pays every dimension that has a score.
        paid = self._dimensions or tuple(self.bases)
        return weakest(self.bases[dimension] for dimension in paid)

    async def pay(self, table: Table) -> dict[str, Payment]:
        """Evaluates the episode as it is now, and returns each agent's payment.

        Raises:
            EvaluationError: the evaluation is unscored, or lacks a score or the share that the reward needs.
            BudgetExceededError: a model's budget is spent.
            ModelRefusedError: a model refuses every request.
        """
        evaluation = await table.evaluate(self.evaluator)
        return {agent: self._payment(table, evaluation, agent) for agent in table.task.agents}

    def _payment(self, table: Table, evaluation: Evaluation, agent: str) -> Payment:
        vector = evaluation.vector(agent, self._dimensions)
        scores = evaluation.by_agent.get(agent, {})
        measured = np.array([d in scores for d in DIMENSIONS], dtype=np.bool_)
        if self.scalarisation is None:
            if not any(d in scores for d in DIMENSIONS):
                raise EvaluationError(f"{evaluation.evaluator}: no score for {agent} on any dimension")
            return Payment(vector, vector, measured)
        reward = _share(table, agent) if self.scalarisation.share else self.scalarisation(vector)
        return Payment(reward, vector, measured)


def _share(table: Table, agent: str) -> float:
    try:
        return outcome_on(table).shares[table.task.seat_of[agent]]
    except InvalidTaskError as error:
        raise EvaluationError(f"scalarisation: no share of the outcome: {error}") from error


def outcome_on(table: Table) -> OutcomeResult:
    """Returns the outcome of the moves so far: the latest evaluation's, if it has one.

    Raises:
        InvalidTaskError: the task has no outcome, or more outcomes than can be counted exactly.
    """
    state, evaluation = table.state, table.evaluation
    if evaluation is not None and evaluation.outcome is not None:
        return evaluation.outcome
    turns = len(state.turns) if state.settled_after is None else state.settled_after
    return outcome_at(state.task, state.table, turns)
