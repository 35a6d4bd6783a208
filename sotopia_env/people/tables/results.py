"""The results of a study as tables: long, wide, and turn by turn, with the codebook that describes every column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Protocol

from sotopia_env.people.studies.assigning import Assignment
from sotopia_env.people.studies.design import Condition, conditions, of_item, of_person
from sotopia_env.people.studies.design import tasks_of as tasks_of_study
from sotopia_env.people.studies.forms import FormQuestion
from sotopia_env.people.studies.interviews import INTERVIEW, PARTNER_NAME
from sotopia_env.people.studies.ratings import annotation_form
from sotopia_env.people.studies.settings import FINISHED, AnyStudy, Factor, PlayStudy, ValidateStudy
from sotopia_env.people.tables.beliefs import BELIEF, option_beliefs
from sotopia_env.people.tables.columns import Cell, Column, Kind, codebook, codebook_csv, long_csv, long_rows, wide_csv
from sotopia_env.people.tables.seats import PlayedSeat, longest, seat_columns
from sotopia_env.people.tables.turns import TURN, played_turns
from sotopia_env.world.episode import Episode

FORM, FORM_AT_END, PANEL, STUDIO = "the form", "the questionnaire at the end", "the panel", "the studio"
TableName = Literal["long", "wide", "turns", "beliefs", "codebook"]


class Participation(Protocol):
    """A person in a study, such as a row of the studio's database.

    Attributes:
        id: code of the person, the same throughout.
        external: the id by which a panel knows the person.
        state: the state of the participation.
        created: the time of joining, in seconds since the epoch.
        finished: the time of the end; ``None`` before it.
    """

    id: str
    external: str
    state: str
    created: float
    finished: float | None


@dataclass(frozen=True, slots=True)
class ResultEntry:
    """A person's part in a study: the person as a whole, or one conversation or item.

    Attributes:
        study: name of the study.
        person: the participant.
        record: what is known of the person: consent, questionnaire, ids of a panel.
        assignment: the conversation or item; ``None`` for the person as a whole.
        answers: the answers about the assignment.
        condition: the condition of the conversation, or of the person who stays in one.
        played: the seat in its conversation, if the person played one.
    """

    study: str
    person: Participation
    record: Mapping[str, Any]
    assignment: Assignment | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    condition: Condition | None = None
    played: PlayedSeat | None = None


def _of_assignment(name: str) -> Callable[[ResultEntry], Cell]:
    return lambda entry: None if entry.assignment is None else getattr(entry.assignment, name)


def _time(seconds: float | None) -> Cell:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


_key = partial(Column, is_key=True, source=STUDIO)
KEYS: tuple[Column[ResultEntry], ...] = (
    _key("study", "name of the study", "text", lambda e: e.study),
    _key("participant", "code of the person, the same throughout", "text", lambda e: e.person.id),
    Column(
        "external",
        "id by which a panel, such as Prolific, knows the person",
        "text",
        lambda e: e.person.external,
        source=PANEL,
        is_key=True,
    ),
    _key(
        "condition",
        "the condition, by the levels of its factors; empty without factors",
        "text",
        lambda e: e.condition.name if e.condition else "",
    ),
    _key(
        "item",
        "the conversation, or the id of an episode or task; empty for the person as a whole",
        "text",
        lambda e: "" if e.assignment is None else e.assignment.item,
    ),
    _key(
        "slot",
        "which of the people who judge the item; the seat in a conversation",
        "number",
        _of_assignment("slot"),
        "from 0; -1: qualification",
    ),
    _key(
        "state",
        "how the item, or the participation as a whole, ended",
        "choice",
        lambda e: e.person.state if e.assignment is None else e.assignment.state,
        "of an item: done, rejected (by a quality rule), dropped (no answer in time), failed (a model did not answer)",
    ),
    _key("seconds", "time that the person took for a form", "number", _of_assignment("seconds"), "seconds"),
    _key("episode", "id of the conversation, for its record and its turns", "text", lambda e: e.answers.get("episode")),
)
"""The columns that identify a line, in both forms."""
_PERSON: tuple[Column[ResultEntry], ...] = (
    Column(
        "person.state",
        "state of the participation",
        "choice",
        lambda e: e.person.state,
        ", ".join(FINISHED),
        STUDIO,
    ),
    Column("person.joined", "time of joining", "text", lambda e: _time(e.person.created), "ISO 8601, UTC", STUDIO),
    Column("person.finished", "time of the end", "text", lambda e: _time(e.person.finished), "ISO 8601, UTC", STUDIO),
    Column("panel_study", "the panel's id of the study", "text", lambda e: e.record.get("panel_study"), source=PANEL),
    Column(
        "panel_session", "the panel's id of the session", "text", lambda e: e.record.get("panel_session"), source=PANEL
    ),
    Column(
        "qualification.share",
        "share of scores near the gold",
        "number",
        lambda e: e.record.get("qualification", {}).get("share"),
        "0 to 1",
        STUDIO,
    ),
)


@dataclass(frozen=True, slots=True)
class StudyTables:
    """The tables of a study; each is made of columns, and the codebook of the same columns.

    Attributes:
        about_people: columns about a person as a whole.
        about_items: columns about a conversation or an item.
        people: an entry for each person.
        items: an entry for each conversation or item that somebody has done.
        records: the conversations by id.
    """

    about_people: tuple[Column[ResultEntry], ...]
    about_items: tuple[Column[ResultEntry], ...]
    people: tuple[ResultEntry, ...]
    items: tuple[ResultEntry, ...]
    records: Mapping[str, Episode]

    @property
    def wide(self) -> tuple[tuple[Column[ResultEntry], ...], tuple[ResultEntry, ...]]:
        """Columns and entries of the wide form; a person without an item has one line."""
        busy = {entry.person.id for entry in self.items}
        alone = [entry for entry in self.people if entry.person.id not in busy]
        return (*KEYS, *self.about_people, *self.about_items), (*self.items, *alone)

    def rows(self) -> list[dict[str, Cell]]:
        """Returns the long form: a row for each value."""
        return long_rows((*KEYS, *self.about_items), self.items) + long_rows((*KEYS, *self.about_people), self.people)

    def json_lines(self) -> str:
        """Returns the long form as JSON Lines."""
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows())

    def csv(self, table: TableName) -> str:
        """Returns a table as CSV."""
        columns, entries = self.wide
        if table == "long":
            header = long_csv((*KEYS, *self.about_items), self.items)
            return header + long_csv((*KEYS, *self.about_people), self.people).partition("\r\n")[2]
        if table == "wide":
            return wide_csv(columns, entries)
        if table == "turns":
            return wide_csv(TURN, played_turns(self.records.items()))
        if table == "beliefs":
            return wide_csv(BELIEF, option_beliefs(self.records.items()))
        return codebook_csv(self.codebook())

    def codebook(self) -> list[dict[str, str]]:
        """Returns a line for every column of every table."""
        columns, _ = self.wide
        return [
            *codebook("long", (*KEYS, *self.about_people, *self.about_items), long=True),
            *codebook("wide", columns),
            *codebook("turns", TURN),
            *codebook("beliefs", BELIEF),
        ]


def tables_of(
    name: str,
    study: AnyStudy,
    people: Sequence[tuple[Participation, Mapping[str, Any]]],
    assignments: Sequence[tuple[Assignment, Mapping[str, Any]]],
    records: Mapping[str, Episode],
) -> StudyTables:
    """Returns the tables of a study.

    Args:
        name: its name.
        study: its settings.
        people: the participants, each with what is known of the person.
        assignments: what they have done, each with the answers about it. Those about a conversation have its id as
            ``episode``, and the person's seat as ``agent``.
        records: by id, the conversations of a play study, or the scored episodes of a study of annotation.
    """
    persons = {person.id: _whole(name, study, person, record) for person, record in people}
    items = [
        _item(persons[assignment.participant or ""], study, assignment, answers, records)
        for assignment, answers in assignments
    ]
    played = records if isinstance(study, PlayStudy) else {}
    agents = dict.fromkeys(agent for record in played.values() for agent in record.task.agents)
    questions = _asked(study, list(agents), records)
    for answer in (answer for entry in items for answer in entry.answers if answer not in ("episode", "agent")):
        questions.setdefault(answer, _undeclared(answer))
    seats: tuple[Column[PlayedSeat], ...] = ()
    factors: tuple[Factor, ...] = ()
    if isinstance(study, PlayStudy):
        factors, tasks = study.factors, [task for each in conditions(study) for task in tasks_of_study(each.study)]
        seats = seat_columns(tasks, longest(list(played.values())))
    at_end = {question.name: question for question in study.questionnaire}
    return StudyTables(
        about_people=(*_PERSON, *_columns(at_end, _questionnaire, FORM_AT_END, "questionnaire.")),
        about_items=(
            *map(_factor_column, factors),
            *(column.of(lambda entry: entry.played) for column in seats),
            *_columns(questions, lambda entry: entry.answers, FORM),
        ),
        people=tuple(persons.values()),
        items=tuple(items),
        records=played,
    )


def _whole(name: str, study: AnyStudy, person: Participation, record: Mapping[str, Any]) -> ResultEntry:
    """The entry of a person as a whole."""
    condition = of_person(study, record) if isinstance(study, PlayStudy) else None
    return ResultEntry(name, person, record, condition=condition)


def _item(
    person: ResultEntry,
    study: AnyStudy,
    assignment: Assignment,
    answers: Mapping[str, Any],
    records: Mapping[str, Episode],
) -> ResultEntry:
    """The entry of one conversation or item of a person."""
    entry = replace(person, assignment=assignment, answers=answers)
    if not isinstance(study, PlayStudy):
        return entry
    played = PlayedSeat.of(records[answers["episode"]], answers["agent"])
    return replace(entry, played=played, condition=of_item(study, assignment.item))


def _factor_column(factor: Factor) -> Column[ResultEntry]:
    meaning, levels = f"level of the factor that varies {factor.varies}", ", ".join(x.name for x in factor.levels)
    return Column(
        f"factor.{factor.name}",
        meaning,
        "choice",
        lambda entry: entry.condition.levels[factor.name] if entry.condition else None,
        levels,
        STUDIO,
    )


def _questionnaire(entry: ResultEntry) -> Mapping[str, Any]:
    answers: Mapping[str, Any] = entry.record.get("questionnaire", {})
    return answers


def _asked(study: AnyStudy, agents: Sequence[str], records: Mapping[str, Episode]) -> dict[str, FormQuestion]:
    """The questions about an item, by the name of the answer, as far as the settings and the items say."""
    if isinstance(study, PlayStudy):
        own = {f"{INTERVIEW}{q.name}": q for q in study.interview if PARTNER_NAME not in q.text}
        about = {f"{INTERVIEW}{q.name}": q for q in study.interview if PARTNER_NAME in q.text}
        return own | {f"{agent}.{name}": question for agent in agents for name, question in about.items()}
    if isinstance(study, ValidateStudy):
        seats = dict.fromkeys(agent for task in tasks_of_study(study) for agent in task.agents)
        per_seat = {f"{agent}.{q.name}": q for agent in seats for q in study.per_seat}
        return per_seat | {question.name: question for question in study.questions}
    forms = [section for episode in records.values() for section in annotation_form(study, episode)]
    return {question.name: question for section in forms for question in section.questions}


def _undeclared(name: str) -> FormQuestion:
    """The description of an answer that the study's settings do not ask for."""
    texts = {
        "rejected": "rule by which the annotation was rejected",
        "goal": "whether the person says that this goal was reached",
        "information": "answer to the scenario's question on private information",
    }
    kind = name.rpartition(".")[2].partition("_")[0]
    return FormQuestion(name=name, text=texts.get(kind, "answer to a question that the study does not ask any more"))


def _columns(
    questions: Mapping[str, FormQuestion],
    answers: Callable[[ResultEntry], Mapping[str, Any]],
    source: str,
    prefix: str = "",
) -> Iterator[Column[ResultEntry]]:
    """A column for each question."""
    for name, question in questions.items():
        # A dimension's own name may contain dots, so only the first one separates.
        agent, _, variable = name.partition(".") if name.startswith("agent_") else ("", "", name)
        kind, unit = _KINDS[question.kind], ", ".join(question.options)
        unit = f"{question.low} to {question.high}" if question.kind == "scale" else unit
        cell = partial(_answer, answers, name)
        yield Column(f"{prefix}{name}", question.text, kind, cell, unit, source, agent=agent, variable=variable)


_KINDS: Mapping[str, Kind] = {"text": "text", "choice": "choice", "scale": "number", "check": "yes/no"}


def _answer(answers: Callable[[ResultEntry], Mapping[str, Any]], name: str, entry: ResultEntry) -> Cell:
    value: Cell = answers(entry).get(name)
    return value
