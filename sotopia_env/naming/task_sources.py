"""Task sets by name: the shipped sets, generated families, a file, or those of other packages."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError, UnknownNameError, Where
from sotopia_env.naming import grammar
from sotopia_env.naming.plugins import Plugins
from sotopia_env.records import invalid
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.scenario import Scenario, Task
from sotopia_env.world.taskset import YAML_SUFFIXES, Location, TaskSet
from sotopia_env.yaml_text import read_document

logger = logging.getLogger(__name__)
SHIPPED: Mapping[str, Callable[[], TaskSet]] = {
    "starter": tasks.starter_tasks,
    "everyday": tasks.everyday_tasks,
    "everyday-groups": tasks.everyday_group_tasks,
}
"""The task sets of the package by name, read when they are asked for."""

TASK_PLUGINS: Plugins[Any] = Plugins("tasks", "sotopia.tasks", object)
"""The task sources of other packages: each makes a :class:`~sotopia_env.tasks.Family`, or a sequence of tasks."""

_OPTIONS: Mapping[str, grammar.Reader] = {
    "n": grammar.WHOLE,
    "seed": grammar.WHOLE,
    "level": grammar.WORD,
    "split": grammar.WORD,
    "cast": grammar.WORD,
}
_MOST_CASTINGS = 3


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for, in the name of a source or beside it: the name goes before.

    Attributes:
        head: the name without its options.
        rest: options that only the factory of another package can read.
        arguments: ``n``, ``seed``, ``level``, ``split`` and ``cast``.
    """

    head: str
    rest: str
    arguments: Mapping[str, Any]

    @classmethod
    def read(cls, source: str, **beside: Any) -> _Request:
        head, text = grammar.split_options(source)
        parts = grammar.split(text) if text else []
        own = [part for part in parts if part.partition("=")[0].strip() in _OPTIONS]
        arguments = beside | grammar.read_options(f"tasks {head!r}", ",".join(own), _OPTIONS)
        if "level" in arguments and arguments["level"] not in tasks.LEVELS:
            raise UnknownNameError(field="level", got=arguments["level"], valid=tasks.LEVELS)
        return cls(head, ",".join(part for part in parts if part not in own), arguments)

    def material(self, refused: list[str] | None = None) -> TaskSet | tasks.OpenTasks:
        """The tasks that are there, or what they are made of."""
        if self.head not in SHIPPED and not _is_file(self.head):
            material = self.made()
        else:
            self._check_rest()
            material = SHIPPED[self.head]() if self.head in SHIPPED else tasks.read_task_file(self.head, refused)
        cast = self.arguments.get("cast")
        if cast is None:
            return material
        if isinstance(material, TaskSet) or not any(isinstance(source, Scenario) for source in material.sources):
            raise InvalidValueError(
                field="cast", expected="a file of scenarios", got=self.head, hint="its people are fixed"
            )
        return dataclasses.replace(material, cast=tasks.read_cast(cast))

    def made(self, field: str = "tasks") -> TaskSet | tasks.OpenTasks:
        """The families that are named, or the tasks that another package makes; ``field`` is for messages."""
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
            known = [*SHIPPED, "all", *tasks.FAMILIES, *TASK_PLUGINS.names]
            raise UnknownNameError(field=field, got=name, valid=known, hint="your own: package.module:factory")
        if isinstance(source, tasks.Family):
            return tasks.register_family(source)
        if isinstance(source, TaskSet | list | tuple) and len(source):
            return source if isinstance(source, TaskSet) else TaskSet(source)
        where = Where(record=f"tasks {name!r}")
        raise InvalidValueError(expected="a Family or tasks", got=source, where=where)

    def _check_rest(self) -> None:
        grammar.read_options(f"tasks {self.head!r}", self.rest, _OPTIONS)  # names the nearest option


def task_set(
    source: str, n: int | None, seed: int, level: str, split: str | None = None, refused: list[str] | None = None
) -> TaskSet:
    """Returns the tasks that ``source`` names.

    Args:
        source: one of :data:`SHIPPED`, families joined by commas, ``all`` of them, a file (``.json``, ``.jsonl`` or
            ``.yaml``) of tasks or of scenarios, or what another package adds (:mod:`sotopia_env.naming.plugins`, group
            ``sotopia.tasks``); may end in options that go before the other arguments: ``bargaining:level=hard,n=1000``.
            A factory that has parameters ``n``, ``seed``, ``level`` or ``split`` gets them. Scenarios are played by
            drawn people, the cast in their file, or that of the option ``cast``; a warning is logged that says by whom.
        n: how many; by default :data:`~sotopia_env.tasks.CASTINGS` for each family or scenario, the whole set
            otherwise.
        seed: of generated tasks and drawn people, or of the draw from a set.
        level: difficulty of generated tasks; checked for every source.
        split: only tasks of this split; ``n`` are drawn from it.
        refused: a list for what is wrong with records of a file that are left out; ``None`` raises at the first one.

    Raises:
        UnknownNameError: no family and no file is called so, or no level, split or option.
        InvalidTaskError: the file cannot be read as tasks, or holds one that cannot be played and scored.
        InvalidValueError: ``source`` is empty, or there are not so many tasks.
    """
    request = _read(source, n=n, seed=seed, level=level, split=split)
    n, seed, level, split = (request.arguments[name] for name in ("n", "seed", "level", "split"))
    collection = request.material(refused)
    if isinstance(collection, tasks.OpenTasks):
        count = tasks.CASTINGS * len(collection.sources) if n is None else n
        drawn = collection.stream(seed, level)
        chosen = drawn.take(count) if split is None else _take_in_split(drawn, count, split)
        _tell_casting(request, collection, chosen)
        return chosen
    if split is not None:
        collection = _in_split(collection, split)
        if not len(collection):
            raise InvalidValueError(f"no task of {source!r} is in it", field="split", got=split)
    return collection if n is None else collection.sample(n, seed)


def episode_tasks(source: str, seed: int = 0, level: str = "medium") -> TaskSet | tasks.TaskStream:
    """Returns tasks to draw from: without end where ``source`` names families or scenarios and no ``n`` or ``split``.

    Arguments and exceptions are those of :func:`task_set`.
    """
    request = _read(source, n=None, seed=seed, level=level, split=None)
    if request.arguments["n"] is None and request.arguments["split"] is None:
        material = request.material()
        if isinstance(material, tasks.OpenTasks):
            return material.stream(request.arguments["seed"], request.arguments["level"])
    return task_set(source, None, seed, level)


def _tell_casting(request: _Request, material: tasks.OpenTasks, chosen: TaskSet) -> None:
    """Logs who plays the scenarios of a file, in a line."""
    scenarios = {source.id for source in material.sources if isinstance(source, Scenario)}
    played = [task for task in chosen if task.scenario.id in scenarios]
    castings = list(dict.fromkeys(", ".join(task.names.values()) for task in played))
    if castings:
        who = "drawn people" if material.cast is None else f"a cast of {len(material.cast.characters)}"
        more = f"; {len(castings) - _MOST_CASTINGS} more" if len(castings) > _MOST_CASTINGS else ""
        people = "; ".join(castings[:_MOST_CASTINGS]) + more
        sources = f"{len(scenarios)} scenario{'s' if len(scenarios) > 1 else ''}"
        logger.warning("%s: %d tasks of %s, played by %s: %s", request.head, len(played), sources, who, people)


def _read(source: str, **arguments: Any) -> _Request:
    if not source.strip():
        sets = ", ".join(map(repr, SHIPPED))
        raise InvalidValueError(field="tasks", expected=f"{sets}, 'all', task families or a task file", got=source)
    return _Request.read(source, **arguments)


STREAMED: Mapping[str, Callable[[], Sequence[tasks.Source]]] = {
    "starter": tasks.starter_scenarios,
    "everyday": tasks.everyday_scenarios,
    "everyday-groups": tasks.everyday_templates,
}
"""The shipped scenarios and templates by name, for streams of tasks."""


def task_sources(source: str) -> tasks.OpenTasks:
    """Returns what a :class:`~sotopia_env.tasks.TaskStream` draws from.

    Args:
        source: one of :data:`STREAMED`, families joined by commas (also those of other packages), ``all`` of them, or
            a file of templates or scenarios.

    Raises:
        UnknownNameError: no family and no file is called so.
        InvalidTaskError: the file cannot be read as templates or scenarios.
        InvalidValueError: there are tasks already, not what they are made of.
    """
    if source in STREAMED:
        return tasks.OpenTasks(STREAMED[source]())
    request = _read(source)
    if request.arguments:
        raise InvalidValueError(field="sources", expected=f"a name without {', '.join(request.arguments)}", got=source)
    material = tasks.read_task_file(source) if _is_file(source) else request.made("sources")
    if isinstance(material, TaskSet):
        raise InvalidValueError(field="sources", expected="families, templates or scenarios", got=source)
    return material


def _in_split(collection: TaskSet, split: str) -> TaskSet:
    return collection.split(split)  # type: ignore[arg-type]  # names are checked there


def _take_in_split(stream: tasks.TaskStream, n: int, split: str) -> TaskSet:
    """The first ``n`` tasks that fall into the split."""
    for factor in (2, 16, 128):  # of three splits the smallest has a tenth of the scenarios
        collection = _in_split(stream.take(factor * n), split)
        if len(collection) >= n:
            return collection[:n]
    raise InvalidValueError(field="n", expected=f"0 to {len(collection)}, the tasks in the split {split!r}", got=n)


def _is_file(source: str) -> bool:
    if source == "all" or source in tasks.FAMILIES:
        return False
    return Path(source).suffix in (".json", ".jsonl", *YAML_SUFFIXES) or "/" in source or Path(source).exists()


def task_rules(source: str, **options: Any) -> Rules:
    """Returns the rules of play: those under ``rules`` in a YAML task file, with the options that are not ``None``.

    Raises:
        InvalidValueError: the file cannot be read, or holds something else under ``rules``.
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
    """Returns the task called ``task_id``, or the first one of the scenario that is; the first of all for ``None``."""
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
