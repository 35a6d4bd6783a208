"""The base of evaluators without a model, and the protocols and results of members of combined evaluators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.world.episode import Episode, Evaluation, Evaluator
from sotopia_env.world.reward import DIMENSIONS, CustomDimension, Dimension
from sotopia_env.world.scenario import Task

Basis = Literal["verified", "elicited", "judged"]
"""The basis of a score: moves, what policies answered to probes compared with the truth, or a judge's opinion."""
_FROM_WEAKEST: tuple[Basis, ...] = ("judged", "elicited", "verified")


class ComputedEvaluator:
    """Base of evaluators that compute scores without a model: no parameters, and every episode can be scored.

    Attributes:
        custom: the dimensions beyond the seven that it scores.
    """

    custom: tuple[CustomDimension, ...] = ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that changes the scores; empty unless a subclass overrides it."""
        return {}

    def applies(self, episode: Episode) -> bool:
        """Whether the evaluator can score this kind of episode; not applying is different from failing."""
        return True

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the evaluation of an episode.

        Raises:
            EvaluationError: the episode cannot be scored by this evaluator.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class MemberResult:
    """The result of one of several evaluators: an evaluation, or the reason of its failure.

    Attributes:
        member: the name of the evaluator.
        evaluation: the evaluation with scores; ``None`` if the evaluator failed, or does not apply to the task.
        failure: why the evaluator failed; empty otherwise.
    """

    member: str
    evaluation: Evaluation | None = None
    failure: str = ""

    @classmethod
    def of(cls, member: str, evaluation: Evaluation) -> MemberResult:
        """Returns the result with this evaluation; an unscored evaluation is a failure."""
        # An empty failure would read as success.
        if evaluation.unscored is not None:
            return cls(member, failure=evaluation.unscored or "unscored")
        return cls(member, evaluation)


class MemberFailedError(EvaluationError):
    """A member of a combined evaluator failed, so that there is no combined evaluation.

    Attributes:
        evaluations: the own evaluations of members that ask models: the scores of those that answered, which were paid
            for, and an unscored evaluation with the reason for each one that failed.
    """

    def __init__(self, message: str, evaluations: tuple[Evaluation, ...]) -> None:
        """Stores the message and the evaluations to record."""
        super().__init__(message)
        self.evaluations = evaluations


class NothingMeasuredError(EvaluationError):
    """The episode has nothing that the evaluator measures; the other members of a combined evaluator still count."""


@runtime_checkable
class Selective(Protocol):
    """An evaluator of certain episodes only, such as those of tasks with an outcome."""

    def applies(self, episode: Episode) -> bool:
        """Whether the evaluator can score this kind of episode; not applying is different from failing."""
        ...


@runtime_checkable
class Declaring(Protocol):
    """An evaluator that declares before an episode which of the seven dimensions it will score."""

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """Returns the dimensions that are scored in episodes of ``task``, each with the basis of its scores."""
        ...


@runtime_checkable
class Customised(Protocol):
    """An evaluator whose dimensions beyond the seven depend on the task."""

    def custom_in(self, task: Task) -> tuple[CustomDimension, ...]:
        """Returns the dimensions beyond the seven that are scored in episodes of ``task``."""
        ...


@runtime_checkable
class JudgePanel(Evaluator, Protocol):
    """An evaluator that combines several judges, and whose judges' own evaluations are recorded, too.

    If one judge fails, the verdicts of the others, which were paid for, are in the record for the next call.
    """

    @property
    def judges(self) -> Sequence[Evaluator]:
        """The judges, with different names."""
        ...

    def combine(self, results: Sequence[MemberResult]) -> Evaluation:
        """Returns one evaluation from the judges' results, given in the order of the judges.

        Its ``members`` are the names of the judges.
        """
        ...


def applies(member: Evaluator, episode: Episode) -> bool:
    """Whether ``member`` can score this kind of episode; true for evaluators that are not :class:`Selective`."""
    return member.applies(episode) if isinstance(member, Selective) else True


def measures(evaluator: Evaluator, task: Task) -> Mapping[Dimension, Basis]:
    """Returns the dimensions that ``evaluator`` scores in episodes of ``task``, with their bases.

    An evaluator that is not :class:`Declaring` is assumed to judge all seven.
    """
    return evaluator.measures(task) if isinstance(evaluator, Declaring) else dict.fromkeys(DIMENSIONS, "judged")


def custom_dimensions(evaluator: Evaluator, task: Task) -> tuple[CustomDimension, ...]:
    """Returns the dimensions beyond the seven that an evaluator and its members score in episodes of ``task``.

    An evaluator that is not :class:`Customised` scores those in its attribute ``custom``, if it has one.
    """
    own = evaluator.custom_in(task) if isinstance(evaluator, Customised) else getattr(evaluator, "custom", ())
    return (*own, *(dimension for member in members_of(evaluator) for dimension in custom_dimensions(member, task)))


def members_of(evaluator: Evaluator) -> Sequence[Evaluator]:
    """Returns the evaluators that a combined evaluator combines; empty for others."""
    members: Sequence[Evaluator] = getattr(evaluator, "evaluators", getattr(evaluator, "judges", ()))
    return members


def recorded_scores(member: Evaluator, episode: Episode) -> Evaluation | None:
    """Returns the scores of an evaluator with these parameters that are in the episode; ``None`` without any."""
    recorded = episode.evaluation(member.name)
    if recorded is None or recorded.unscored is not None:
        return None
    # Records are JSON, in which a tuple is a list.
    same = canonical_json(recorded.parameters) == canonical_json(dict(member.parameters))
    return recorded if same else None


def weakest(bases: Iterable[Basis]) -> Basis:
    """Returns the basis of a number that combines several: that of its weakest part, judged before elicited."""
    return min(bases, key=_FROM_WEAKEST.index, default="verified")


async def evaluate_members(members: Iterable[Evaluator], episode: Episode) -> list[MemberResult]:
    """Returns the results of several evaluators, which work concurrently; a failure does not cancel the others."""
    return await all_at_once(_evaluate_member(member, episode) for member in members)


async def _evaluate_member(member: Evaluator, episode: Episode) -> MemberResult:
    try:
        return MemberResult.of(member.name, await member.evaluate(episode))
    except NothingMeasuredError as error:
        # Not a failure: there is no score that another evaluator would have to stand in for.
        return MemberResult(member.name, Evaluation(evaluator=member.name, comment=str(error)))
    except EvaluationError as error:
        return MemberResult(member.name, failure=str(error))
