"""Task sets by name: the shipped sets, generated families, or a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.naming import grammar
from sotopia_env.records import explain
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


def task_set(
    source: str, n: int | None, seed: int, level: str, split: str | None = None, refused: list[str] | None = None
) -> TaskSet:
    """Returns the tasks that ``source`` names.

    Args:
        source: one of :data:`SHIPPED`, families joined by commas, ``all`` of them, or a file: ``.json``,
            ``.jsonl`` or ``.yaml``.
        n: how many; by default :data:`TASKS_PER_FAMILY` for each family, the whole set otherwise.
        seed: of generated tasks, or of the draw from a set.
        level: difficulty of generated tasks; checked for every source.
        split: only tasks of this split; ``n`` are drawn from it.
        refused: a list for what is wrong with records of a file that are left out; ``None`` raises at the first one.

    Raises:
        UnknownNameError: no family and no file is called so, or no level or split.
        InvalidTaskError: the file cannot be read as tasks, or holds one that cannot be played and scored.
        InvalidValueError: ``source`` is empty, or there are not so many tasks.
    """
    if not source.strip():
        sets = ", ".join(map(repr, SHIPPED))
        raise InvalidValueError(f"tasks: expected {sets}, 'all', task families or a task file, got {source!r}")
    if level not in tasks.LEVELS:
        raise UnknownNameError(f"level: {name_hint(level, tasks.LEVELS)}")
    if source in SHIPPED or _is_file(source, tasks.FAMILIES):
        collection = SHIPPED[source]() if source in SHIPPED else tasks.load(source, refused)
        if split is not None:
            collection = _in_split(collection, split)
            if not len(collection):
                raise InvalidValueError(f"split: expected tasks in the split {split!r} of {source!r}, got none")
        return collection if n is None else collection.sample(n, seed)
    names = list(tasks.FAMILIES) if source == "all" else grammar.split(source)
    for name in names:
        if name not in tasks.FAMILIES:
            raise UnknownNameError(f"tasks: {name_hint(name, [*SHIPPED, 'all', *tasks.FAMILIES])}")
    count = TASKS_PER_FAMILY * len(names) if n is None else n
    if split is None:
        return tasks.generate(names, count, seed, level)
    return _generate_in_split(names, count, seed, level, split)


STREAMED: Mapping[str, Callable[[], Sequence[tasks.Source]]] = {
    "starter": tasks.starter_scenarios,
    "everyday": tasks.everyday_scenarios,
    "everyday-groups": tasks.everyday_templates,
}
"""The shipped scenarios and templates by name, for streams of tasks."""


def task_sources(source: str) -> Sequence[tasks.Source]:
    """Returns what a :class:`~sotopia_env.tasks.TaskStream` draws from.

    Args:
        source: one of :data:`STREAMED`, families joined by commas, ``all`` of them, or a ``.json`` or ``.jsonl`` file
            of templates or scenarios.

    Raises:
        UnknownNameError: no family and no file is called so.
        InvalidTaskError: the file cannot be read as templates or scenarios.
    """
    if source in STREAMED:
        return STREAMED[source]()
    if _is_file(source, tasks.FAMILIES):
        return tasks.read_sources(source)
    names = list(tasks.FAMILIES) if source == "all" else grammar.split(source)
    for name in names:
        if name not in tasks.FAMILIES:
            raise UnknownNameError(f"sources: {name_hint(name, [*STREAMED, 'all', *tasks.FAMILIES])}")
    return [tasks.family(name) for name in names]


def _in_split(collection: TaskSet, split: str) -> TaskSet:
    return collection.split(split)  # type: ignore[arg-type]  # names are checked there


def _generate_in_split(names: Sequence[str], n: int, seed: int, level: str, split: str) -> TaskSet:
    """The first ``n`` tasks of the families' sequences that fall into the split."""
    for factor in (2, 16, 128):  # of three splits the smallest has a tenth of the scenarios
        collection = _in_split(tasks.generate(names, factor * n, seed, level), split)
        if len(collection) >= n:
            return collection[:n]
    raise InvalidValueError(f"n: expected 0 to {len(collection)}, the tasks in the split {split!r}, got {n}")


def _is_file(source: str, families: Container[str]) -> bool:
    if source == "all" or source in families:
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
        raise UnknownNameError(f"{source}: rules: {name_hint(str(unknown[0]), names)}")
    try:
        rules: Rules = TypeAdapter(Rules).validate_python(raw)
    except ValidationError as error:
        raise InvalidValueError(f"{source}: rules.{explain(error, (), raw)}") from None
    return dataclasses.replace(rules, **{name: value for name, value in options.items() if value is not None})


def pick_task(collection: TaskSet, task_id: str | None) -> Task:
    """Returns the task called ``task_id``, the first one for ``None``."""
    if not len(collection):
        raise InvalidValueError("tasks: expected at least one task, got none")
    return collection[0] if task_id is None else collection.get(task_id)


def check_seat(task: Task, seat: int) -> None:
    """Raises :class:`InvalidValueError` unless the task has this seat."""
    if seat >= len(task.agents):
        raise InvalidValueError(f"seat: task {task.id!r} has seats 0 to {len(task.agents) - 1}, got {seat}")
