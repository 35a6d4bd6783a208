"""Readers of files of tasks, or of scenarios and templates, optionally with a cast for the scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import ConstraintError, InvalidTaskError, InvalidValueError
from sotopia_env.tasks.checks import check
from sotopia_env.tasks.procedural import Source, TaskStream
from sotopia_env.tasks.templates import TEMPLATE_FIELDS, Template
from sotopia_env.world.scenario import Scenario, Task
from sotopia_env.world.taskset import RECORD_KEYS, Cast, Location, TaskSet, read_values, to_record

Record = Task | Template | Scenario | Cast
_TELLING: Mapping[str, type[Record]] = dict(zip(RECORD_KEYS, (Task, Template, Scenario, Cast), strict=True))
_LIKELY: tuple[type[Record], ...] = (Cast, Scenario, Task, Template)
"""Kinds in order of preference for a record with equally many fields of several kinds."""
CASTINGS = 5
"""Default number of tasks per source (SOTOPIA casts each scenario five times)."""


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """Sources of tasks with open seats.

    Attributes:
        sources: templates, scenarios or families.
        cast: the characters for the scenarios; ``None`` draws people.
    """

    sources: Sequence[Source]
    cast: Cast | None = None

    def stream(self, seed: int, level: str = "medium", cast: Cast | None = None) -> TaskStream:
        """Returns a stream of tasks.

        Args:
            seed: seed of the stream.
            level: difficulty level of families' tasks.
            cast: characters to use instead of the sources' own cast.

        Raises:
            InvalidValueError: as for :class:`TaskStream`.
            ConstraintError: as for :class:`TaskStream`.
        """
        return TaskStream(self.sources, seed, level, cast or self.cast)


def kind_of(raw: Any) -> type[Record]:
    """Returns the kind of a record by its characteristic field, or else the kind that shares most fields with it."""
    if not isinstance(raw, dict):
        return Task
    # The characteristic field may be misspelt: the message should then be about that field, not about the kind.
    # ``characters`` is a field of tasks and casts, of which only tasks have an id.
    telling = [key for key in RECORD_KEYS if key in raw and (key != "characters" or "id" not in raw)]
    return (
        _TELLING[telling[0]] if telling else max(_LIKELY, key=lambda kind: len(raw.keys() & kind.model_fields.keys()))
    )


def load(path: str | PathLike[str], refused: list[str] | None = None) -> TaskSet:
    """Reads a file of tasks and checks each one; scenarios and templates give :data:`CASTINGS` tasks each.

    Arguments and exceptions are those of :func:`read_task_file`.
    """
    content = read_task_file(path, refused)
    return content if isinstance(content, TaskSet) else content.stream(0).take(CASTINGS * len(content.sources))


def read_task_file(path: str | PathLike[str], refused: list[str] | None = None) -> TaskSet | OpenTasks:
    """Reads a file of tasks, or of scenarios and templates, and checks that each one can be played and scored.

    Args:
        path: path of a ``.json``, ``.jsonl`` or ``.yaml`` file.
        refused: list to which a sentence is appended for every record that is skipped because it cannot be used;
            ``None`` raises the first error.

    Raises:
        InvalidTaskError: a record is invalid (see :func:`~sotopia_env.tasks.checks.check`), the file has no usable
            record, or it mixes tasks with scenarios. The message names file, line, field, value and nearest valid name.
    """
    if not isinstance(path, str | PathLike):
        raise InvalidValueError(field="path", expected="the path of a task file", got=path)
    reading, problems = _Reading(), refused if refused is not None else []
    for location, raw in read_values(Path(path), refused):
        try:
            reading.add(location, raw)
        except InvalidTaskError as error:
            if refused is None:
                raise
            refused.append(str(error))
    # Sources are checked after the whole file was read, because the cast may be its last record.
    for location, source in list(reading.sources.values()):
        try:
            _check_source(location, source, reading.cast)
        except InvalidTaskError as error:
            if refused is None:
                raise
            refused.append(str(error))
            del reading.sources[source.id]
    if not reading.tasks and not reading.sources:
        hint = f"the first one refused: {problems[0]}" if problems else ""
        raise InvalidTaskError(expected="at least one task, scenario or template", hint=hint, where=path)
    return reading.content


class _Reading:
    """The records of a file that have been read so far."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.sources: dict[str, tuple[Location, Template | Scenario]] = {}
        self.cast: Cast | None = None

    @property
    def content(self) -> TaskSet | OpenTasks:
        if self.tasks:
            return TaskSet(list(self.tasks.values()))
        return OpenTasks([source for _, source in self.sources.values()], self.cast)

    def add(self, location: Location, raw: Any) -> None:
        """Adds a record; raises :class:`InvalidTaskError` if it is invalid or does not go with the other records."""
        record = to_record(raw, kind_of(raw), location, TEMPLATE_FIELDS)
        if isinstance(record, Cast):
            if self.cast is not None:
                raise InvalidTaskError("a second cast in one file", hint="merge the casts", where=location.where)
            self.cast = record
        elif record.id in self.tasks or record.id in self.sources:
            raise InvalidTaskError(
                "ids must be unique", field="id", got=record.id, hint="rename one of them", where=location.of("id")
            )
        elif isinstance(record, Task):
            try:
                check(record)
            except InvalidTaskError as error:
                raise InvalidTaskError.of(error, where=location.of(error.field)) from None
            self.tasks[record.id] = record
        else:
            self.sources[record.id] = location, record
        if self.tasks and (self.sources or self.cast):
            raise InvalidTaskError(
                "a file contains either tasks or scenarios and templates with open seats, not both",
                hint="put them into two files",
                where=location.where,
            )


def _check_source(location: Location, source: Template | Scenario, cast: Cast | None) -> None:
    """Checks that the source can be cast, and that its first task can be played and scored."""
    try:
        check(TaskStream([source], 0, cast=cast).task(0))
    except (ConstraintError, InvalidTaskError) as error:
        raise InvalidTaskError.of(error, where=location.of(error.field.removeprefix("scenario."))) from None
