"""The parser of a judge's answer, which returns the complete verdict or the reason why the answer is refused.

Nothing is repaired or guessed. The answer is a JSON object, optionally after thoughts or in one code fence. A judge's
verdict may also end a sentence, if it is the only object in the answer. An object that an agent wrote is never a
verdict, wherever it is in the answer: the answer of a judge that quotes an utterance is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.answer_text import QUOTATION, UnclearError, is_quotation, read_answer
from sotopia_env.foundation.errors import FieldError, Verbatim, json_excerpt

MAX_PROBLEMS = 5
"""The maximum number of problems that a refusal lists."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The scale of one score.

    Attributes:
        name: the dimension's name in the verdict.
        low: the lowest score, inclusive.
        high: the highest score, inclusive.
        instruction: the instruction to the judge.
    """

    name: str
    low: int
    high: int
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One entry of a verdict."""

    agent: str
    axis: str
    score: int
    reasoning: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an answer is refused, which must be quoted before the model sees it."""

    reason: str


_OPENING_QUOTES = tuple("\"'“‘„«[")


def read_object(text: str, utterances: Sequence[str] = (), *, words: bool = False) -> dict[str, Any] | Refusal:
    """Returns the JSON object of an answer (:mod:`sotopia_env.foundation.answer_text` has the rule).

    Thoughts before it and a code fence around it are allowed. Duplicate keys, ``NaN`` and infinities are refused.

    Args:
        text: the answer.
        utterances: the texts that the answer may quote; an object that one of them contains is refused.
        words: whether other text may precede the object, if it contains no brace and the object is not in quotes or
            in a list.
    """
    try:
        answer = read_answer(text)
    except UnclearError as error:
        return Refusal(str(error))
    if len(answer.objects) > 1:
        return Refusal("nothing after the JSON object may be another one; give one JSON object and nothing else")
    if not answer.objects or not (words or answer.alone):
        return _refusal(expected="one JSON object and nothing before it", got=answer.before)
    if "{" in answer.before or answer.before.endswith(_OPENING_QUOTES):
        return Refusal("the JSON object is after a brace, in quotes or in a list; give it and nothing before it")
    # A quotation is refused even if it is all that is left: a closing mark in the quotation makes a server, or our own
    # reading of completions, take everything before it for thinking.
    return Refusal(QUOTATION) if is_quotation(answer, utterances) else answer.objects[0]


def _refusal(expected: str, got: str) -> Refusal:
    return Refusal(str(FieldError(expected=expected, got=got or Verbatim("no text"))))


def read_verdict(
    text: str, agents: Sequence[str], axes: Sequence[Axis], utterances: Sequence[str] | None = None
) -> tuple[Judgement, ...] | Refusal:
    """Returns the verdict in a judge's answer, matched by agent id and dimension name, in the order of the arguments.

    Args:
        text: the model's answer.
        agents: the agents that the verdict must contain.
        axes: the dimensions that the verdict must contain for each agent.
        utterances: the utterances of the episode, to accept a verdict in a sentence (:func:`read_object`).

    Returns:
        A judgement for every agent and axis, or a refusal with up to :data:`MAX_PROBLEMS` problems.
    """
    answer = read_object(text, utterances or (), words=utterances is not None)
    if isinstance(answer, Refusal):
        return answer
    problems: list[str] = []
    outer = object_members(answer, ("verdicts",), "the answer", problems)
    verdicts = object_members(outer["verdicts"], agents, "verdicts", problems) if outer else {}
    names = [axis.name for axis in axes]
    rows = {agent: object_members(row, names, f"verdicts.{agent}", problems) for agent, row in verdicts.items()}
    judgements = [
        _judgement(agent, axis, row[axis.name], problems)
        for agent, row in rows.items()
        for axis in axes
        if axis.name in row
    ]
    return refusal(problems) or tuple(judgement for judgement in judgements if judgement is not None)


def object_members(item: Any, keys: Sequence[str], where: str, problems: list[str]) -> Mapping[str, Any]:
    """Returns the members of a JSON object that must have exactly these ``keys``, in the order of ``keys``.

    A value that is not an object, missing keys and unknown keys are added to ``problems``.

    Args:
        item: the parsed value.
        keys: the required keys.
        where: the path of the value, which begins each problem.
        problems: the list to which problems are added.
    """
    if not isinstance(item, dict):
        expected = f"an object with the keys {', '.join(keys)}"
        problems.append(str(FieldError(field=where, expected=expected, got=json_excerpt(item))))
        return {}
    problems += [f"{where}: the key {key!r} is missing" for key in keys if key not in item]
    problems += [str(FieldError("unknown key", field=where, got=key, valid=keys)) for key in item if key not in keys]
    return {key: item[key] for key in keys if key in item}


def _judgement(agent: str, axis: Axis, entry: Any, problems: list[str]) -> Judgement | None:
    where = f"verdicts.{agent}.{axis.name}"
    parts = object_members(entry, ("reasoning", "score"), where, problems)
    if len(parts) < 2:
        return None
    score, reasoning = parts["score"], parts["reasoning"]
    # ``isinstance`` would accept ``true``, because bool is a subclass of int.
    if type(score) is not int or not axis.low <= score <= axis.high:
        form = f"a whole number from {axis.low} to {axis.high}, without decimals or quotes"
        problems.append(str(FieldError(field=f"{where}.score", expected=form, got=json_excerpt(score))))
        return None
    if problem := text_problem(f"{where}.reasoning", reasoning):
        problems.append(problem)
        return None
    return Judgement(agent, axis.name, score, reasoning)


def text_problem(field: str, value: Any) -> str | None:
    """Returns the problem if the value of a field is not valid Unicode text or is blank; ``None`` if it is valid."""
    if not isinstance(value, str) or not value.strip():
        return str(FieldError(field=field, expected="a text", got=json_excerpt(value)))
    # JSON can escape lone surrogates, which cannot be written to a record.
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        got = Verbatim(f"a lone surrogate at character {error.start}")
        return str(FieldError(field=field, expected="Unicode text", got=got))
    return None


def refusal(problems: Sequence[str]) -> Refusal | None:
    """Returns a refusal with the first :data:`MAX_PROBLEMS` problems, or ``None`` if ``problems`` is empty."""
    if not problems:
        return None
    more = len(problems) - MAX_PROBLEMS
    return Refusal("; ".join(problems[:MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else ""))
