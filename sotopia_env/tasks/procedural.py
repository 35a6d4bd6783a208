"""Streams of procedural tasks: templates, scenarios or families with drawn people or those of a cast, without end.

Each task is a function of the stream's sources, its seed and the task's index, so a stream can begin anywhere and holds
nothing of what it has drawn.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from sotopia_env.errors import (
    ConstraintError,
    InvalidValueError,
    Verbatim,
    Where,
    check_whole,
)
from sotopia_env.files import replacement
from sotopia_env.tasks.families.family import Family
from sotopia_env.tasks.people import NameStock, draw_people, draw_relationships, people_texts, possible_kinds
from sotopia_env.tasks.templates import Template, instantiate
from sotopia_env.world.scenario import ADULT, RelationshipKind, Scenario, Task
from sotopia_env.world.taskset import Cast, TaskSet, admissible_seatings, casting_id, seat_characters

OLDEST_AT_WORK, RETIRED_FROM = 68, 58
"""Ages of drawn people with one of the occupations that this package knows."""

Source = Template | Scenario | Family


@dataclass(frozen=True, slots=True)
class _Job:
    """An occupation with the ages at which a scenario's constraints admit it."""

    occupation: str
    low: int
    high: int


class Casting:
    """Draws people and relationships for a scenario, whose constraints they meet.

    What is told of the people suits any scene; occupations and backstories are those of the package, or the words of
    the constraints.
    """

    def __init__(self, scenario: Scenario) -> None:
        """Checks that the constraints can be met.

        Raises:
            ConstraintError: nobody can be drawn for a seat, or no backstory states the facts; names the scenario.
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

    def _seat_jobs(self, seat: int) -> list[_Job]:
        constraints = self.scenario.constraints
        words = constraints.occupations[seat] if constraints.occupations else ()
        low, high = constraints.ages[seat] if constraints.ages else (21, OLDEST_AT_WORK)
        if set(self._kinds) == {RelationshipKind.ROMANTIC}:
            low = max(low, ADULT)
        jobs = [_Job(job, max(low, _ages(job)[0]), min(high, _ages(job)[1])) for job in people_texts().occupations]
        jobs = [job for job in jobs if not words or any(word.casefold() in job.occupation for word in words)]
        jobs = [job for job in jobs if job.low <= job.high] or [_Job(word, low, high) for word in words if low <= high]
        if not jobs:
            raise ConstraintError(
                field=f"constraints.ages.{seat}",
                expected=f"ages of somebody with one of the known occupations ({ADULT} and above)",
                got=Verbatim(f"{low} to {high}"),
                hint="widen them, or name occupations",
                where=Where(record=f"scenario {self.scenario.id!r}"),
            )
        return jobs

    def draw(self, number: int, seed: int) -> Task:
        """Returns the casting ``number`` of the sequence fixed by ``seed``, as a task called ``scenario/number``."""
        rng = random.Random(f"{self.scenario.vignette} {seed} {number}")  # the same people play all its versions
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
    """Draws seatings of a cast for a scenario, whose constraints they meet; see :class:`Casting`."""

    def __init__(self, scenario: Scenario, cast: Cast) -> None:
        """Finds all seatings.

        Raises:
            ConstraintError: the constraints admit none; names the scenario.
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
        """Returns the casting ``number`` of the sequence fixed by ``seed``; after all seatings they come again."""
        round_, index = divmod(number, len(self._seatings))
        if self._shuffled is None or self._shuffled[0] != (seed, round_):  # the next task is mostly of the same round
            rng = random.Random(f"{self.scenario.vignette} {seed} {round_}")
            self._shuffled = (seed, round_), rng.sample(self._seatings, len(self._seatings))
        return seat_characters(self.scenario, self.cast, self._shuffled[1][index], casting_id(self.scenario.id, number))


def _ages(occupation: str) -> tuple[int, int]:
    return (RETIRED_FROM, 150) if occupation.startswith("retired") else (ADULT, OLDEST_AT_WORK)


class TaskStream:
    """An endless sequence of tasks in which the sources take turns.

    Task ``k`` is number ``k // n`` of source ``k % n``, for ``n`` sources: equal sources, seed and index, equal task.
    """

    def __init__(self, sources: Iterable[Source], seed: int, level: str = "medium", cast: Cast | None = None) -> None:
        """Checks the sources; nothing is drawn for good yet.

        Args:
            sources: templates, scenarios (of two or more seats) and families.
            seed: 0 or more.
            level: of the families' tasks.
            cast: who plays the scenarios, as far as their constraints admit; ``None`` draws people. Templates and
                families draw their own in either case.

        Raises:
            InvalidValueError: there is no source, something is none, or two have one id; or ``seed`` is no whole
                number of at least 0.
            ConstraintError: a scenario's constraints cannot be met by drawn people, or by nobody of the cast.
        """
        check_whole("seed", seed, 0)
        sources = list(sources)
        self._draws = [_draw_of(source, index, seed, level, cast) for index, source in enumerate(sources)]
        ids = [source.name if isinstance(source, Family) else source.id for source in sources]
        if twice := [name for index, name in enumerate(ids) if name in ids[:index]]:
            raise InvalidValueError(field="sources", expected="different ids", got=twice[0])
        if not ids:
            raise InvalidValueError(field="sources", expected="at least one template, scenario or family")

    @property
    def width(self) -> int:
        """How many sources take turns."""
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
        """Writes ``n`` tasks from index ``start`` on as JSON Lines while they are drawn; a file is whole or not there.

        ``advance`` is called with 1 for each task that is written.

        Raises:
            InvalidValueError: ``n`` or ``start`` is no whole number of at least 1 or 0, or the file cannot be written.
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
    """Returns what draws the numbered tasks of one source."""
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
