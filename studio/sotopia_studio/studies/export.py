"""Results of a study: long-form sheets with a codebook, and agreement between annotators and with judges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import InvalidValueError, Where
from sotopia_env.foundation.files import csv_text
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people import human_agreement
from sotopia_env.people.answers import Annotation, AnnotationSet
from sotopia_env.people.quality import QualityRules, screen
from sotopia_env.people.report import agreement_report
from sotopia_env.people.sheet import ANNOTATOR, ID, SECONDS, AnnotationKey, AnnotationRequest, fingerprint
from sotopia_env.people.sheet import REASONING as COLUMN_REASONING
from sotopia_env.reports.sheet import Report
from sotopia_env.world.episode import Episode
from sotopia_env.world.reward import Dimension
from sotopia_studio.store import episodes, studies
from sotopia_studio.studies.forms import FormQuestion
from sotopia_studio.studies.interviews import INTERVIEW
from sotopia_studio.studies.rating import GOLD_SLOT, REASONING, scores_of
from sotopia_studio.studies.settings import AnnotateStudy, AnyStudy, PlayStudy, ValidateStudy

COLUMNS = ("study", "participant", "external", "item", "slot", "state", "seconds", "agent", "question", "answer")
CODEBOOK = {
    "study": "name of the study",
    "participant": "code of the person; the same person has the same code throughout",
    "external": "id by which a panel, such as Prolific, knows the person",
    "item": "what was played or judged: a conversation, or the id of an episode or a task; empty for the questionnaire",
    "slot": "which of the people who judge this item, from 0; -1 for the qualification; a seat in a conversation",
    "state": "done, rejected (by a quality rule) or dropped (no answer in time)",
    "seconds": "time that the person took for the item, in seconds",
    "agent": "the seat that the answer is about; empty for the whole item",
    "question": "name of the question; a dimension, or a dimension with .reasoning; after a conversation, "
    "interview. and the name",
    "answer": "the number, the choice or the text",
}
"""Descriptions of the columns of an export."""


def codebook(study: AnyStudy) -> dict[str, Any]:
    """Returns the descriptions of the columns of an export, and the questions that a study's settings ask."""
    questions = {question.name: question for question in study.questionnaire}
    if isinstance(study, PlayStudy):
        questions |= {f"{INTERVIEW}{question.name}": question for question in study.interview}
    elif isinstance(study, ValidateStudy):
        questions |= {question.name: question for question in (*study.questions, *study.per_seat)}
    return {"columns": CODEBOOK, "questions": {name: _described(question) for name, question in questions.items()}}


def _described(question: FormQuestion) -> dict[str, Any]:
    """The text of a question, its kind, and the answers that are possible where they are limited."""
    answers = {"choice": list(question.options), "scale": [question.low, question.high]}.get(question.kind)
    return {"text": question.text, "kind": question.kind} | ({} if answers is None else {"answers": answers})


async def rows(connection: AsyncConnection, study: Any) -> list[dict[str, Any]]:
    """Returns every answer of a study, one per row, with the columns :data:`COLUMNS`."""
    people = {person.id: person for person in await studies.participants(connection, study.id)}
    answers: list[dict[str, Any]] = []
    for assignment in await studies.assignments(connection, study.id, "done", "rejected", "dropped"):
        person = people[assignment.participant]
        base = {"study": study.name, "participant": person.id, "external": person.external, "item": assignment.item}
        base |= {"slot": assignment.slot, "state": assignment.state, "seconds": assignment.seconds}
        for name, value in parse_json(assignment.answers, "assignment").items():
            # Answers about a seat are named `agent_0.goal`; a dimension's own name may contain dots, so only the first
            # one separates.
            agent, _, question = name.partition(".") if name.startswith("agent_") else ("", "", name)
            answers.append({**base, "agent": agent, "question": question, "answer": value})
    for person in people.values():
        record = parse_json(person.answers, "participant")
        base = {"study": study.name, "participant": person.id, "external": person.external, "item": "", "slot": None}
        panel = {name: record[name] for name in ("panel_study", "panel_session") if name in record}
        for name, value in {**panel, **record.get("questionnaire", {})}.items():
            blank = {"seconds": None, "agent": ""}
            answers.append({**base, "state": person.state, **blank, "question": name, "answer": value})
    return answers


def as_csv(answers: Sequence[Mapping[str, Any]]) -> str:
    """Returns answers as CSV, guarded against formulas."""
    return csv_text(COLUMNS, [["" if row[name] is None else row[name] for name in COLUMNS] for row in answers])


def as_json_lines(answers: Sequence[Mapping[str, Any]]) -> str:
    """Returns answers as JSON Lines."""
    return "".join(json.dumps(dict(row), ensure_ascii=False) + "\n" for row in answers)


async def annotation_set(
    connection: AsyncConnection, study: AnnotateStudy, row: Any
) -> tuple[AnnotationSet, list[Episode]]:
    """Returns the annotations of a study in the form of an annotation sheet, and the annotated episodes.

    Raises:
        InvalidValueError: the study has no annotations yet.
    """
    # Qualification items have gold scores; counted as annotations they would inflate the agreement.
    done = [item for item in await studies.assignments(connection, row.id, "done") if item.slot != GOLD_SLOT]
    if not done:
        raise InvalidValueError("the study has no annotations yet", field="study", got=row.name)
    by_id = {item: await episodes.record_of(connection, item) for item in dict.fromkeys(item.item for item in done)}
    requests, annotations = [], []
    for assignment in done:
        episode, answers = by_id[assignment.item], parse_json(assignment.answers, "assignment")
        for agent in episode.task.agents:
            request = AnnotationRequest(
                annotation_id=f"{assignment.id}.{agent}",
                episode=episode.key,
                agent=agent,
                slot=assignment.slot,
                transcript=fingerprint(episode),
            )
            requests.append(request)
            names = [name.removeprefix(f"{agent}.") for name in answers if name.startswith(f"{agent}.")]
            names = [name for name in names if not name.endswith(REASONING)]
            reasons = {name: str(answers.get(f"{agent}.{name}{REASONING}") or "") for name in names}
            # The time was measured for the whole form, which has one part for each seat.
            seconds = None if assignment.seconds is None else assignment.seconds / len(episode.task.agents)
            where = Where(record=f"assignment {assignment.id}")
            scores = scores_of(answers, agent, names)
            annotations.append(Annotation(request, assignment.participant, scores, reasons, seconds, where))
    key = AnnotationKey(seed=study.seed, per_episode=study.overlap, dimensions=study.custom, requests=tuple(requests))
    return AnnotationSet(key, tuple(annotations)), list(by_id.values())


def as_sheet(answers: AnnotationSet) -> tuple[str, str]:
    """Returns annotations as a completed sheet and its key, which ``sotopia judge-agreement`` reads."""
    columns = (ID, ANNOTATOR, *(c for name in answers.key.scales for c in (name, name + COLUMN_REASONING)), SECONDS)
    lines = []
    for annotation in answers.annotations:
        cells: list[object] = [annotation.request.annotation_id, annotation.annotator]
        for name in answers.key.scales:
            score = annotation.scores.get(name)
            cells += ["" if score is None else int(score), annotation.reasoning.get(name, "")]
        lines.append([*cells, "" if annotation.seconds is None else round(annotation.seconds, 1)])
    return csv_text(columns, lines), answers.key.model_dump_json(indent=2) + "\n"


async def agreement(connection: AsyncConnection, study: AnnotateStudy, row: Any) -> Report:
    """Returns the agreement of annotators with each other and with the judges of the episodes."""
    answers, records = await annotation_set(connection, study, row)
    return agreement_report(human_agreement(records, answers, rules=rules_of(study, answers)))


def rules_of(study: AnnotateStudy, answers: AnnotationSet) -> QualityRules:
    """Returns a study's quality rules, without the rule on differences where GOAL was not annotated."""
    limits = study.screening.model_dump()
    scored = {name for annotation in answers.annotations for name in annotation.scores}
    most = limits.pop("max_difference")
    # A rule on a dimension that was not annotated would reject everything.
    differences = {} if most is None or Dimension.GOAL.value not in scored else {Dimension.GOAL.value: most}
    return QualityRules(min_words=study.min_words, max_difference=differences, **limits)


async def screen_and_relaunch(connection: AsyncConnection, study: AnnotateStudy, row: Any) -> dict[str, int]:
    """Rejects annotations by the quality rules and opens a new assignment for each; returns the number by rule.

    An annotator judges all seats of an episode at once, so one rejected seat rejects the assignment. SOTOPIA-π
    relaunched rejected annotations by hand (appendix C.5).
    """
    answers, _ = await annotation_set(connection, study, row)
    by_assignment = {
        removal.annotation.request.annotation_id.rpartition(".")[0]: removal.reason.value
        for removal in screen(answers, rules_of(study, answers)).removals
    }
    counts: dict[str, int] = {}
    for assignment in await studies.assignments(connection, row.id, "done"):
        reason = by_assignment.get(assignment.id)
        if reason is None or assignment.slot == GOLD_SLOT:
            continue
        values = parse_json(assignment.answers, "assignment")
        content = json.dumps({**values, "rejected": reason}, ensure_ascii=False)
        await studies.change_assignment(connection, assignment.id, state="rejected", answers=content)
        await studies.add_assignments(connection, row.id, [(assignment.item, assignment.slot)])
        counts[reason] = counts.get(reason, 0) + 1
    return counts
