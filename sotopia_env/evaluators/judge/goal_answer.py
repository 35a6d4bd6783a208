"""One respondent's yes or no on one goal: the schema of the answer, and its parser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import EvaluationError, FieldError
from sotopia_env.evaluators.judge.prompt import closed_object
from sotopia_env.evaluators.judge.verdict import Refusal, object_members, read_object, refusal, text_problem
from sotopia_env.json_text import decode_json
from sotopia_env.records import Record
from sotopia_env.world.answers import View
from sotopia_env.world.episode import Evaluation


class GoalAnswer(Record):
    """One respondent's yes or no on one goal.

    Attributes:
        agent: whose goal it is.
        goal: its index among the agent's goals, from 0.
        view: perspective of the respondent.
        respondent: an agent id, or ``judge_0``, ``judge_1``, … from outside.
        model: the model behind the respondent.
        reached: the answer.
        reasoning: for the answer.
    """

    agent: str
    goal: int
    view: View
    respondent: str
    model: str
    reached: bool
    reasoning: str


_ANSWERS: TypeAdapter[tuple[GoalAnswer, ...]] = TypeAdapter(tuple[GoalAnswer, ...], config={"defer_build": True})


def answers_of(evaluation: Evaluation) -> tuple[GoalAnswer, ...]:
    """Returns every answer behind an evaluation by views, which keeps them as JSON in its ``comment``.

    Raises:
        EvaluationError: it is unscored, or another evaluator's.
    """
    try:
        return _ANSWERS.validate_python(decode_json(evaluation.comment))
    except ValueError:  # of pydantic, or no JSON
        reason = f"unscored ({evaluation.unscored})" if evaluation.unscored else "its comment holds no answers"
        raise EvaluationError(f"{evaluation.evaluator}: expected an evaluation of goals by views, {reason}") from None


@dataclass(frozen=True, slots=True)
class Inquiry:
    """One respondent asked about all goals of one agent."""

    view: View
    respondent: str
    about: str
    model: ChatModel


def answers_schema(goals: int) -> dict[str, Any]:
    """Returns the JSON schema of the answers about so many goals, numbered from 1."""
    entry = closed_object({"reasoning": {"type": "string"}, "answer": {"type": "string", "enum": ["yes", "no"]}})
    return closed_object({"answers": closed_object({str(number): entry for number in range(1, goals + 1)})})


def read_answers(inquiry: Inquiry, goals: int, text: str) -> tuple[GoalAnswer, ...] | Refusal:
    """Returns the answers in a respondent's text, one for each of ``goals`` goals, or why they are refused."""
    answer = read_object(text)
    if isinstance(answer, Refusal):
        return answer
    problems: list[str] = []
    outer = object_members(answer, ("answers",), "the answer", problems)
    entries = object_members(outer["answers"], [str(n + 1) for n in range(goals)], "answers", problems) if outer else {}
    answers = []
    for number, entry in entries.items():
        parts = object_members(entry, ("reasoning", "answer"), f"answers.{number}", problems)
        if len(parts) < 2:
            continue
        reached = read_yes_no(parts["answer"])
        if problem := text_problem(f"answers.{number}.reasoning", parts["reasoning"]):
            problems.append(problem)
        elif isinstance(reached, Refusal):
            problems.append(f"answers.{number}.answer: {reached.reason}")
        else:
            answers.append(_answer(inquiry, int(number) - 1, reached, parts["reasoning"]))
    return refusal(problems) or tuple(answers)


def _answer(inquiry: Inquiry, goal: int, reached: bool, reasoning: str) -> GoalAnswer:
    return GoalAnswer(
        agent=inquiry.about,
        goal=goal,
        view=inquiry.view,
        respondent=inquiry.respondent,
        model=inquiry.model.name,
        reached=reached,
        reasoning=reasoning,
    )


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def read_yes_no(value: Any) -> bool | Refusal:
    """Returns whether an answer says yes.

    Its first word must be "yes" or "no", in any case, and the other of the two must not occur: "Yes, but no" is no
    answer, and neither is "not really".
    """
    words = [word.casefold() for word in _WORD.findall(value)] if isinstance(value, str) else []
    first = words[0] if words else ""
    if first in ("yes", "no") and not {"yes", "no"} <= set(words):
        return first == "yes"
    return Refusal(str(FieldError(expected='one clear "yes" or "no"', got=value)))
