"""Several judges on one episode, asked at the same time: their scores as one, with the spread."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sotopia_env.errors import EvaluationError, InvalidValueError, UnknownNameError, check_whole
from sotopia_env.evaluators.evaluator import Basis, MemberResult, evaluate_member, measures, weakest
from sotopia_env.evaluators.judge.question import AskingEvaluator
from sotopia_env.records import canonical_json
from sotopia_env.waiting import all_at_once
from sotopia_env.world.episode import Episode, Evaluation, Evaluator, Score
from sotopia_env.world.reward import CustomDimension, Dimension
from sotopia_env.world.scenario import Task


def majority(values: Sequence[float]) -> float:
    """Returns the most frequent value; among equally frequent ones the nearest to the median, then the lower one.

    When all differ, that is the median (the lower one of an even number).
    """
    counts, middle = Counter(values), statistics.median(values)
    most = max(counts.values())
    return min((value for value in counts if counts[value] == most), key=lambda v: (abs(v - middle), v))


_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "majority": majority,
}
ENSEMBLE_AGGREGATES = tuple(_STATISTICS)
"""Statistics that combine the scores of several judges."""

_Key = tuple[str, Dimension | str]


class Ensemble(AskingEvaluator):
    """Several judges as one evaluator.

    Every score carries its ``spread`` (largest less smallest score of the judges, in the dimension's own unit) and
    each judge's score with its reasoning. A judge that fails or leaves the episode unscored is not replaced: unless
    ``quorum`` judges answered, the episode is unscored with the reasons. In a run the judges' own evaluations are
    recorded too (:class:`~sotopia_env.evaluators.evaluator.Panel`), and a later call asks only those who are missing.

    Args:
        judges: at least two, with different names. Judges that ask the same (they differ in nothing, or in ``reasks``)
            need different ``replicate``: a response cache would give all of them one answer.
        aggregate: one of :data:`ENSEMBLE_AGGREGATES`; ``majority`` is :func:`majority`.
        quorum: how many must answer; ``None`` means all.

    Raises:
        UnknownNameError: there is no such aggregate.
        InvalidValueError: too few judges, two of one name or that ask the same, or a quorum that cannot be met.
    """

    def __init__(self, judges: Sequence[Evaluator], aggregate: str = "mean", quorum: int | None = None) -> None:
        if aggregate not in _STATISTICS:
            raise UnknownNameError(field="aggregate", got=aggregate, valid=_STATISTICS)
        names = [judge.name for judge in judges]
        _check_questions(judges)
        if len(names) < 2 or len(set(names)) != len(names):
            raise InvalidValueError(field="judges", expected="at least two, with different names", got=names)
        if quorum is not None:
            check_whole("quorum", quorum, 1, len(names))
        self.judges: Sequence[Evaluator] = tuple(judges)
        self.aggregate = aggregate
        self.quorum = len(names) if quorum is None else quorum

    @property
    def name(self) -> str:
        """``ensemble-mean(a, b)``; a quorum below all is part of it."""
        quorum = f", {self.quorum} needed" if self.quorum < len(self.judges) else ""
        return f"ensemble-{self.aggregate}({', '.join(judge.name for judge in self.judges)}{quorum})"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The aggregate, the quorum and each judge's own parameters."""
        members = {judge.name: dict(judge.parameters) for judge in self.judges}
        return {"aggregate": self.aggregate, "quorum": self.quorum, "judges": members}

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """What the first judge scores, for all must score the same, on the weakest judge's basis."""
        tables = [measures(judge, task) for judge in self.judges]
        return {d: weakest(table[d] for table in tables if d in table) for d in tables[0]}

    async def evaluate_async(self, episode: Episode) -> Evaluation:
        """Returns the judges' scores as one, or an unscored evaluation when fewer than ``quorum`` answered.

        Raises:
            EvaluationError: the judges that answered did not score the same agents and dimensions.
            BudgetExceededError: the ledger's limit is reached.
        """
        return self.combine(await all_at_once(evaluate_member(judge, episode) for judge in self.judges))

    def combine(self, results: Sequence[MemberResult]) -> Evaluation:
        """Returns the scores of judges who were asked one by one as :meth:`evaluate_async` does.

        Raises:
            EvaluationError: the judges that answered did not score the same agents and dimensions.
        """
        names = tuple(judge.name for judge in self.judges)
        failures = [f"{result.member} failed: {result.failure}" for result in results if result.evaluation is None]
        evaluations = [result.evaluation for result in results if result.evaluation is not None]
        if len(evaluations) < self.quorum:
            counts = f"{len(evaluations)} of {len(results)} judges answered, {self.quorum} needed"
            reason = "; ".join([counts, *failures])
            return Evaluation(evaluator=self.name, parameters=dict(self.parameters), members=names, unscored=reason)
        scores = self._scores(evaluations)
        return Evaluation(
            evaluator=self.name,
            parameters=dict(self.parameters),
            members=names,
            dimensions=_dimensions(evaluations),
            scores=scores,
            comment="; ".join([_widest(scores), *failures]),
        )

    def _scores(self, evaluations: Sequence[Evaluation]) -> tuple[Score, ...]:
        tables = [{(score.agent, score.dimension): score for score in e.scores} for e in evaluations]
        for evaluation, table in zip(evaluations, tables, strict=True):
            difference = set(table) ^ set(tables[0])
            if difference or not table:
                keys = ", ".join(sorted(f"{agent} {dimension}" for agent, dimension in difference)[:4]) or "nothing"
                raise EvaluationError(
                    f"{self.name}: expected all judges to score the same, {evaluations[0].evaluator} and "
                    f"{evaluation.evaluator} differ in {keys}"
                )
        return tuple(self._one(key, [table[key] for table in tables], evaluations) for key in tables[0])

    def _one(self, key: _Key, scores: Sequence[Score], evaluations: Sequence[Evaluation]) -> Score:
        values = [score.value for score in scores]
        judges = [evaluation.evaluator for evaluation in evaluations]
        return Score(
            agent=key[0],
            dimension=key[1],
            value=_STATISTICS[self.aggregate](values),
            reasoning=" ".join(f"{j}: {s.value:g} ({s.reasoning})" for j, s in zip(judges, scores, strict=True)),
            source=self.name,
            spread=max(values) - min(values),
        )

    async def close(self) -> None:
        """Closes the judges that can be closed."""
        for judge in self.judges:
            if isinstance(judge, AskingEvaluator):
                await judge.close()


def _check_questions(judges: Sequence[Evaluator]) -> None:
    questions = [
        canonical_json({key: value for key, value in judge.parameters.items() if key != "reasks"})
        for judge in judges
        if isinstance(judge, AskingEvaluator)
    ]
    if len(set(questions)) < len(questions):
        raise InvalidValueError(
            field="judges",
            expected="different ones",
            got=[judge.name for judge in judges],
            hint="judges that ask the same are told apart by replicate=1, replicate=2 and so on",
        )


def _dimensions(evaluations: Sequence[Evaluation]) -> tuple[CustomDimension, ...]:
    by_name: dict[str, CustomDimension] = {}
    for dimension in (d for evaluation in evaluations for d in evaluation.dimensions):
        if by_name.setdefault(dimension.name, dimension) != dimension:
            raise EvaluationError(f"dimension {dimension.name!r}: the judges were given different definitions of it")
    return tuple(by_name.values())


def _widest(scores: Sequence[Score]) -> str:
    widest = max(scores, key=lambda score: score.spread or 0.0)
    return f"largest spread {widest.spread or 0.0:g} ({widest.agent}, {widest.dimension})"
