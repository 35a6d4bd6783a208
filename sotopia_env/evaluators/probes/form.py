"""Probes for people: the questions of a form, and the record of what a person answered.

A page or a terminal renders :func:`form_questions`, and adds :func:`form_beliefs` to ``Table.beliefs``, which is stored
as the field ``beliefs`` of the :class:`~sotopia_env.world.episode.Episode`. The evaluator ``facts`` reads them from
there like the beliefs of policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sotopia_env.evaluators.probes.asking import questions_of
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, check_number
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.world.answers import Belief
from sotopia_env.world.scenario import Task

Weights = Mapping[str, float]
"""How probable a person takes each option to be, by option, on any scale: 0 to 100 from sliders, or probabilities."""

_MOST = 1e9
_SILENCE = "the person gave no answer"


def form_questions(task: Task, agent: str, *, ended: bool) -> tuple[PublicVariable, ...]:
    """Returns the questions to the person in a seat, with their options; the last one is a control question.

    A question is shown as its ``text``, or as its ``name`` where it has none. A person cannot forget that something was
    asked. So what the seat may not even read of is asked after the end alone, and whoever is asked during the play may
    play differently from somebody who is not.

    Args:
        task: the task; there are no questions in one without facts.
        agent: the seat.
        ended: whether the episode has ended.

    Raises:
        UnknownNameError: the task has no such seat.
    """
    questions = questions_of(task)
    if agent not in task.names:
        raise UnknownNameError(field="agent", got=agent, valid=task.agents)
    if agent not in questions:
        return ()
    secrets = () if ended else questions[agent].secrets
    return tuple(variable for variable in questions[agent].variables if variable.name not in secrets)


def form_beliefs(
    task: Task,
    agent: str,
    answers: Mapping[str, Weights | None],
    *,
    turns: int,
    ended: bool,
    by: str = "human",
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

    Raises:
        UnknownNameError: the task has no such seat, an answer is to none of the questions, or names an option that the
            question lacks.
        InvalidValueError: an answer is a text, a weight is not a number of at least 0, or an option has no weight.
    """
    questions = form_questions(task, agent, ended=ended)
    names = [question.name for question in questions]
    if stranger := next((name for name in answers if name not in names), None):
        raise UnknownNameError(field="answers", got=stranger, valid=names)
    control = questions_of(task)[agent].control if questions else None
    return tuple(_record(question, answers.get(question.name), agent, by, turns, control) for question in questions)


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
