"""The lint: everything that is wrong with, or odd in, the records of files and built-in sets."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sotopia_env.errors import ConstraintError, InvalidTaskError, Where
from sotopia_env.tasks.checks import outcome_problem
from sotopia_env.tasks.lint.situations import Situation, people_sentences, scenario_sentences
from sotopia_env.tasks.lint.texts import ALIKE, near_duplicates
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.procedural import Casting
from sotopia_env.tasks.task_files import Record
from sotopia_env.world.scenario import Relationship, RelationshipKind, Scenario, Task
from sotopia_env.world.taskset import Cast

Placed = tuple[str, Record]
"""A record with its place: file and line or number, or the name of a set."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: where it is, and a sentence that begins with the kind and id of the record and its field.

    An error is what keeps a record from being read, played or scored; all else is a warning.
    """

    where: str
    sentence: str
    is_error: bool = False

    def __str__(self) -> str:
        """The problem as one line."""
        return f"{self.where}: {self.sentence}" if self.is_error else f"{self.where}: warning: {self.sentence}"


def lint(records: Sequence[Placed], against: Sequence[Placed] = ()) -> list[Problem]:
    """Returns the problems of records that have been read, as one set.

    Args:
        records: tasks, templates and scenarios, and casts, by whose people the scenarios must be playable.
        against: another set, whose situations must not occur here again.
    """
    situations = [(where, Situation.of(record)) for where, record in records if not isinstance(record, Cast)]
    casts = [record for _, record in records if isinstance(record, Cast)]
    others = [(where, Situation.of(record)) for where, record in against if not isinstance(record, Cast)]
    problems = (_double_ids(situations), _constraints(situations, casts), _texts(situations), _people(records))
    return [*itertools.chain(*problems), *_duplicates(situations, others)]


_Situations = Iterable[tuple[str, Situation]]


def _double_ids(situations: _Situations) -> Iterator[Problem]:
    places: dict[str, str] = {}
    for where, situation in situations:
        if situation.label in places:
            sentence = f"id: expected an id of its own, got that of {places[situation.label]}; rename one"
            yield Problem(where, f"{situation.label}: {sentence}", is_error=True)
        places.setdefault(situation.label, where)


def _texts(situations: _Situations) -> Iterator[Problem]:
    """What is said of a scenario is said once, however often it is cast."""
    reported = set()
    for where, situation in situations:
        for sentence in scenario_sentences(situation):
            if (situation.key, sentence) in reported:
                continue
            reported.add((situation.key, sentence))
            yield Problem(where, f"{situation.label}: {situation.sentence(sentence)}")


def _people(records: Sequence[Placed]) -> Iterator[Problem]:
    """Secrets; the same people at several tables are looked at once."""
    sentences = set()
    for where, record in records:
        if not isinstance(record, Task | Cast):
            continue
        label = f"task {record.id!r}" if isinstance(record, Task) else "cast"
        for secret, sentence in people_sentences(record):
            if (secret, sentence) not in sentences:
                sentences.add((secret, sentence))
                yield Problem(where, f"{label}: {sentence}")


def _constraints(situations: _Situations, casts: Sequence[Cast]) -> Iterator[Problem]:
    """Of scenarios alone; the people of tasks and templates have been checked when they were read."""
    for where, situation in situations:
        scenario = situation.record
        if not isinstance(scenario, Scenario):
            continue
        if problem := _outcome_problem(scenario):
            yield Problem(where, f"{situation.label}: {problem}", is_error=True)
        if casts and not any(True for cast in casts for _ in _seatings(scenario, cast)):
            people = sum(len(cast.characters) for cast in casts)
            yield Problem(where, f"{situation.label}: {_NOBODY.format(scenario.constraints, people)}", is_error=True)
        elif not casts and (fault := _drawing_problem(scenario)):
            yield Problem(where, f"{situation.label}: {fault}; or check the scenario together with its cast")


_NOBODY = "constraints: expected some that people of the cast meet, got {}, which none of {} do; widen them"


def _seatings(scenario: Scenario, cast: Cast, seating: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """The admissible seatings, found one by one."""
    constraints, seat = scenario.constraints, len(seating)
    if seat == len(scenario.seats):
        yield seating
        return
    for index, character in enumerate(cast.characters):
        fits = index not in seating and constraints.admits(seat, character)
        if fits and all(constraints.admits_pair(cast.between(other, index)) for other in seating):
            yield from _seatings(scenario, cast, (*seating, index))


def _drawing_problem(scenario: Scenario) -> ConstraintError | None:
    try:
        Casting(scenario)
    except ConstraintError as error:
        error.where = Where()  # the label of the situation says it
        return error
    return None


def _outcome_problem(scenario: Scenario) -> InvalidTaskError | None:
    """What is wrong with the outcome, whichever people are cast."""
    seats = range(len(scenario.seats))
    pairs = itertools.combinations(seats, 2)
    strangers = tuple(Relationship(seats=pair, kind=RelationshipKind.STRANGER) for pair in pairs)
    people = draw_characters(random.Random(0), len(seats))
    try:
        return outcome_problem(Task(id=scenario.id, scenario=scenario, characters=people, relationships=strangers))
    except InvalidTaskError as error:
        error.where = Where()  # the label of the situation says it
        return error


def _duplicates(situations: _Situations, others: _Situations) -> Iterator[Problem]:
    """Near-duplicates among scenarios of different ids, and of scenarios of ``others``."""
    before, here = _first_of_each(others), _first_of_each(situations)
    together = [*before, *here]
    for index, other, similarity in near_duplicates([situation.text for _, situation in together], len(before)):
        (where, situation), (other_where, double) = together[index], together[other]
        if situation.scenario.vignette == double.scenario.vignette:
            continue  # versions of one situation are meant to be alike
        sentence = (
            f"context: expected a situation of its own, got {similarity:.2f} of the phrases of {double.label}, "
            f"{other_where}, where {ALIKE:g} is too much; write another one, or leave one out"
        )
        yield Problem(where, f"{situation.label}: {situation.sentence(sentence)}")


def _first_of_each(situations: _Situations) -> list[tuple[str, Situation]]:
    first: dict[str, tuple[str, Situation]] = {}
    for where, situation in situations:
        first.setdefault(situation.scenario.id, (where, situation))
    return list(first.values())
