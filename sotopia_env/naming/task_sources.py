"""Factory of task sets by name: shipped sets, generated families, files, and task sources of other packages."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Where
from sotopia_env.foundation.validation import invalid
from sotopia_env.foundation.yaml_text import read_document
from sotopia_env.naming import grammar
from sotopia_env.naming.plugins import Plugins
from sotopia_env.tasks.families.registry import UNLISTED
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.scenario import Scenario, Task
from sotopia_env.world.taskset import YAML_SUFFIXES, Location, TaskSet

logger = logging.getLogger(__name__)
SHIPPED: Mapping[str, Callable[[], TaskSet]] = {
    "starter": tasks.starter_tasks,
    "everyday": tasks.everyday_tasks,
    "everyday-groups": tasks.everyday_group_tasks,
}
"""The task sets of the package by name; they are read on first use."""

TASK_PLUGINS: Plugins[Any] = Plugins("tasks", "sotopia.tasks", object)
"""The task sources of other packages: factories of a :class:`~sotopia_env.tasks.Family` or a sequence of tasks."""

_MOST_CASTINGS = 3  # castings that the warning about them lists


@dataclass(frozen=True, slots=True)
class _SourceRequest:
    """A parsed name of a task source, with the arguments passed beside it; options in the name take precedence.

    Attributes:
        head: the name without its options.
        rest: options that only the factory of another package can read.
        arguments: values of ``n``, ``seed``, ``level``, ``split`` and ``cast``.
    """

    head: str
    rest: str
    arguments: Mapping[str, Any]

    @classmethod
    def read(cls, source: str, **arguments: Any) -> _SourceRequest:
        head, text = grammar.split_options(source)
        parts = grammar.split(text) if text else []
        own = [part for part in parts if part.partition("=")[0].strip() in _OPTIONS]
        arguments |= grammar.read_options(f"tasks {head!r}", ",".join(own), _OPTIONS)
        if "level" in arguments and arguments["level"] not in tasks.LEVELS:
            raise UnknownNameError(field="level", got=arguments["level"], valid=tasks.LEVELS)
        return cls(head, ",".join(part for part in parts if part not in own), arguments)

    def material(self, refused: list[str] | None = None) -> TaskSet | tasks.OpenTasks:
        """The existing tasks, or the sources of tasks with open seats."""
        if self.head not in SHIPPED and not _is_file(self.head):
            material = self.generators()
        else:
            self._check_rest()
            material = SHIPPED[self.head]() if self.head in SHIPPED else tasks.read_task_file(self.head, refused)
        cast = self.arguments.get("cast")
        if cast is None:
            return material
        if isinstance(material, TaskSet) or not any(isinstance(source, Scenario) for source in material.sources):
            raise InvalidValueError(
                field="cast", expected="a file of scenarios", got=self.head, hint="its characters are fixed"
            )
        return dataclasses.replace(material, cast=tasks.read_cast(cast))

    def generators(self, field: str = "tasks") -> TaskSet | tasks.OpenTasks:
        """The named families, or the tasks of another package's factory; ``field`` is for messages."""
        names = list(tasks.FAMILIES) if self.head == "all" else grammar.split(self.head)
        sources = [tasks.family(name) if name in tasks.FAMILIES else self._plugin(name, field) for name in names]
        if all(name in tasks.FAMILIES for name in names):
            self._check_rest()
        if len(sources) == 1 and isinstance(sources[0], TaskSet):
            return sources[0]
        for name, source in zip(names, sources, strict=True):
            if not isinstance(source, tasks.Family):
                raise InvalidValueError(field="tasks", expected="families between the commas", got=name)
        return tasks.OpenTasks(sources)

    def _plugin(self, name: str, field: str) -> Any:
        source = TASK_PLUGINS.make(f"{name}:{self.rest}" if self.rest else name, self.arguments)
        if source is None:
            names = [*SHIPPED, "all", *tasks.FAMILIES, *UNLISTED, *TASK_PLUGINS.names]
            raise UnknownNameError(field=field, got=name, valid=names, hint="your own: package.module:factory")
        # Registered, so that scripted policies use the family's words in its tasks.
        if isinstance(source, tasks.Family):
            return tasks.register_family(source)
        if isinstance(source, TaskSet | list | tuple) and len(source):
            return source if isinstance(source, TaskSet) else TaskSet(source)
        where = Where(record=f"tasks {name!r}")
        raise InvalidValueError(expected="a Family or tasks", got=source, where=where)

    def _check_rest(self) -> None:
        # All remaining options are unknown; reading them raises the error that suggests the nearest one.
        grammar.read_options(f"tasks {self.head!r}", self.rest, _OPTIONS)


def task_set(
    source: str, n: int | None, seed: int, level: str, split: str | None = None, refused: list[str] | None = None
) -> TaskSet:
    """Returns the tasks that ``source`` names.

    Args:
        source: one of :data:`SHIPPED`; families joined by commas, or ``all`` of them; a file (``.json``, ``.jsonl`` or
            ``.yaml``) of tasks or scenarios; or a task source of another package (:mod:`sotopia_env.naming.plugins`,
            group ``sotopia.tasks``). It may end in options, which take precedence over the other arguments:
            ``bargaining:level=hard,n=1000``. A factory with parameters ``n``, ``seed``, ``level`` or ``split`` is
            passed them. Scenarios are played by the cast of the option ``cast``, the cast in their file, or drawn
            people; a logged warning names them.
        n: number of tasks; by default :data:`~sotopia_env.tasks.CASTINGS` for each family or scenario, and all tasks
            of a set.
        seed: seed of generated tasks and drawn people, or of the sample from a set.
        level: difficulty level of generated tasks; checked for every source.
        split: the split from which tasks are taken; ``None`` uses all tasks.
        refused: list to which a sentence is appended for every invalid record of a file; ``None`` raises the first
            error.

    Raises:
        UnknownNameError: the source, level, split or an option is unknown.
        InvalidTaskError: the file cannot be read as tasks, or contains a task that cannot be played and scored.
        InvalidValueError: ``source`` is empty, or there are fewer than ``n`` tasks.
    """
    request = _read(source, n=n, seed=seed, level=level, split=split)
    n, seed, level, split = (request.arguments[name] for name in ("n", "seed", "level", "split"))
    collection = request.material(refused)
    if isinstance(collection, tasks.OpenTasks):
        count = tasks.CASTINGS * len(collection.sources) if n is None else n
        stream = collection.stream(seed, level)
        selection = stream.take(count) if split is None else _take_in_split(stream, count, split)
        _log_castings(request, collection, selection)
        return selection
    if split is not None:
        collection = _in_split(collection, split)
        if not len(collection):
            raise InvalidValueError(f"it contains no task of {source!r}", field="split", got=split)
    return collection if n is None else collection.sample(n, seed)


def episode_tasks(source: str, seed: int = 0, level: str = "medium") -> TaskSet | tasks.TaskStream:
    """Returns the tasks from which an environment draws its episodes.

    Families and scenarios give an endless stream, unless ``source`` has the option ``n`` or ``split``. Arguments and
    exceptions are those of :func:`task_set`.
    """
    request = _read(source, n=None, seed=seed, level=level, split=None)
    if request.arguments["n"] is None and request.arguments["split"] is None:
        material = request.material()
        if isinstance(material, tasks.OpenTasks):
            return material.stream(request.arguments["seed"], request.arguments["level"])
    return task_set(source, None, seed, level)


_OPTIONS: Mapping[str, grammar.Reader] = {
    **grammar.readers_of(task_set, but=("source", "refused")),
    "cast": grammar.WORD,
}


def _log_castings(request: _SourceRequest, material: tasks.OpenTasks, selection: TaskSet) -> None:
    """Logs the characters that play the scenarios of a file."""
    # A warning, because a user who expects the file to fix the characters must learn that it does not.
    scenarios = {source.id for source in material.sources if isinstance(source, Scenario)}
    played = [task for task in selection if task.scenario.id in scenarios]
    castings = list(dict.fromkeys(", ".join(task.names.values()) for task in played))
    if castings:
        who = "drawn people" if material.cast is None else f"a cast of {len(material.cast.characters)}"
        more = f"; {len(castings) - _MOST_CASTINGS} more" if len(castings) > _MOST_CASTINGS else ""
        people = "; ".join(castings[:_MOST_CASTINGS]) + more
        sources = f"{len(scenarios)} scenario{'s' if len(scenarios) > 1 else ''}"
        logger.warning("%s: %d tasks of %s, played by %s: %s", request.head, len(played), sources, who, people)


def _read(source: str, **arguments: Any) -> _SourceRequest:
    if not source.strip():
        sets = ", ".join(map(repr, SHIPPED))
        raise InvalidValueError(field="tasks", expected=f"{sets}, 'all', task families or a task file", got=source)
    return _SourceRequest.read(source, **arguments)


STREAMED: Mapping[str, Callable[[], Sequence[tasks.Source]]] = {
    "starter": tasks.starter_scenarios,
    "everyday": tasks.everyday_scenarios,
    "everyday-groups": tasks.everyday_templates,
}
"""The shipped scenarios and templates by name, for streams of tasks."""


def task_sources(source: str) -> tasks.OpenTasks:
    """Returns the sources of a :class:`~sotopia_env.tasks.TaskStream`.

    Args:
        source: one of :data:`STREAMED`; families joined by commas (also those of other packages), or ``all`` of them;
            or a file of templates or scenarios.

    Raises:
        UnknownNameError: the source is unknown.
        InvalidTaskError: the file cannot be read as templates or scenarios.
        InvalidValueError: the source contains tasks, or its name has options.
    """
    if source in STREAMED:
        return tasks.OpenTasks(STREAMED[source]())
    request = _read(source)
    if request.arguments:
        raise InvalidValueError(field="sources", expected=f"a name without {', '.join(request.arguments)}", got=source)
    material = tasks.read_task_file(source) if _is_file(source) else request.generators("sources")
    if isinstance(material, TaskSet):
        raise InvalidValueError(field="sources", expected="families, templates or scenarios", got=source)
    return material


def _in_split(collection: TaskSet, split: str) -> TaskSet:
    return collection.split(split)  # type: ignore[arg-type]  # ``TaskSet.split`` checks the name


def _take_in_split(stream: tasks.TaskStream, n: int, split: str) -> TaskSet:
    """The first ``n`` tasks of the stream that belong to the split."""
    # The smallest split has a tenth of the scenarios, so a multiple of 16 is mostly enough; the last attempt bounds the
    # time for a source of few scenarios, none of which may belong to the split.
    for factor in (2, 16, 128):
        collection = _in_split(stream.take(factor * n), split)
        if len(collection) >= n:
            return collection[:n]
    raise InvalidValueError(field="n", expected=f"0 to {len(collection)}, the tasks in the split {split!r}", got=n)


def _is_file(source: str) -> bool:
    # A file or folder in the working directory must not hide a family of the same name.
    if source == "all" or source in tasks.FAMILIES:
        return False
    return Path(source).suffix in (".json", ".jsonl", *YAML_SUFFIXES) or "/" in source or Path(source).exists()


def task_rules(source: str, **options: Any) -> Rules:
    """Returns the rules of play under ``rules`` in a YAML task file; options that are not ``None`` override them.

    Raises:
        InvalidValueError: the file cannot be read, or its ``rules`` are invalid.
    """
    path = grammar.split_options(source)[0]
    document = read_document(path) if Path(path).suffix in YAML_SUFFIXES else None
    content = document.value if document is not None else None
    raw = (content.get("rules") or {}) if isinstance(content, dict) else {}
    names = [field.name for field in dataclasses.fields(Rules)]
    location = Location(Where(path), document, ("rules",))
    if isinstance(raw, dict) and (unknown := [str(name) for name in raw if name not in names]):
        where = location.of(unknown[0])
        raise UnknownNameError("unknown rule", field=f"rules.{unknown[0]}", got=unknown[0], valid=names, where=where)
    try:
        rules: Rules = TypeAdapter(Rules).validate_python(raw)
    except ValidationError as error:
        problem = invalid(error, names, raw)
        raise InvalidValueError.of(problem, within="rules", where=location.of(problem.field)) from None
    return dataclasses.replace(rules, **{name: value for name, value in options.items() if value is not None})


def pick_task(collection: TaskSet, task_id: str | None) -> Task:
    """Returns the task with this id or the first task of the scenario with this id; the first of all for ``None``."""
    if not len(collection):
        raise InvalidValueError(field="tasks", expected="at least one task")
    if task_id is None:
        return collection[0]
    castings = [task for task in collection if task.scenario.id == task_id]
    is_task = any(task.id == task_id for task in collection)
    return castings[0] if castings and not is_task else collection.get(task_id)


def check_seat(task: Task, seat: int) -> None:
    """Raises :class:`InvalidValueError` unless the task has this seat."""
    if seat >= len(task.agents):
        raise InvalidValueError(field="seat", expected=f"0 to {len(task.agents) - 1} in task {task.id!r}", got=seat)
