"""A combination of several evaluators: the first one that scores a dimension, or an aggregate of all that do."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sotopia_env.evaluators.evaluator import (
    Basis,
    ComputedEvaluator,
    MemberFailedError,
    MemberResult,
    applies,
    evaluate_members,
    measures,
    recorded_scores,
    weakest,
)
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, UnknownNameError
from sotopia_env.world.episode import Episode, Evaluation, Evaluator, Score
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Task

_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
}
AGGREGATES = ("first", *_STATISTICS)
"""The ways to combine several scores of one agent on one dimension."""


class Composite:
    """Evaluators in order of precedence.

    Every score keeps its own ``source``. A member that does not apply to a task (``verified`` or ``spoken-outcome`` on
    a task without an outcome) is skipped. If a member fails, the episode is unscored, because another evaluator in its
    place would change the experiment. The evaluations of the members that ask models are recorded then, each under its
    own name, and a later call asks only those that failed. With ``strict=False``, the next member takes the place of
    one that fails, and ``comment`` gives the reason.

    Args:
        evaluators: the members, the most trusted first.
        aggregate: ``"first"`` (the first member that scored the dimension), or ``"mean"``, ``"median"`` or ``"min"``
            over all members that did.
        strict: whether a failing member makes the episode unscored.

    Raises:
        InvalidValueError: there are no members, or two have the same name.
        UnknownNameError: ``aggregate`` is not one of :data:`AGGREGATES`.
    """

    def __init__(self, evaluators: Sequence[Evaluator], aggregate: str = "first", strict: bool = True) -> None:
        if aggregate not in AGGREGATES:
            raise UnknownNameError(field="aggregate", got=aggregate, valid=AGGREGATES)
        names = [evaluator.name for evaluator in evaluators]
        if not names or len(set(names)) != len(names):
            raise InvalidValueError(field="evaluators", expected="at least one, with different names", got=names)
        self.evaluators = tuple(evaluators)
        self.aggregate = aggregate
        self.strict = strict

    @property
    def name(self) -> str:
        """``"verified+diligence"``, or ``"mean(verified+diligence)"`` with an aggregate."""
        names = "+".join(evaluator.name for evaluator in self.evaluators)
        return names if self.aggregate == "first" else f"{self.aggregate}({names})"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The aggregate, and the parameters of each member."""
        members = {evaluator.name: dict(evaluator.parameters) for evaluator in self.evaluators}
        return {"aggregate": self.aggregate, "strict": self.strict, "members": members}

    def applies(self, episode: Episode) -> bool:
        """Whether any member applies; needed if the composite is itself a member of another."""
        return bool(self._applicable(episode))

    def _applicable(self, episode: Episode) -> list[Evaluator]:
        return [member for member in self.evaluators if applies(member, episode)]

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """The dimensions that any member scores.

        The basis is that of the first member if its score is always used, else the weakest of the members' bases.
        """
        bases: dict[Dimension, list[Basis]] = {}
        for member in self.evaluators:
            for dimension, basis in measures(member, task).items():
                bases.setdefault(dimension, []).append(basis)
        if self.aggregate == "first" and self.strict:
            return {dimension: several[0] for dimension, several in bases.items()}
        return {dimension: weakest(several) for dimension, several in bases.items()}

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the combined evaluation of all members that apply, which work concurrently.

        A member that asks a model is not asked again if its scores are in the episode.

        Raises:
            MemberFailedError: a member failed and ``strict`` is true; it has the evaluations of the others.
            EvaluationError: no member scored the episode; the message gives the reason of each.
        """
        members = self._applicable(episode)
        records = {m.name: recorded_scores(m, episode) for m in members if not isinstance(m, ComputedEvaluator)}
        new = await evaluate_members([m for m in members if records.get(m.name) is None], episode)
        results = {result.member: result for result in new}
        return self._combine(episode, [results.get(m.name) or MemberResult(m.name, records[m.name]) for m in members])

    def _combine(self, episode: Episode, results: Sequence[MemberResult]) -> Evaluation:
        failures = [f"{result.member} failed: {result.failure}" for result in results if result.failure]
        if failures and self.strict:
            raise MemberFailedError("; ".join(failures), self._asked(results))
        evaluations = [result.evaluation for result in results if result.evaluation is not None]
        comments = [evaluation.comment for evaluation in evaluations if evaluation.comment]
        scores = self._scores(evaluations)
        if not scores:
            members = [result.member for result in results]
            idle = [m.name for m in self.evaluators if m.name not in members]
            reasons = [*failures, *comments, *(f"{name} does not apply to task {episode.task.id!r}" for name in idle)]
            raise EvaluationError(f"{self.name}: no member scored the episode ({'; '.join(reasons)})")
        outcomes = [evaluation.outcome for evaluation in evaluations if evaluation.outcome is not None]
        # Validation is skipped: members have validated their scores, and every agent and dimension has one score.
        return Evaluation.model_construct(
            evaluator=self.name,
            parameters=dict(self.parameters),
            dimensions=tuple({d.name: d for evaluation in evaluations for d in evaluation.dimensions}.values()),
            scores=scores,
            outcome=outcomes[0] if outcomes else None,
            comment="; ".join(comments + failures),
            answers=tuple(answer for evaluation in evaluations for answer in evaluation.answers),
            beliefs=tuple(belief for evaluation in evaluations for belief in evaluation.beliefs),
            trust=tuple(belief for evaluation in evaluations for belief in evaluation.trust),
            agreement=next((e.agreement for e in evaluations if e.agreement is not None), None),
        )

    def _asked(self, results: Sequence[MemberResult]) -> tuple[Evaluation, ...]:
        """The own evaluations of the members that ask models, to be recorded."""
        asking = {member.name: member for member in self.evaluators if not isinstance(member, ComputedEvaluator)}
        own = []
        for result in results:
            if result.member not in asking:
                continue
            if result.evaluation is not None:
                # The judges of an ensemble are not in the record.
                own.append(result.evaluation.model_copy(update={"members": ()}))
            elif result.failure:
                parameters = dict(asking[result.member].parameters)
                own.append(Evaluation(evaluator=result.member, parameters=parameters, unscored=result.failure))
        return tuple(own)

    def _scores(self, evaluations: Sequence[Evaluation]) -> tuple[Score, ...]:
        """One score for each agent and dimension that was scored, in the order of the first scores."""
        by_key: dict[tuple[str, Dimension | str], list[Score]] = {}
        for evaluation in evaluations:
            for score in evaluation.scores:
                by_key.setdefault((score.agent, score.dimension), []).append(score)
        if self.aggregate == "first":
            return tuple([scores[0] for scores in by_key.values()])
        return tuple([_aggregate(self.aggregate, scores) for scores in by_key.values()])


def _aggregate(aggregate: str, scores: Sequence[Score]) -> Score:
    # A single score keeps its source and reasoning.
    if len(scores) == 1:
        return scores[0]
    return Score(
        agent=scores[0].agent,
        dimension=scores[0].dimension,
        value=_STATISTICS[aggregate]([score.value for score in scores]),
        reasoning=" ".join(f"{score.source}: {score.value:g} ({score.reasoning})" for score in scores),
        source=f"{aggregate}({', '.join(score.source for score in scores)})",
    )
