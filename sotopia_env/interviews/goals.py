"""Judges of goals: a model that reads the whole episode decides which goals of one agent were reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.evaluators.judge.document import document
from sotopia_env.evaluators.judge.prompt import Prompt, closed_object, judge_text
from sotopia_env.evaluators.judge.question import JudgeAnswer, Manner, ask
from sotopia_env.evaluators.judge.verdict import Refusal, object_members, read_object, refusal, text_problem
from sotopia_env.foundation.errors import FieldError, json_excerpt
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.world.episode import Episode

load = reader(__package__)


def prompt_texts() -> tuple[str, ...]:
    """Returns the texts that these questions are made of."""
    goals, form, closing = map(load, ("judge_goals", "judge_goals_form", "judge_goals_closing"))
    return goals, judge_text("judge_data_rule"), form, closing, judge_text("judge_data")


class GoalVerdict(NamedTuple):
    """Whether a goal was reached, and the reasoning that led to it."""

    reached: bool
    reasoning: str


async def judge_goals(
    model: ChatModel, episode: Episode, about: str, manner: Manner, label: str
) -> JudgeAnswer[tuple[GoalVerdict, ...]]:
    """Returns a verdict on every goal of one agent.

    Goals are numbered, because two may have the same text.

    Args:
        model: the judge.
        episode: the episode, of which the judge also reads the private parts.
        about: the id of the agent whose goals are judged.
        manner: the settings of the question.
        label: the name of the question in the ledger.

    Raises:
        EvaluationError: the call failed permanently, or the episode does not fit the model.
        BudgetExceededError: the ledger's limit is reached.
    """
    goals = episode.task.scenario.seats[episode.task.agents.index(about)].goals
    system, closing = _system(about, len(goals)), fill(load("judge_goals_closing"), about=about)

    def prompt(omitted: int) -> Prompt:
        data = document(episode, omitted=omitted, questions=goals)
        return Prompt(system, data, closing, verdicts_schema(len(goals)))

    utterances = [turn.action.argument for turn in episode.plain_turns]
    return await ask(
        model, prompt, len(episode.turns), partial(read_verdicts, len(goals), utterances=utterances), manner, label
    )


def _system(about: str, goals: int) -> str:
    entries = ", ".join(f'"{number}": {{"reasoning": "…", "answer": "yes"}}' for number in range(1, goals + 1))
    form = fill(load("judge_goals_form"), form=f'{{"answers": {{{entries}}}}}')
    return fill(load("judge_goals"), data_rule=judge_text("judge_data_rule"), form=form, about=about)


def verdicts_schema(goals: int) -> dict[str, Any]:
    """Returns the JSON schema of the verdicts on ``goals`` goals, numbered from 1."""
    entry = closed_object({"reasoning": {"type": "string"}, "answer": {"type": "string", "enum": ["yes", "no"]}})
    return closed_object({"answers": closed_object({str(number): entry for number in range(1, goals + 1)})})


def read_verdicts(goals: int, text: str, utterances: Sequence[str] = ()) -> tuple[GoalVerdict, ...] | Refusal:
    """Returns the verdicts in a judge's text, one for each of ``goals`` goals, or the reason of the refusal.

    An object that one of the ``utterances`` contains is refused.
    """
    answer = read_object(text, utterances)
    if isinstance(answer, Refusal):
        return answer
    problems: list[str] = []
    outer = object_members(answer, ("answers",), "the answer", problems)
    entries = object_members(outer["answers"], [str(n + 1) for n in range(goals)], "answers", problems) if outer else {}
    verdicts = []
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
            verdicts.append(GoalVerdict(reached, parts["reasoning"]))
    return refusal(problems) or tuple(verdicts)


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def read_yes_no(value: Any) -> bool | Refusal:
    """Returns whether an answer says yes.

    Its first word must be "yes" or "no", in any case, and the other of the two must not occur: "Yes, but no" and "not
    really" are refused.
    """
    # The schema demands a bare word, but servers that do not enforce schemas return sentences such as "Yes, it did."
    words = [word.casefold() for word in _WORD.findall(value)] if isinstance(value, str) else []
    first = words[0] if words else ""
    if first in ("yes", "no") and not {"yes", "no"} <= set(words):
        return first == "yes"
    return Refusal(str(FieldError(expected='one clear "yes" or "no"', got=json_excerpt(value))))
