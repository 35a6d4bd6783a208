"""The design of a study: its conditions and tasks, the conversations in them, and how many people it needs.

An item of a play study, which is one conversation, names its condition by its repeat: the repeats of a task go through
all conditions in turn. So a study without factors is one with one condition.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.json_text import canonical_json, parse_json
from sotopia_env.foundation.records import read_record
from sotopia_env.people.studies.settings import PERSON, AnyStudy, PlayStudy, ValidateStudy
from sotopia_env.world import Task

CONDITION = "condition"
"""The entry of a participant's answers with the number of the condition in which the person stays."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition.

    Attributes:
        number: its number, from 0.
        levels: the level of each factor.
        study: the study in this condition, without factors.
    """

    number: int
    levels: Mapping[str, str]
    study: PlayStudy

    @property
    def name(self) -> str:
        """The levels in words; empty in a study without factors."""
        return ", ".join(f"{factor}: {level}" for factor, level in self.levels.items())


@lru_cache(maxsize=64)  # every step of every participant needs them
def conditions(study: PlayStudy) -> tuple[Condition, ...]:
    """Returns the conditions of a study; one without factors."""
    every = []
    for number, levels in enumerate(itertools.product(*(factor.levels for factor in study.factors))):
        variant = study.model_copy(update={"factors": ()})
        for factor, level in zip(study.factors, levels, strict=True):
            variant = variant.with_level(factor, level)
        names = {factor.name: level.name for factor, level in zip(study.factors, levels, strict=True)}
        every.append(Condition(number, names, variant))
    return tuple(every)


def item_parts(item: str) -> list[Any]:
    """Returns the parts of an item: task index, repeat, seat, and the id of the assignment it repeats, if any."""
    parts: list[Any] = parse_json(f'{{"item": {item}}}', "assignment")["item"]
    return parts


def of_item(study: PlayStudy, item: str) -> Condition:
    """Returns the condition of a conversation."""
    every = conditions(study)
    repeat: int = item_parts(item)[1]
    return every[repeat % len(every)]


def of_person(study: PlayStudy, answers: Mapping[str, Any]) -> Condition | None:
    """Returns the condition in which a participant with these answers stays; ``None`` if no condition is assigned."""
    every = conditions(study)
    number: int | None = answers.get(CONDITION, 0 if len(every) == 1 else None)
    return None if number is None else every[number]


def as_read(study: AnyStudy, answers: Mapping[str, Any]) -> AnyStudy:
    """Returns a study as a participant with these answers reads it: with the instructions of their condition."""
    condition = of_person(study, answers) if isinstance(study, PlayStudy) else None
    return study if condition is None else condition.study


def tasks_of(study: PlayStudy | ValidateStudy) -> Sequence[Task]:
    """Returns the tasks of a study, or of one condition of it, in order.

    Those of a library come first.

    Raises:
        UnknownNameError: no task has an id that the study names.
        InvalidValueError: the study names tasks of a library, and was not opened in a studio.
    """
    if len(study.frozen) != len(study.library):
        expected = "tasks that a studio has read: open this study in the studio that has them"
        raise InvalidValueError(field="library", expected=expected, got=study.library[0] if study.library else "none")
    own = [_frozen(text) for text in study.frozen]
    if own and not study.only:
        return own
    level = study.level if isinstance(study, PlayStudy) else "medium"
    tasks = _tasks(study.tasks, study.n, study.seed, level)
    by_id = {task.id: task for task in tasks}
    for name in study.only:
        if name not in by_id:
            raise UnknownNameError(field="only", got=name, valid=by_id)
    return [*own, *([by_id[name] for name in study.only] or tasks)]


@lru_cache(maxsize=256)
def _frozen(text: str) -> Task:
    return read_record(Task, text, "a task of the library")


@lru_cache(maxsize=32)  # every step of every participant needs them
def _tasks(source: str, n: int | None, seed: int, level: str) -> tuple[Task, ...]:
    return tuple(naming.task_set(source, n, seed, level))


def make_tasks(study: PlayStudy) -> None:
    """Makes the tasks of a study, which takes seconds for large sets: outside of transactions, in which others wait."""
    for condition in conditions(study):
        tasks_of(condition.study)


def plan(study: PlayStudy) -> list[tuple[str, int]]:
    """Returns the assignments of a study: one for each seat that a person takes, its conditions in turn.

    An item is one conversation, and its slots are its seats: with other participants as partners the seats of a
    conversation belong together, with a policy each seat is a conversation of its own.
    """
    by_condition = [_plan(condition.study, condition.number, len(conditions(study))) for condition in conditions(study)]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_condition, fillvalue=[]))
    return list(itertools.chain.from_iterable(turns))


def _plan(study: PlayStudy, number: int, count: int) -> list[list[tuple[str, int]]]:
    """The assignments of one condition among ``count``, by task and repeat."""
    groups = []
    for index, task in enumerate(tasks_of(study)):
        for repeat in range(number, study.repeats * count, count):
            seats = range(len(task.agents))
            if study.partner == PERSON:
                groups.append([(canonical_json([index, repeat]), seat) for seat in seats])
                continue
            # Each seat is in an item of its own, so the same person may play both sides of a task with a policy.
            chosen = {"first": seats[:1], "second": seats[1:2], "both": seats}[study.seats]
            groups.append([(canonical_json([index, repeat, seat]), seat) for seat in chosen])
    return groups


@dataclass(frozen=True, slots=True)
class Design:
    """What a study asks of how many people.

    Attributes:
        lines: sentences on its size and its assignment.
        conditions: name, number of conversations and number of people of each condition; empty without factors.
    """

    lines: tuple[str, ...]
    conditions: tuple[tuple[str, int, int], ...] = ()


def design(study: AnyStudy) -> Design:
    """Returns what a study asks of how many people; makes its tasks, so it may take seconds."""
    if isinstance(study, ValidateStudy):
        items = len(tasks_of(study)) * study.overlap
        people = max(study.overlap, math.ceil(items / study.per_person))
        text = f"{_count(len(tasks_of(study)), 'situation')}, each checked by {_count(study.overlap, 'person')}"
        return Design((f"{text}: about {_count(people, 'person')} in all.",))
    if not isinstance(study, PlayStudy):
        return Design((f"Each conversation is scored by {_count(study.overlap, 'person')}.",))
    seats = plan(study)
    talks = {item for item, _seat in seats}
    people = max(math.ceil(len(seats) / study.per_person), 1)
    lines = [f"{_count(len(talks), 'conversation')}, about {_count(people, 'participant')}."]
    if not study.factors:
        return Design(tuple(lines))
    places = Counter(of_item(study, item).number for item, _seat in seats)
    counts = Counter(of_item(study, item).number for item in talks)
    table = tuple((c.name, counts[c.number], math.ceil(places[c.number] / study.per_person)) for c in conditions(study))
    if study.assignment == "people":
        lines.append("Each person stays in one condition: the one with the fewest people when they agree to take part.")
    else:
        lines.append("The conversations of a person are in different conditions, the rarest first.")
    return Design(tuple(lines), table)


def _count(number: int, noun: str) -> str:
    plural = {"person": "people"}.get(noun, f"{noun}s")
    return f"{number:,} {noun if number == 1 else plural}"
