"""Answers to interview questions: the text of a question, the reader of a model's reply, the rules of scripts."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sotopia_env.foundation.answer_text import UnclearError, own_answer
from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape_line, quote
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.policies.small_talk import long_words
from sotopia_env.world.action import ParseFailure
from sotopia_env.world.answers import InterviewQuestion, InterviewReply
from sotopia_env.world.observation import Observation

load = reader(__package__)

ANSWER_KEY = "answer"
"""The one key of an answer."""


def question_text(observation: Observation, question: InterviewQuestion) -> str:
    """Returns the question as text, without the form of an answer; texts by the task's author are quoted."""
    if question.about == observation.agent:
        return fill(load("interview_own_goal"), goal=quote(question.text))
    about = next(partner.name for partner in observation.briefing.partners if partner.agent == question.about)
    if question.on_goal:
        return fill(load("interview_other_goal"), about=about, goal=quote(question.text))
    lines = [f"{key}: {quote(option)}" for key, option in zip(question.keys, question.options, strict=True)]
    return fill(load("interview_choice"), about=about, question=quote(question.text), options="\n".join(lines))


def answer_schema(question: InterviewQuestion) -> dict[str, Any]:
    """Returns the JSON schema of an answer, in the strict form that servers require."""
    properties = {ANSWER_KEY: {"type": "string", "enum": [*question.keys]}}
    return {"type": "object", "properties": properties, "required": [ANSWER_KEY], "additionalProperties": False}


def request_text(observation: Observation, question: InterviewQuestion) -> str:
    """Returns the text that follows a language model's conversation: the question and the form of the answer."""
    keys = ", ".join(quote(key) for key in question.keys)
    name = escape_line(observation.briefing.name)
    return fill(load("interview_question"), name=name, question=question_text(observation, question), keys=keys)


def belief_question(variable: PublicVariable, order: Sequence[str]) -> InterviewQuestion:
    """Returns the closed question on a variable, with its options in this order.

    Raises:
        InvalidValueError: it has more options than there are letters.
    """
    return InterviewQuestion(variable.of, variable.text or variable.name, tuple(order))


def belief_text(observation: Observation, question: InterviewQuestion) -> str:
    """Returns the text that follows a language model's conversation: the question on a variable, and the form."""
    lines = [f"{key}: {quote(option)}" for key, option in zip(question.keys, question.options, strict=True)]
    return fill(
        load("belief_question"),
        name=escape_line(observation.briefing.name),
        variable=quote(question.text),
        options="\n".join(lines),
        keys=", ".join(quote(key) for key in question.keys),
    )


def belief_questions(observation: Observation, variables: Sequence[PublicVariable]) -> str:
    """Returns the text that follows a language model's conversation: all questions at once, with their options.

    Options are listed in an order that depends on the seat and on the names: the same at every moment, so that a change
    of a belief is not one of the order, and another one in other tasks, so that a model's liking for the first cancels.
    """
    names: dict[frozenset[str], list[str]] = {}
    for variable in variables:
        label = quote(variable.name) if not variable.text else f"{quote(variable.name)} ({quote(variable.text)})"
        names.setdefault(frozenset(variable.options), []).append(label)
    lines = []
    for options, labels in names.items():
        order = random.Random(f"{observation.agent}: {', '.join(labels)}").sample(sorted(options), len(options))
        lines.append(f"{', '.join(labels)}: {', '.join(map(quote, order))}")
    return fill(load("belief_questions"), name=escape_line(observation.briefing.name), variables="\n".join(lines))


def belief_form(variable: PublicVariable, option: str) -> str:
    """Returns the answer to one of these questions that selects an option."""
    return json.dumps({variable.name: option}, ensure_ascii=False)


def read_choice(
    text: str, keys: Sequence[str], finish_reason: str = "", others: Iterable[str] = ()
) -> int | ParseFailure:
    """Returns the index of the key in a model's answer, or why the text is not an answer; nothing is guessed.

    Args:
        text: the model's output.
        keys: the keys of the options.
        finish_reason: why the server ended the text.
        others: the words of others, from which a quoted object is no answer.
    """
    try:
        items = own_answer(text, finish_reason, others).objects
    except UnclearError as error:
        return ParseFailure(str(error))
    if len(items) != 1:
        return ParseFailure(f'one JSON object {{"{ANSWER_KEY}": …}} is needed, there are {len(items)}')
    if set(items[0]) != {ANSWER_KEY}:
        named = ", ".join(quote(key[:40]) for key in items[0]) or "none"
        return ParseFailure(f'the JSON object needs the key "{ANSWER_KEY}" alone, it has {named}')
    answer = items[0][ANSWER_KEY]
    by_key = {key.casefold(): index for index, key in enumerate(keys)}
    index = by_key.get(answer.strip().casefold()) if isinstance(answer, str) else None
    return ParseFailure(str(UnknownNameError(field=ANSWER_KEY, got=answer, valid=keys))) if index is None else index


class RuledAnswers:
    """Base of scripted policies, which are dataclasses. Answers follow rules and use only the seat's observation.

    The seat's own goal counts as reached if the moves brought the seat more than no outcome would; another seat's goal
    counts as reached if the moves led to any outcome. In a task without a protocol, questions on goals are not
    answered. The answer to a question on private information is the option that shares the most words with its owner's
    utterances; in a tie, there is no answer.
    """

    __slots__ = ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """All fields except the name."""
        names = [item.name for item in fields(self)]  # type: ignore[arg-type]  # subclasses are dataclasses
        return {name: getattr(self, name) for name in names if name != "name"}

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the answer; see the class's description."""
        return _on_goal(observation, question) if question.on_goal else _on_words(observation, question)

    async def note(self, observation: Observation, most: int, seed: int) -> str:
        """Returns whom the seat met and what stood on the table in the end, then its earlier notes."""
        people = ", ".join(partner.name for partner in observation.briefing.partners)
        return f"With {people}: {observation.table_text or observation.history} {observation.briefing.notes}"


def _on_goal(observation: Observation, question: InterviewQuestion) -> InterviewReply:
    prospect = observation.prospect
    if prospect is None:
        return InterviewReply(reason="a scripted policy answers by the outcome of the moves, and knows none here")
    reached = prospect.surplus > 0 if question.about == observation.agent else prospect.decided
    return InterviewReply(0 if reached else 1)


def _on_words(observation: Observation, question: InterviewQuestion) -> InterviewReply:
    utterances = (turn.action.argument for turn in observation.turns if turn.actor == question.about)
    words = long_words(" ".join(utterances))
    # Words that all options share do not tell them apart.
    common = set.intersection(*(long_words(option) for option in question.options))
    counts = [len((long_words(option) - common) & words) for option in question.options]
    if counts.count(max(counts)) > 1:
        return InterviewReply(reason="a scripted policy answers by the words it has read, and they name no one option")
    return InterviewReply(counts.index(max(counts)))


def random_answer(question: InterviewQuestion, seed: int) -> InterviewReply:
    """Returns a random option."""
    return InterviewReply(random.Random(seed).randrange(len(question.options)))
