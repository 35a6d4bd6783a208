"""The interview after a conversation: the study's questions to the person, and the scenario's own."""

from __future__ import annotations

import random
from collections.abc import Iterator

from sotopia_env.foundation.quoting import escape_line
from sotopia_env.people.studies.forms import FormQuestion, Section
from sotopia_env.people.studies.settings import PlayStudy
from sotopia_env.world import Observation
from sotopia_env.world.answers import YES_NO
from sotopia_env.world.play.table import Table

INTERVIEW = "interview."
"""Prefix of the names of an interview's answers."""
OWN_NOTES = f"{INTERVIEW}own_notes"
"""Name of the answer with a person's notes for the next conversation."""
PARTNER_NAME = "{partner}"
"""Replaced by the name of a partner's character, in the text of a question that is asked about each partner."""


def is_interview(name: str) -> bool:
    """Whether an answer of an assignment, by its name, belongs to the interview."""
    return INTERVIEW in name


def interview_form(study: PlayStudy, episode: str, table: Table, agent: str) -> tuple[Section, ...]:
    """Returns the questions to the person in a seat; empty if there is nothing to ask.

    Answers are named ``interview.NAME``, after the agent that they are about, if any: ``agent_1.interview.NAME``.

    Args:
        study: the study.
        episode: id of the conversation, with which the order of options is drawn.
        table: the conversation.
        agent: the person's seat.
    """
    questions = [*_of_study(study, table.observe(agent))]
    if study.scenario_interview:
        questions += _of_scenario(study, episode, table, agent)
    if most := study.rules.carry:
        note = (
            f"At most {most} characters; longer notes are cut. Nobody else reads them. Empty: your earlier notes stay."
        )
        text = "What do you want to remember in your next conversation with the same partner?"
        questions.append(FormQuestion(name=OWN_NOTES, text=text, note=note, required=False))
    return (Section(questions=tuple(questions)),) if questions else ()


def _of_study(study: PlayStudy, observation: Observation) -> Iterator[FormQuestion]:
    for question in study.interview:
        if PARTNER_NAME not in question.text:
            yield question.model_copy(update={"name": INTERVIEW + question.name})
            continue
        for partner in observation.briefing.partners:
            text = question.text.replace(PARTNER_NAME, partner.name)
            yield question.model_copy(update={"name": f"{partner.agent}.{INTERVIEW}{question.name}", "text": text})


def _of_scenario(study: PlayStudy, episode: str, table: Table, agent: str) -> Iterator[FormQuestion]:
    """The questions of the interview evaluator to a seat, without those on goals that the person does not know."""
    briefing = table.observe(agent).briefing
    for number, goal in enumerate(briefing.goals, start=1):
        name, text = f"{agent}.{INTERVIEW}goal_{number}", f"Your goal was: {goal} Did you reach it?"
        yield FormQuestion(name=name, text=text, kind="choice", options=YES_NO)
    task, interview = table.task, table.task.scenario.interview
    for number, item in enumerate(() if interview is None else interview.questions, start=1):
        if task.seat_of[agent] not in item.asked_seats(len(task.agents)):
            continue
        options = [escape_line(option) for option in (item.answer, *item.wrong)]
        # The same order whenever the page is shown; the right answer is the first in the file.
        random.Random(f"{study.seed}:{episode}:{agent}:{number}").shuffle(options)
        about = task.agents[item.about]
        name = f"{about}.{INTERVIEW}information_{number}"
        yield FormQuestion(name=name, text=escape_line(item.text), kind="choice", options=tuple(options))
