"""Task sets by name: the shipped sets, generated families, a file, or those of other packages."""

from __future__ import annotations

import dataclasses
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
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import YAML_SUFFIXES, TaskSet
from sotopia_env.yaml_text import read_yaml

TASKS_PER_FAMILY = 5
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
}


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for, in the name of a source or beside it: the name goes before.

    Attributes:
        head: the name without its options.
        rest: options that only the factory of another package can read.
        arguments: ``n``, ``seed``, ``level`` and ``split``.
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

    def stored(self, refused: list[str] | None = None) -> TaskSet | None:
        """The tasks of a shipped set or a file; ``None`` for a source of another kind."""
        if self.head not in SHIPPED and not _is_file(self.head):
            return None
        self._check_rest()
        return SHIPPED[self.head]() if self.head in SHIPPED else tasks.load(self.head, refused)

    def made(self, field: str = "tasks") -> TaskSet | list[tasks.Family]:
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
        return sources

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
            ``.yaml``), or what another package adds (:mod:`sotopia_env.naming.plugins`, group ``sotopia.tasks``); may
            end in options that go before the other arguments: ``bargaining:level=hard,n=1000``. A factory that has
            parameters ``n``, ``seed``, ``level`` or ``split`` gets them.
        n: how many; by default :data:`TASKS_PER_FAMILY` for each family, the whole set otherwise.
        seed: of generated tasks, or of the draw from a set.
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
    collection = request.stored(refused)
    families = request.made() if collection is None else collection
    if isinstance(families, list):
        count = TASKS_PER_FAMILY * len(families) if n is None else n
        if split is None:
            return tasks.generate(families, count, seed, level)
        return _generate_in_split(families, count, seed, level, split)
    collection = families
    if split is not None:
        collection = _in_split(collection, split)
        if not len(collection):
            raise InvalidValueError(f"no task of {source!r} is in it", field="split", got=split)
    return collection if n is None else collection.sample(n, seed)


def episode_tasks(source: str, seed: int = 0, level: str = "medium") -> TaskSet | tasks.TaskStream:
    """Returns tasks to draw from: without end where ``source`` names families and no ``n`` or ``split``.

    Arguments and exceptions are those of :func:`task_set`.
    """
    request = _read(source, n=None, seed=seed, level=level, split=None)
    if request.arguments["n"] is None and request.arguments["split"] is None and request.stored() is None:
        families = request.made()
        if isinstance(families, list):
            return tasks.TaskStream(families, request.arguments["seed"], request.arguments["level"])
    return task_set(source, None, seed, level)


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


def task_sources(source: str) -> Sequence[tasks.Source]:
    """Returns what a :class:`~sotopia_env.tasks.TaskStream` draws from.

    Args:
        source: one of :data:`STREAMED`, families joined by commas (also those of other packages), ``all`` of them, or
            a ``.json`` or ``.jsonl`` file of templates or scenarios.

    Raises:
        UnknownNameError: no family and no file is called so.
        InvalidTaskError: the file cannot be read as templates or scenarios.
        InvalidValueError: another package makes tasks of the name, not a family.
    """
    if source in STREAMED:
        return STREAMED[source]()
    if _is_file(source):
        return tasks.read_sources(source)
    request = _read(source)
    if request.arguments:
        raise InvalidValueError(field="sources", expected=f"a name without {', '.join(request.arguments)}", got=source)
    families = request.made("sources")
    if isinstance(families, TaskSet):
        raise InvalidValueError(field="sources", expected="families, templates or scenarios", got=source)
    return families


def _in_split(collection: TaskSet, split: str) -> TaskSet:
    return collection.split(split)  # type: ignore[arg-type]  # names are checked there


def _generate_in_split(families: Sequence[tasks.Family], n: int, seed: int, level: str, split: str) -> TaskSet:
    """The first ``n`` tasks of the families' sequences that fall into the split."""
    for factor in (2, 16, 128):  # of three splits the smallest has a tenth of the scenarios
        collection = _in_split(tasks.generate(families, factor * n, seed, level), split)
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
    is_yaml = Path(source).suffix in YAML_SUFFIXES
    content = read_yaml(source) if is_yaml else None
    raw = (content.get("rules") or {}) if isinstance(content, dict) else {}
    names = [field.name for field in dataclasses.fields(Rules)]
    if isinstance(raw, dict) and (unknown := [name for name in raw if name not in names]):
        raise UnknownNameError("unknown rule", field=f"rules.{unknown[0]}", got=unknown[0], valid=names, where=source)
    try:
        rules: Rules = TypeAdapter(Rules).validate_python(raw)
    except ValidationError as error:
        raise InvalidValueError.of(invalid(error, (), raw), within="rules", where=source) from None
    return dataclasses.replace(rules, **{name: value for name, value in options.items() if value is not None})


def pick_task(collection: TaskSet, task_id: str | None) -> Task:
    """Returns the task called ``task_id``, the first one for ``None``."""
    if not len(collection):
        raise InvalidValueError(field="tasks", expected="at least one task")
    return collection[0] if task_id is None else collection.get(task_id)


def check_seat(task: Task, seat: int) -> None:
    """Raises :class:`InvalidValueError` unless the task has this seat."""
    if seat >= len(task.agents):
        raise InvalidValueError(field="seat", expected=f"0 to {len(task.agents) - 1} in task {task.id!r}", got=seat)
