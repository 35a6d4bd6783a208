"""The linter's report: errors and warnings about the records of files and built-in sets."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import ConstraintError, InvalidTaskError, Where
from sotopia_env.tasks.checks import outcome_problem
from sotopia_env.tasks.lint.situations import LintedSituation, people_sentences, scenario_sentences
from sotopia_env.tasks.lint.texts import ALIKE, near_duplicates
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.procedural import CastCasting, Casting
from sotopia_env.tasks.task_files import CASTINGS, Record
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Task
from sotopia_env.world.taskset import Cast

Placed = tuple[str, Record]
"""A record with its location: file and line or number, or the name of a set."""


@dataclass(frozen=True, slots=True)
class LintProblem:
    """A problem of a record.

    Attributes:
        where: location of the record.
        sentence: description, which begins with the kind and id of the record and the field.
        is_error: whether the problem prevents the record from being read, played or scored; otherwise a warning.
    """

    where: str
    sentence: str
    is_error: bool = False

    def __str__(self) -> str:
        """The problem as one line."""
        return f"{self.where}: {self.sentence}" if self.is_error else f"{self.where}: warning: {self.sentence}"


def lint(records: Sequence[Placed], against: Sequence[Placed] = ()) -> list[LintProblem]:
    """Returns the problems of a set of records.

    Args:
        records: tasks, templates, scenarios and casts. If there are casts, their characters must be able to play the
            scenarios.
        against: another set, of whose situations ``records`` must not contain near-duplicates.
    """
    situations = [(where, LintedSituation.of(record)) for where, record in records if not isinstance(record, Cast)]
    casts = [record for _, record in records if isinstance(record, Cast)]
    others = [(where, LintedSituation.of(record)) for where, record in against if not isinstance(record, Cast)]
    problems = (_double_ids(situations), _constraints(situations, casts), _texts(situations), _people(records))
    return [*itertools.chain(*problems), *_duplicates(situations, others)]


_Situations = Iterable[tuple[str, LintedSituation]]


def _double_ids(situations: _Situations) -> Iterator[LintProblem]:
    locations: dict[str, str] = {}
    for where, situation in situations:
        if situation.label in locations:
            sentence = f"id: expected a unique id, got that of {locations[situation.label]}; rename one"
            yield LintProblem(where, f"{situation.label}: {sentence}", is_error=True)
        locations.setdefault(situation.label, where)


def _texts(situations: _Situations) -> Iterator[LintProblem]:
    """Problems of the scenarios' texts."""
    # A scenario occurs in as many tasks as it has castings; each of its problems is reported once.
    reported = set()
    for where, situation in situations:
        for sentence in scenario_sentences(situation):
            if (situation.key, sentence) in reported:
                continue
            reported.add((situation.key, sentence))
            yield LintProblem(where, f"{situation.label}: {situation.sentence(sentence)}")


def _people(records: Sequence[Placed]) -> Iterator[LintProblem]:
    """Problems of the characters' secrets."""
    # The same characters occur in many tasks; each problem is reported once.
    sentences = set()
    for where, record in records:
        if not isinstance(record, Task | Cast):
            continue
        label = f"task {record.id!r}" if isinstance(record, Task) else "cast"
        for secret, sentence in people_sentences(record):
            if (secret, sentence) not in sentences:
                sentences.add((secret, sentence))
                yield LintProblem(where, f"{label}: {sentence}")


def _constraints(situations: _Situations, casts: Sequence[Cast]) -> Iterator[LintProblem]:
    """Scenarios that cannot be cast or scored; tasks and templates were checked when they were read."""
    for where, situation in situations:
        scenario = situation.record
        if not isinstance(scenario, Scenario):
            continue
        if problem := _outcome_problem(scenario):
            yield LintProblem(where, f"{situation.label}: {problem}", is_error=True)
        # The first seating is enough, so the generator is not exhausted.
        if casts and not any(True for cast in casts for _ in _seatings(scenario, cast)):
            people = sum(len(cast.characters) for cast in casts)
            sentence = _NO_SEATING.format(scenario.constraints, people)
            yield LintProblem(where, f"{situation.label}: {sentence}", is_error=True)
        elif not casts and (fault := _drawing_problem(scenario)):
            yield LintProblem(where, f"{situation.label}: {fault}; or check the scenario together with its cast")
        elif not scenario.constraints.relationships and (sentence := _open_casting(scenario, casts)):
            yield LintProblem(where, f"{situation.label}: {sentence}")


_NO_SEATING = "constraints: expected some that characters of the cast meet, got {}, which none of {} do; widen them"


def _seatings(scenario: Scenario, cast: Cast, seating: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yields the admissible seatings that extend ``seating``, by depth-first search."""
    constraints, seat = scenario.constraints, len(seating)
    if seat == len(scenario.seats):
        yield seating
        return
    for index, character in enumerate(cast.characters):
        fits = index not in seating and constraints.admits(seat, character)
        if fits and all(constraints.admits_pair(cast.between(other, index)) for other in seating):
            yield from _seatings(scenario, cast, (*seating, index))


def _open_casting(scenario: Scenario, casts: Sequence[Cast]) -> str:
    """A sentence on castings with different relationships, of a scenario that admits any; empty if they have one."""
    # The texts may describe a couple or neighbours, in any words. Whatever they describe, castings that differ in the
    # relationship cannot all fit it, unless it fits every pair of people: only the author knows.
    examples: dict[RelationshipKind, str] = {}
    usable = [cast for cast in casts if any(True for _ in _seatings(scenario, cast))]
    castings: list[Casting | CastCasting] = [CastCasting(scenario, cast) for cast in usable]
    castings = castings if casts else [Casting(scenario)]
    for casting, number in itertools.product(castings, range(CASTINGS)):
        task = casting.draw(number, 0)
        people = " and ".join(map(_person, task.characters[:2]))
        examples.setdefault(task.relationships[0].kind, f"{people} ({task.relationships[0].kind.value})")
    if len(examples) < 2:
        return ""
    return (
        "constraints.relationships: expected the kinds of relationship that the texts fit, got none; its castings "
        f"differ, such as {' or '.join(list(examples.values())[:2])}; name the kinds, or write the characters"
    )


def _person(character: Character) -> str:
    parts = (character.gender, "" if character.age is None else str(character.age), character.occupation)
    return f"{character.name}, {' '.join(filter(None, parts))}"


def _drawing_problem(scenario: Scenario) -> ConstraintError | None:
    try:
        Casting(scenario)
    except ConstraintError as error:
        error.where = Where()  # the label of the situation names the scenario
        return error
    return None


def _outcome_problem(scenario: Scenario) -> InvalidTaskError | None:
    """The problem of the scenario's outcome, which does not depend on the cast."""
    # Reference points are those of a task; any characters will do.
    seats = range(len(scenario.seats))
    pairs = itertools.combinations(seats, 2)
    strangers = tuple(Relationship(seats=pair, kind=RelationshipKind.STRANGER) for pair in pairs)
    people = draw_characters(random.Random(0), len(seats))
    try:
        return outcome_problem(Task(id=scenario.id, scenario=scenario, characters=people, relationships=strangers))
    except InvalidTaskError as error:
        error.where = Where()  # the label of the situation names the scenario
        return error


def _duplicates(situations: _Situations, others: _Situations) -> Iterator[LintProblem]:
    """Near-duplicates among scenarios with different ids, and of scenarios in ``others``."""
    before, here = _first_of_each(others), _first_of_each(situations)
    together = [*before, *here]
    for index, other, similarity in near_duplicates([situation.text for _, situation in together], len(before)):
        (where, situation), (other_where, duplicate) = together[index], together[other]
        # Versions of one situation are alike by intention.
        if situation.scenario.vignette == duplicate.scenario.vignette:
            continue
        sentence = (
            f"context: expected a distinct situation, got a similarity of {similarity:.2f} with the phrases of "
            f"{duplicate.label}, {other_where} (limit {ALIKE:g}); rewrite or remove one of them"
        )
        yield LintProblem(where, f"{situation.label}: {situation.sentence(sentence)}")


def _first_of_each(situations: _Situations) -> list[tuple[str, LintedSituation]]:
    first: dict[str, tuple[str, LintedSituation]] = {}
    for where, situation in situations:
        first.setdefault(situation.scenario.id, (where, situation))
    return list(first.values())
