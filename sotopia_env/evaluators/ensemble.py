"""An evaluator that asks several judges concurrently and combines their scores, with the spread."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sotopia_env.evaluators.evaluator import Basis, MemberResult, evaluate_members, measures, weakest
from sotopia_env.evaluators.judge.question import AskingEvaluator
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, UnknownNameError, check_whole
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.world.episode import Episode, Evaluation, Evaluator, Score
from sotopia_env.world.reward import CustomDimension, Dimension
from sotopia_env.world.scenario import Task


def majority(values: Sequence[float]) -> float:
    """Returns the most frequent value; in a tie the one nearest to the median, then the lower one.

    If all values differ, this is the median (the lower median of an even number of values).
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
"""The names of the statistics that combine the scores of several judges."""

_Key = tuple[str, Dimension | str]


class Ensemble(AskingEvaluator):
    """Several judges as one evaluator.

    Every score has a ``spread`` (the largest minus the smallest score of the judges, in the unit of the dimension), and
    its reasoning lists each judge's score and reasoning. A judge that fails or leaves the episode unscored is not
    replaced: if fewer than ``quorum`` judges answered, the episode is unscored with the reasons. In a run, the judges'
    own evaluations are recorded, too (:class:`~sotopia_env.evaluators.evaluator.JudgePanel`), and a later call asks
    only the missing judges.

    Args:
        judges: at least two judges with different names. Judges that send the same requests (they are equal except for
            ``reasks``) need different ``replicate``, because a response cache would return the same answer to all.
        aggregate: one of :data:`ENSEMBLE_AGGREGATES`; ``majority`` is :func:`majority`.
        quorum: the number of judges that must answer; ``None`` for all.

    Raises:
        UnknownNameError: ``aggregate`` is unknown.
        InvalidValueError: there are too few judges, two judges have the same name or send the same requests, or the
            quorum cannot be met.
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
        """``ensemble-mean(a, b)``, with the quorum if not all judges must answer."""
        quorum = f", {self.quorum} needed" if self.quorum < len(self.judges) else ""
        return f"ensemble-{self.aggregate}({', '.join(judge.name for judge in self.judges)}{quorum})"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The aggregate, the quorum, and the parameters of each judge."""
        members = {judge.name: dict(judge.parameters) for judge in self.judges}
        return {"aggregate": self.aggregate, "quorum": self.quorum, "judges": members}

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """The dimensions of the first judge (all must score the same), each with the weakest basis of any judge."""
        bases = [measures(judge, task) for judge in self.judges]
        return {d: weakest(basis[d] for basis in bases if d in basis) for d in bases[0]}

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the combined scores, or an unscored evaluation if fewer than ``quorum`` judges answered.

        Raises:
            EvaluationError: the judges that answered did not score the same agents and dimensions.
            BudgetExceededError: the ledger's limit is reached.
        """
        return self.combine(await evaluate_members(self.judges, episode))

    def combine(self, results: Sequence[MemberResult]) -> Evaluation:
        """Returns the combined scores, as :meth:`evaluate` does, from the results of all judges.

        Raises:
            EvaluationError: the judges that answered did not score the same agents and dimensions.
        """
        names = tuple(judge.name for judge in self.judges)
        failures = [f"{result.member} failed: {result.failure}" for result in results if result.evaluation is None]
        evaluations = [result.evaluation for result in results if result.evaluation is not None]
        # The quorum is fixed before the run, so that judges that happen to fail do not change the measure.
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
        by_key = [{(score.agent, score.dimension): score for score in e.scores} for e in evaluations]
        # A mean over fewer judges for some dimensions would look like a mean over all.
        for evaluation, own in zip(evaluations, by_key, strict=True):
            difference = set(own) ^ set(by_key[0])
            if difference or not own:
                keys = ", ".join(sorted(f"{agent} {dimension}" for agent, dimension in difference)[:4]) or "nothing"
                raise EvaluationError(
                    f"{self.name}: expected all judges to score the same, {evaluations[0].evaluator} and "
                    f"{evaluation.evaluator} differ in {keys}"
                )
        return tuple(self._one(key, [own[key] for own in by_key], evaluations) for key in by_key[0])

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
    # `reasks` does not change the first request, which a response cache would answer identically.
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
            hint="distinguish judges with the same settings by replicate=1, replicate=2 and so on",
        )


def _dimensions(evaluations: Sequence[Evaluation]) -> tuple[CustomDimension, ...]:
    by_name: dict[str, CustomDimension] = {}
    for dimension in (d for evaluation in evaluations for d in evaluation.dimensions):
        if by_name.setdefault(dimension.name, dimension) != dimension:
            raise EvaluationError(f"dimension {dimension.name!r}: the judges have different definitions of it")
    return tuple(by_name.values())


def _widest(scores: Sequence[Score]) -> str:
    widest = max(scores, key=lambda score: score.spread or 0.0)
    return f"largest spread {widest.spread or 0.0:g} ({widest.agent}, {widest.dimension})"
