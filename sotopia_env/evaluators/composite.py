"""Several evaluators as one: the first that scores a dimension wins, or a declared aggregate of all that do."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.errors import EvaluationError, InvalidValueError, UnknownNameError, name_hint
from sotopia_env.evaluators.evaluator import ComputedEvaluator
from sotopia_env.world.episode import Evaluation, Evaluator, Score, Transcript
from sotopia_env.world.reward import Dimension

_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
}
AGGREGATES = ("first", *_STATISTICS)
"""How several scores of one agent on one dimension become one."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What one member said: an evaluation, or why it failed; neither if it does not apply to the task."""

    member: str
    evaluation: Evaluation | None = None
    failure: str = ""


class Composite:
    """Evaluators in order of precedence.

    Every score keeps the ``source`` that gave it. A member that does not apply to a task (``verified`` on a task
    without an outcome) is passed over. When a member fails, the episode is unscored: another evaluator in its place
    would be another experiment. Only ``strict=False`` lets the next one step in, and keeps the reason in ``comment``.

    Args:
        evaluators: the members, the most trusted first.
        aggregate: ``"first"`` (the first member that scored the dimension), or ``"mean"``, ``"median"`` or ``"min"``
            over all that did.
        strict: whether a failing member makes the episode unscored.

    Raises:
        InvalidValueError: there is no member, or two have the same name.
        UnknownNameError: ``aggregate`` is not one of :data:`AGGREGATES`.
    """

    def __init__(self, evaluators: Sequence[Evaluator], aggregate: str = "first", strict: bool = True) -> None:
        if aggregate not in AGGREGATES:
            raise UnknownNameError(f"aggregate: {name_hint(aggregate, AGGREGATES)}")
        names = [evaluator.name for evaluator in evaluators]
        if not names or len(set(names)) != len(names):
            raise InvalidValueError(f"evaluators: expected at least one, with different names, got {names}")
        self.evaluators = tuple(evaluators)
        self.aggregate = aggregate
        self.strict = strict

    @property
    def name(self) -> str:
        """``"verified+rules"``, or ``"mean(verified+rules)"`` with an aggregate."""
        joined = "+".join(evaluator.name for evaluator in self.evaluators)
        return joined if self.aggregate == "first" else f"{self.aggregate}({joined})"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The aggregate and each member's own parameters."""
        members = {evaluator.name: dict(evaluator.parameters) for evaluator in self.evaluators}
        return {"aggregate": self.aggregate, "strict": self.strict, "members": members}

    def evaluate(self, transcript: Transcript) -> Evaluation:
        """Returns the combined evaluation.

        Raises:
            EvaluationError: no member scored the transcript (the message gives each one's reason), or, if ``strict``,
                one of them failed.
        """
        verdicts = []
        for member in self.evaluators:
            try:
                verdicts.append(
                    _verdict(member.name, member.evaluate(transcript) if _applies(member, transcript) else None)
                )
            except EvaluationError as error:
                verdicts.append(_Verdict(member.name, failure=str(error)))
        return self._combine(transcript, verdicts)

    async def evaluate_async(self, transcript: Transcript) -> Evaluation:
        """Returns what :meth:`evaluate` returns, with all members waiting at the same time."""
        verdicts = await asyncio.gather(*(_ask(member, transcript) for member in self.evaluators))
        return self._combine(transcript, verdicts)

    def _combine(self, transcript: Transcript, verdicts: Sequence[_Verdict]) -> Evaluation:
        failures = [f"{verdict.member} failed: {verdict.failure}" for verdict in verdicts if verdict.failure]
        if failures and self.strict:
            raise EvaluationError("; ".join(failures))
        given = [verdict.evaluation for verdict in verdicts if verdict.evaluation is not None]
        scores = self._scores(given)
        if not scores:
            idle = [f"{v.member} does not apply to task {transcript.task.id!r}" for v in verdicts if not v.failure]
            raise EvaluationError(f"{self.name}: no member scored the episode ({'; '.join(failures + idle)})")
        outcomes = [evaluation.outcome for evaluation in given if evaluation.outcome is not None]
        comments = [evaluation.comment for evaluation in given if evaluation.comment]
        return Evaluation(
            evaluator=self.name,
            parameters=dict(self.parameters),
            dimensions=tuple({d.name: d for evaluation in given for d in evaluation.dimensions}.values()),
            scores=scores,
            outcome=outcomes[0] if outcomes else None,
            comment="; ".join(comments + failures),
        )

    def _scores(self, evaluations: Sequence[Evaluation]) -> tuple[Score, ...]:
        """One score for each agent and dimension that anybody scored, in the order they were first scored."""
        found: dict[tuple[str, Dimension | str], list[Score]] = {}
        for evaluation in evaluations:
            for score in evaluation.scores:
                found.setdefault((score.agent, score.dimension), []).append(score)
        if self.aggregate == "first":
            return tuple([scores[0] for scores in found.values()])
        return tuple([_aggregated(self.aggregate, scores) for scores in found.values()])


def _applies(member: Evaluator, transcript: Transcript) -> bool:
    return member.applies(transcript) if isinstance(member, ComputedEvaluator) else True


async def _ask(member: Evaluator, transcript: Transcript) -> _Verdict:
    try:
        return _verdict(member.name, await member.evaluate_async(transcript) if _applies(member, transcript) else None)
    except EvaluationError as error:
        return _Verdict(member.name, failure=str(error))


def _verdict(member: str, evaluation: Evaluation | None) -> _Verdict:
    if evaluation is not None and evaluation.unscored is not None:
        return _Verdict(member, failure=evaluation.unscored or "unscored")
    return _Verdict(member, evaluation)


def _aggregated(aggregate: str, scores: Sequence[Score]) -> Score:
    if len(scores) == 1:
        return scores[0]
    return Score(
        agent=scores[0].agent,
        dimension=scores[0].dimension,
        value=_STATISTICS[aggregate]([score.value for score in scores]),
        reasoning=" ".join(f"{score.source}: {score.value:g} ({score.reasoning})" for score in scores),
        source=f"{aggregate}({', '.join(score.source for score in scores)})",
    )


__all__ = ["AGGREGATES", "Composite"]
