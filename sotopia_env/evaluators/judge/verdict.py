"""Parser of a judge's answer: the complete verdict, or the reason why it is refused.

Nothing is repaired or guessed. The answer must be the JSON object alone, bare, in one code fence, or after a thinking
block, so that a quotation of an agent's words is never taken for the verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.errors import FieldError, Verbatim, json_excerpt
from sotopia_env.json_text import DECODER

MAX_ANSWER = 262_144
"""Longest answer that is read, in characters."""
MAX_PROBLEMS = 5
"""Most problems of one answer in a refusal."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The scale of one score.

    Attributes:
        name: the dimension's name in the verdict.
        low: lowest score, inclusive.
        high: highest score, inclusive.
        instruction: to the judge.
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
    """Why an answer is not accepted; ``reason`` must be quoted before the model sees it."""

    reason: str


_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


def read_object(text: str) -> dict[str, Any] | Refusal:
    """Returns the JSON object that ``text`` consists of.

    A thinking block before it and one code fence around it are allowed; anything else before or after it is not.
    Keys that are given twice, ``NaN`` and infinities are refused.
    """
    if len(text) > MAX_ANSWER:
        return Refusal(f"the answer has {len(text)} characters; at most {MAX_ANSWER} are read")
    thinking = _THINKING.match(text)
    while thinking:  # up to the first closing tag; only the object may follow
        text = text[thinking.end() :]
        thinking = _THINKING.match(text)
    body = text.strip()
    fence = _FENCE.fullmatch(body)
    body = fence.group(1).strip() if fence else body
    if not body.startswith("{"):
        return _refusal(expected="one JSON object and nothing before it", got=body)
    try:
        item, end = DECODER.raw_decode(body)
    except RecursionError:
        return Refusal("the JSON object is nested too deeply")
    except json.JSONDecodeError as error:
        return Refusal(f"the JSON object is not valid: {error.msg} at character {error.pos}")
    except ValueError as error:  # ours, and Python's for a number of thousands of digits
        return Refusal(f"the JSON object cannot be read: {error}")
    if end != len(body):
        return _refusal(expected="nothing after the JSON object", got=body[end:].strip())
    result: dict[str, Any] = item
    return result


def _refusal(expected: str, got: str) -> Refusal:
    return Refusal(str(FieldError(expected=expected, got=got or Verbatim("no text"))))


def read_verdict(text: str, agents: Sequence[str], axes: Sequence[Axis]) -> tuple[Judgement, ...] | Refusal:
    """Returns the verdict in a judge's answer, matched by agent id and dimension name, in the order of the arguments.

    Args:
        text: the model's answer.
        agents: the exact agents of the verdict.
        axes: its exact dimensions.

    Returns:
        A judgement for every agent and axis, or why the answer is refused (up to :data:`MAX_PROBLEMS` problems).
    """
    answer = read_object(text)
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
    """Returns the members of a JSON object with exactly these ``keys``, in their order.

    Missing and unknown keys, and a value that is no object, are added to ``problems``.
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
    if type(score) is not int or not axis.low <= score <= axis.high:  # bool is an int to isinstance
        form = f"a whole number from {axis.low} to {axis.high}, without decimals or quotes"
        problems.append(str(FieldError(field=f"{where}.score", expected=form, got=json_excerpt(score))))
        return None
    if problem := text_problem(f"{where}.reasoning", reasoning):
        problems.append(problem)
        return None
    return Judgement(agent, axis.name, score, reasoning)


def text_problem(field: str, value: Any) -> str | None:
    """Returns why the value of a field is not valid Unicode text, or blank; ``None`` if it is fine."""
    if not isinstance(value, str) or not value.strip():
        return str(FieldError(field=field, expected="a text", got=json_excerpt(value)))
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        got = Verbatim(f"a lone surrogate at character {error.start}")
        return str(FieldError(field=field, expected="Unicode text", got=got))
    return None


def refusal(problems: Sequence[str]) -> Refusal | None:
    """Returns the first :data:`MAX_PROBLEMS` problems as a refusal, or ``None`` when there are none."""
    if not problems:
        return None
    more = len(problems) - MAX_PROBLEMS
    return Refusal("; ".join(problems[:MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else ""))
