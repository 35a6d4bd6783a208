"""Base of evaluators without a model, and the members of combined evaluators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from sotopia_env.errors import EvaluationError
from sotopia_env.world.episode import Episode, Evaluation, Evaluator
from sotopia_env.world.reward import DIMENSIONS, Dimension
from sotopia_env.world.scenario import Task

Basis = Literal["verified", "judged", "counted"]
"""What a score rests on: moves, somebody's opinion, or a count of words, which measures no social skill."""
_BASES: tuple[Basis, ...] = ("verified", "judged", "counted")


class ComputedEvaluator:
    """Base of evaluators that wait for nothing: ``evaluate_async`` is ``evaluate``."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that changes the scores; nothing, unless a subclass says otherwise."""
        return {}

    def applies(self, episode: Episode) -> bool:
        """Whether the episode is of a kind this evaluator scores; one that does not apply has not failed."""
        return True

    def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the evaluation of a episode.

        Raises:
            EvaluationError: the episode cannot be scored by this evaluator.
        """
        raise NotImplementedError

    async def evaluate_async(self, episode: Episode) -> Evaluation:
        """Returns what :meth:`evaluate` returns; a computation of microseconds has nothing to wait for."""
        return self.evaluate(episode)


@dataclass(frozen=True, slots=True)
class MemberResult:
    """The result of one of several evaluators: an evaluation, or why there is none.

    Attributes:
        member: name of the evaluator.
        evaluation: with scores; ``None`` if it failed, or does not apply to the task.
        failure: why it failed; empty otherwise.
    """

    member: str
    evaluation: Evaluation | None = None
    failure: str = ""

    @classmethod
    def of(cls, member: str, evaluation: Evaluation) -> MemberResult:
        """Returns the result that an evaluation is: a failure if it is unscored."""
        if evaluation.unscored is not None:
            return cls(member, failure=evaluation.unscored or "unscored")
        return cls(member, evaluation)


@runtime_checkable
class Selective(Protocol):
    """An evaluator of certain transcripts only, such as those of tasks with an outcome."""

    def applies(self, episode: Episode) -> bool:
        """Whether the episode is of a kind this evaluator scores; one that does not apply has not failed."""
        ...


@runtime_checkable
class Declaring(Protocol):
    """An evaluator that says before an episode which of the seven dimensions it will score."""

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """Returns the dimensions scored in episodes of ``task``, each with what its scores rest on."""
        ...


@runtime_checkable
class Panel(Evaluator, Protocol):
    """An evaluator of several judges, whose evaluations stand in the record beside the one that combines them.

    So a judge's verdict that was paid for is there for the next call, whatever becomes of the others'.
    """

    @property
    def judges(self) -> Sequence[Evaluator]:
        """The judges, with different names."""
        ...

    def combine(self, results: Sequence[MemberResult]) -> Evaluation:
        """Returns one evaluation of the judges' results, in the order of the judges; it names them as ``members``."""
        ...


def applies(member: Evaluator, episode: Episode) -> bool:
    """Whether ``member`` scores transcripts of this kind; evaluators that do not say so score all."""
    return member.applies(episode) if isinstance(member, Selective) else True


def measures(evaluator: Evaluator, task: Task) -> Mapping[Dimension, Basis]:
    """Returns what ``evaluator`` scores in episodes of ``task``; all seven, as a judge, unless it says otherwise."""
    return evaluator.measures(task) if isinstance(evaluator, Declaring) else dict.fromkeys(DIMENSIONS, "judged")


def weakest(bases: Iterable[Basis]) -> Basis:
    """Returns what a number rests on that is made of several: ``counted`` before ``judged`` before ``verified``."""
    return max(bases, key=_BASES.index)


async def evaluate_member(member: Evaluator, episode: Episode) -> MemberResult:
    """Evaluates a episode with one of several evaluators."""
    try:
        return MemberResult.of(member.name, await member.evaluate_async(episode))
    except EvaluationError as error:
        return MemberResult(member.name, failure=str(error))
