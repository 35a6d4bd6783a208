"""Probes for people: the questions of a form, and the record of what a person answered.

A page or a terminal renders :func:`form_questions`, and adds :func:`form_beliefs` to ``Table.beliefs``, which is stored
as the field ``beliefs`` of the :class:`~sotopia_env.world.episode.Episode`. The evaluator ``facts`` reads them from
there like the beliefs of policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from sotopia_env.evaluators.composite import Composite
from sotopia_env.evaluators.probes.asking import questions_of
from sotopia_env.evaluators.probes.evaluator import FactsEvaluator
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, check_number
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.world.answers import Belief, Configured
from sotopia_env.world.episode import Episode, Evaluator
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task

Weights = Mapping[str, float]
"""How probable a person takes each option to be, by option, on any scale: 0 to 100 from sliders, or probabilities."""

_MOST = 1e9
_SILENCE = "the person gave no answer"


def form_questions(task: Task, agent: str, *, ended: bool, trust: bool = True) -> tuple[PublicVariable, ...]:
    """Returns the questions to the person in a seat, with their options.

    The last one on a variable is a control question; those on trust follow it.

    A question is shown as its ``text``, or as its ``name`` where it has none. A person cannot forget that something was
    asked. So what the seat may not even read of is asked after the end alone, and whoever is asked during the play may
    play differently from somebody who is not.

    Args:
        task: the task; there are no questions in one without facts.
        agent: the seat.
        ended: whether the episode has ended.
        trust: whether the person is also asked after the end what they would entrust to each of the others, and to a
            stranger (:mod:`~sotopia_env.evaluators.probes.trust`).

    Raises:
        UnknownNameError: the task has no such seat.
    """
    questions = questions_of(task)
    if agent not in task.names:
        raise UnknownNameError(field="agent", got=agent, valid=task.agents)
    if agent not in questions:
        return ()
    if ended:
        return questions[agent].at(trust)
    return tuple(one for one in questions[agent].variables if one.name not in questions[agent].secrets)


def form_beliefs(
    task: Task,
    agent: str,
    answers: Mapping[str, Weights | None],
    *,
    turns: int,
    ended: bool,
    by: str = "human",
    trust: bool = True,
) -> tuple[Belief, ...]:
    """Returns what a person answered, as records; a question without an answer is recorded as unanswered.

    A question counts as unanswered if ``answers`` lacks it, or has ``None`` or zeros alone: nobody's belief is taken to
    be uniform because no slider was moved.

    Args:
        task: the task.
        agent: the seat.
        answers: by the name of a variable, the weight of every option; only their ratios count.
        turns: the number of turns of the episode when the person was asked: ``len(table.state.turns)``.
        ended: whether the episode had ended.
        by: the name of the person's policy.
        trust: whether the questions were those of ``form_questions(…, trust=True)``.

    Raises:
        UnknownNameError: the task has no such seat, an answer is to none of the questions, or names an option that the
            question lacks.
        InvalidValueError: an answer is a text, a weight is not a number of at least 0, or an option has no weight.
    """
    questions = form_questions(task, agent, ended=ended, trust=trust)
    names = [question.name for question in questions]
    if stranger := next((name for name in answers if name not in names), None):
        raise UnknownNameError(field="answers", got=stranger, valid=names)
    control = questions_of(task)[agent].control if questions else None
    return tuple(_record(question, answers.get(question.name), agent, by, turns, control) for question in questions)


@runtime_checkable
class FormRespondent(Configured, Protocol):
    """A policy of a person, who answers a form after the episode."""

    async def weigh(
        self, observation: Observation, questions: Sequence[PublicVariable]
    ) -> Mapping[str, Weights | None]:
        """Returns the person's answers by the name of the variable; what they skip is left out."""
        ...


async def with_forms(episode: Episode, policies: Sequence[Configured], evaluator: Evaluator | None) -> Episode:
    """Returns an ended episode with the beliefs of the people in it, if its evaluator asks the seats.

    People are asked once, at the end, whatever the moments at which the evaluator asks policies.

    Args:
        episode: an ended episode without its evaluation.
        policies: the policies of the seats, in their order; those of people are :class:`FormRespondent`.
        evaluator: the evaluator of the episode; ``None`` without one.
    """
    asking = _asking(evaluator)
    if asking is None:
        return episode
    task, turns, beliefs = episode.task, len(episode.turns), list(episode.beliefs)
    for agent, person in zip(task.agents, policies, strict=True):
        questions = form_questions(task, agent, ended=True, trust=asking.trust)
        if questions and isinstance(person, FormRespondent) and not asking.replaces(agent):
            answers = await person.weigh(Table.resume(episode).observe(agent), questions)
            beliefs += form_beliefs(task, agent, answers, turns=turns, ended=True, by=person.name, trust=asking.trust)
    return episode.model_copy(update={"beliefs": tuple(beliefs)})


def _asking(evaluator: Evaluator | None) -> FactsEvaluator | None:
    """The part of an evaluator that asks the seats; ``None`` if no part does."""
    if isinstance(evaluator, Composite):
        return next(filter(None, map(_asking, evaluator.evaluators)), None)
    return evaluator if isinstance(evaluator, FactsEvaluator) and evaluator.probe != "none" else None


def _record(
    question: PublicVariable, weights: Weights | None, agent: str, by: str, turns: int, control: PublicVariable | None
) -> Belief:
    shares = _shares(question, weights)
    return Belief(
        respondent=agent,
        by=by,
        turns=turns,
        variable=question.name,
        control=question is control,
        options=question.options,
        shares=shares,
        reason="" if shares else _SILENCE,
    )


def _shares(question: PublicVariable, weights: Weights | None) -> tuple[float, ...]:
    """The probability of each option; empty for no answer."""
    if weights is None:
        return ()
    field = f"answers.{question.name}"
    if not isinstance(weights, Mapping):
        raise InvalidValueError(
            field=field,
            expected="a number of at least 0 for each option",
            got=weights,
            hint=f"such as {dict.fromkeys(question.options, 50)}",
        )
    if stranger := next((option for option in weights if option not in question.options), None):
        raise UnknownNameError(field=field, got=stranger, valid=question.options)
    for option in question.options:
        if option not in weights:
            raise InvalidValueError(field=f"{field}.{option}", expected="a number of at least 0", got=None)
        check_number(f"{field}.{option}", weights[option], 0, _MOST)
    total = math.fsum(weights.values())
    return tuple(weights[option] / total for option in question.options) if total else ()
