"""Task sets by name: the starter set, generated families, or a file."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.naming.grammar import split
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet

TASKS_PER_FAMILY = 5


def task_set(source: str, n: int | None, seed: int, level: str) -> TaskSet:
    """Returns the tasks that ``source`` names.

    Args:
        source: ``starter``, families joined by commas, ``all`` of them, or a ``.json`` or ``.jsonl`` file.
        n: how many; by default :data:`TASKS_PER_FAMILY` for each family, the whole set otherwise.
        seed: of generated tasks, or of the draw from a set.
        level: difficulty of generated tasks.

    Raises:
        UnknownNameError: no family and no file is called so.
        InvalidTaskError: the file cannot be read as tasks, or holds one that cannot be played and scored.
        InvalidValueError: ``source`` is empty, or there are not so many tasks.
    """
    if not source.strip():
        raise InvalidValueError(f"tasks: expected 'starter', 'all', task families or a task file, got {source!r}")
    if source == "starter" or _is_file(source, tasks.FAMILIES):
        collection = tasks.starter_tasks() if source == "starter" else tasks.load(source)
        return collection if n is None else collection.sample(n, seed)
    names = list(tasks.FAMILIES) if source == "all" else split(source)
    for name in names:
        if name not in tasks.FAMILIES:
            raise UnknownNameError(f"tasks: {name_hint(name, ['starter', 'all', *tasks.FAMILIES])}")
    return tasks.generate(names, TASKS_PER_FAMILY * len(names) if n is None else n, seed, level)


def _is_file(source: str, families: Container[str]) -> bool:
    if source == "all" or source in families:
        return False
    return Path(source).suffix in (".json", ".jsonl") or "/" in source or Path(source).exists()


def pick_task(collection: TaskSet, task_id: str | None) -> Task:
    """Returns the task called ``task_id``, the first one for ``None``."""
    if not len(collection):
        raise InvalidValueError("tasks: expected at least one task, got none")
    return collection[0] if task_id is None else collection.get(task_id)


def check_seat(task: Task, seat: int) -> None:
    """Raises :class:`InvalidValueError` unless the task has this seat."""
    if seat >= len(task.agents):
        raise InvalidValueError(f"seat: task {task.id!r} has seats 0 to {len(task.agents) - 1}, got {seat}")
