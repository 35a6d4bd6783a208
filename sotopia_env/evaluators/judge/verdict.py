"""The parser of a judge's answer, which returns the complete verdict or the reason why the answer is refused.

Nothing is repaired or guessed. The answer is a JSON object, optionally after a thinking block or in one code fence. A
judge's verdict may also be in a sentence, if it is the only object in the answer. An object that an agent wrote is
never a verdict, wherever it is in the answer: the answer of a judge that quotes an utterance is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.errors import FieldError, Verbatim, json_excerpt
from sotopia_env.foundation.json_text import DECODER

MAX_ANSWER = 262_144
"""The maximum length of an answer, in characters."""
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


_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?(?:think|thinking|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
_OPENING_QUOTES = tuple("\"'“‘„«[")


def read_object(text: str, utterances: Sequence[str] | None = None) -> dict[str, Any] | Refusal:
    """Returns the JSON object of an answer.

    A thinking block before it and one code fence around it are allowed. Duplicate keys, ``NaN`` and infinities are
    refused.

    Args:
        text: the answer.
        utterances: the texts that the answer may quote; an object that one of them contains is refused. With them,
            other text around the object is allowed, if it contains no further object and the object is not in quotes
            or in a list. ``None`` refuses any other text.
    """
    if len(text) > MAX_ANSWER:
        return Refusal(f"the answer has {len(text)} characters; at most {MAX_ANSWER} are read")
    thinking = _THINKING.match(text)
    # Each match ends at the first closing tag, so that a block cannot hide text between two verdicts.
    while thinking:
        text = text[thinking.end() :]
        thinking = _THINKING.match(text)
    body = text.strip()
    fence = _FENCE.fullmatch(body)
    body = fence.group(1).strip() if fence else body
    start = body.find("{")
    if start < 0 or (start and utterances is None):
        return _refusal(expected="one JSON object and nothing before it", got=body)
    try:
        item, end = DECODER.raw_decode(body, start)
    except RecursionError:
        return Refusal("the JSON object is nested too deeply")
    except json.JSONDecodeError as error:
        return Refusal(f"the JSON object is not valid: {error.msg} at character {error.pos}")
    # Raised by our decoder for duplicate keys and ``NaN``, and by Python for a number of thousands of digits.
    except ValueError as error:
        return Refusal(f"the JSON object cannot be read: {error}")
    before, after = body[:start].strip(), body[end:].strip()
    if after and utterances is None:
        return _refusal(expected="nothing after the JSON object", got=after)
    # A quotation is refused even if it is all that is left: a closing tag in the quotation makes a server, or our own
    # reading of completions, take everything before it for thinking.
    problem = _quotation(body[start:end], utterances or ()) or _around(before, after)
    if problem:
        return Refusal(problem)
    result: dict[str, Any] = item
    return result


def _around(before: str, after: str) -> str:
    """Returns why an object in a sentence is refused; empty if it is the only one and not in quotes."""
    if "{" in after:
        return "nothing after the JSON object may be another one; give one JSON object and nothing else"
    if _TAG.search(before) or _TAG.search(after):
        return "a thinking block is not complete; give one JSON object and nothing else"
    if before.endswith(_OPENING_QUOTES):
        return "the JSON object is in quotes or in a list; give one JSON object and nothing before it"
    return ""


def _quotation(source: str, utterances: Sequence[str]) -> str:
    """Returns why an object that an utterance contains is refused; empty if no utterance does."""
    # Without spaces, because a quotation may have other line breaks than the utterance.
    bare = "".join(source.split())
    if any(bare in "".join(utterance.split()) for utterance in utterances):
        return "the JSON object is a quotation of an utterance; give one JSON object and nothing else"
    return ""


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
    answer = read_object(text, utterances)
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
