"""Endless streams of procedural tasks from templates, scenarios and families, with drawn people or those of a cast.

Each task is a function of the stream's sources, its seed and the task's index, so a stream can start at any index and
keeps no state between draws.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from sotopia_env.foundation.errors import (
    ConstraintError,
    InvalidValueError,
    Verbatim,
    Where,
    check_whole,
)
from sotopia_env.foundation.files import replacement
from sotopia_env.tasks.families.family import Family
from sotopia_env.tasks.people import NameStock, draw_people, draw_relationships, people_texts, possible_kinds
from sotopia_env.tasks.templates import Template, instantiate
from sotopia_env.world.scenario import ADULT, RelationshipKind, Scenario, Task
from sotopia_env.world.taskset import Cast, TaskSet, admissible_seatings, casting_id, seat_characters

OLDEST_AT_WORK, RETIRED_FROM = 68, 58
"""The highest age of drawn people with an occupation, and the lowest age of retired ones."""

Source = Template | Scenario | Family


@dataclass(frozen=True, slots=True)
class _SeatOccupation:
    """An occupation with the range of ages at which a seat's constraints admit it."""

    occupation: str
    low: int
    high: int


class Casting:
    """A generator of castings: draws people and relationships that meet a scenario's constraints.

    Descriptions of the people suit any situation. Occupations and backstories are those of the package; occupations
    that the package does not know are taken from the words of the constraints.
    """

    def __init__(self, scenario: Scenario) -> None:
        """Checks that the constraints can be met.

        Raises:
            ConstraintError: no person can be drawn for a seat, or no backstory states the facts; the message names the
                scenario.
        """
        self.scenario = scenario
        constraints = scenario.constraints
        try:
            self._kinds = possible_kinds(constraints.relationships or tuple(RelationshipKind), constraints.facts)
        except ConstraintError as error:
            where = Where(record=f"scenario {scenario.id!r}")
            raise ConstraintError.of(error, within="constraints", where=where) from None
        self._jobs = [self._seat_jobs(seat) for seat in range(len(scenario.seats))]
        self._names = NameStock.without()

    def _seat_jobs(self, seat: int) -> list[_SeatOccupation]:
        constraints = self.scenario.constraints
        words = constraints.occupations[seat] if constraints.occupations else ()
        low, high = constraints.ages[seat] if constraints.ages else (21, OLDEST_AT_WORK)
        if set(self._kinds) == {RelationshipKind.ROMANTIC}:
            low = max(low, ADULT)
        jobs = [
            _SeatOccupation(job, max(low, _ages(job)[0]), min(high, _ages(job)[1]))
            for job in people_texts().occupations
        ]
        jobs = [job for job in jobs if not words or any(word.casefold() in job.occupation for word in words)]
        jobs = [job for job in jobs if job.low <= job.high]
        # The words of the constraints are occupations too: "pianist" needs no entry in the package's list.
        jobs = jobs or [_SeatOccupation(word, low, high) for word in words if low <= high]
        if not jobs:
            raise ConstraintError(
                field=f"constraints.ages.{seat}",
                expected=f"ages at which people have one of the known occupations ({ADULT} and above)",
                got=Verbatim(f"{low} to {high}"),
                hint="widen them, or name occupations",
                where=Where(record=f"scenario {self.scenario.id!r}"),
            )
        return jobs

    def draw(self, number: int, seed: int) -> Task:
        """Returns the casting ``number`` of the sequence fixed by ``seed``; the task's id is ``scenario/number``."""
        # Seeded by the vignette, not the id: the same people play all versions of a situation.
        rng = random.Random(f"{self.scenario.vignette} {seed} {number}")
        jobs = [rng.choice(jobs) for jobs in self._jobs]
        ages = [rng.randint(job.low, job.high) for job in jobs]
        characters = draw_people(rng, ages, [job.occupation for job in jobs], self._names)
        return Task(
            id=casting_id(self.scenario.id, number),
            scenario=self.scenario,
            characters=characters,
            relationships=draw_relationships(rng, characters, self._kinds, self.scenario.constraints.facts),
        )


class CastCasting:
    """A generator of castings like :class:`Casting`, with the characters of a cast."""

    def __init__(self, scenario: Scenario, cast: Cast) -> None:
        """Finds all seatings that meet the scenario's constraints.

        Raises:
            ConstraintError: there are no such seatings; the message names the scenario.
        """
        self.scenario, self.cast = scenario, cast
        self._seatings = admissible_seatings(scenario, cast)
        self._shuffled: tuple[tuple[int, int], list[tuple[int, ...]]] | None = None
        if not self._seatings:
            raise ConstraintError(
                f"no seating of the {len(cast.characters)} characters meets the scenario's constraints",
                field="cast",
                hint="leave the cast out, or widen the constraints",
                where=Where(record=f"scenario {scenario.id!r}"),
            )

    def draw(self, number: int, seed: int) -> Task:
        """Returns the casting ``number`` of the sequence fixed by ``seed``; a seating repeats only after all others."""
        round_, index = divmod(number, len(self._seatings))
        # The shuffle of the latest round is cached, because consecutive tasks are mostly from one round.
        if self._shuffled is None or self._shuffled[0] != (seed, round_):
            rng = random.Random(f"{self.scenario.vignette} {seed} {round_}")
            self._shuffled = (seed, round_), rng.sample(self._seatings, len(self._seatings))
        return seat_characters(self.scenario, self.cast, self._shuffled[1][index], casting_id(self.scenario.id, number))


def _ages(occupation: str) -> tuple[int, int]:
    return (RETIRED_FROM, 150) if occupation.startswith("retired") else (ADULT, OLDEST_AT_WORK)


class TaskStream:
    """An endless sequence of tasks in which the sources take turns.

    With ``n`` sources, task ``k`` is number ``k // n`` of source ``k % n``. Equal sources, seed and index give equal
    tasks.
    """

    def __init__(self, sources: Iterable[Source], seed: int, level: str = "medium", cast: Cast | None = None) -> None:
        """Checks the sources without drawing a task.

        Args:
            sources: templates, scenarios (of two or more seats) and families.
            seed: seed of the sequence, from 0.
            level: difficulty level of the families' tasks.
            cast: the characters for the scenarios, subject to their constraints; ``None`` draws people. Templates and
                families always draw people.

        Raises:
            InvalidValueError: ``sources`` is empty, contains another type or the same id twice; or ``seed`` is not a
                non-negative integer.
            ConstraintError: drawn people or the cast cannot meet a scenario's constraints.
        """
        check_whole("seed", seed, 0)
        sources = list(sources)
        self._draws = [_draw_of(source, index, seed, level, cast) for index, source in enumerate(sources)]
        ids = [source.name if isinstance(source, Family) else source.id for source in sources]
        if duplicates := [name for index, name in enumerate(ids) if name in ids[:index]]:
            raise InvalidValueError(field="sources", expected="different ids", got=duplicates[0])
        if not ids:
            raise InvalidValueError(field="sources", expected="at least one template, scenario or family")

    @property
    def width(self) -> int:
        """The number of sources."""
        return len(self._draws)

    def task(self, index: int) -> Task:
        """Returns the task at ``index``, a whole number of at least 0."""
        check_whole("index", index, 0)
        number, source = divmod(index, len(self._draws))
        return self._draws[source](number)

    def tasks(self, start: int = 0) -> Iterator[Task]:
        """Yields the tasks from index ``start`` on, without end."""
        return map(self.task, itertools.count(start))

    def take(self, n: int) -> TaskSet:
        """Returns the first ``n`` tasks."""
        check_whole("n", n, 0)
        return TaskSet([self.task(index) for index in range(n)])

    def save(
        self, path: str | PathLike[str], n: int, start: int = 0, advance: Callable[[int], object] | None = None
    ) -> None:
        """Writes ``n`` tasks from index ``start`` on as JSON Lines; tasks are drawn while they are written.

        The file appears when it is complete.

        Args:
            path: path of the file.
            n: number of tasks, from 1.
            start: index of the first task.
            advance: called with 1 after each task.

        Raises:
            InvalidValueError: ``n`` is not a positive integer, ``start`` is not a non-negative integer, or the file
                cannot be written.
        """
        check_whole("n", n, 1)
        check_whole("start", start, 0)
        try:
            with replacement(Path(path)) as file:
                for task in map(self.task, range(start, start + n)):
                    file.write(task.model_dump_json().encode() + b"\n")
                    if advance is not None:
                        advance(1)
        except OSError as error:
            raise InvalidValueError(f"cannot be written ({error.strerror})", where=path) from None


def _draw_of(source: Source, index: int, seed: int, level: str, cast: Cast | None) -> Callable[[int], Task]:
    """Returns the function that draws the tasks of one source by number."""
    if isinstance(source, Template):
        return partial(instantiate, source, seed=seed)
    if isinstance(source, Family):
        return partial(source.generate, seed=seed, level=level)
    if isinstance(source, Scenario):
        casting = Casting(source) if cast is None else CastCasting(source, cast)
        return partial(casting.draw, seed=seed)
    raise InvalidValueError(field=f"sources.{index}", expected="a template, scenario or family", got=source)


def stream(sources: Iterable[Source], seed: int, start: int = 0, level: str = "medium") -> Iterator[Task]:
    """Yields tasks without end, in which ``sources`` take turns; see :class:`TaskStream`."""
    return TaskStream(sources, seed, level).tasks(start)
