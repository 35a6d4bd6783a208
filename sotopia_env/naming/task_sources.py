"""What the words on the command line stand for: task sources, matchups, evaluators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint

if TYPE_CHECKING:  # a command imports what it needs when it runs
    from sotopia_env.world.episode import Evaluator
    from sotopia_env.world.scenario import Task
    from sotopia_env.world.taskset import TaskSet

TASKS_PER_FAMILY = 5


def task_set(source: str, n: int | None, seed: int, level: str) -> TaskSet:
    """Returns the tasks that ``source`` names.

    Args:
        source: ``starter``, families joined by commas, ``all`` of them, or a ``.json`` or ``.jsonl`` file.
        n: how many; by default :data:`TASKS_PER_FAMILY` for each family, all that are there otherwise.
        seed: of generated tasks, or of the draw from those that are there.
        level: difficulty of generated tasks.

    Raises:
        UnknownNameError: no family and no file is called so.
        InvalidTaskError: the file cannot be read as tasks, or holds one that cannot be played and scored.
        InvalidValueError: ``source`` is empty, or there are not so many tasks.
    """
    from sotopia_env import tasks

    if not source.strip():
        raise InvalidValueError(f"tasks: expected 'starter', 'all', task families or a task file, got {source!r}")
    if source == "starter" or _is_file(source, tasks.FAMILIES):
        found = tasks.starter_tasks() if source == "starter" else tasks.load(source)
        return found if n is None else found.sample(n, seed)
    names = list(tasks.FAMILIES) if source == "all" else source.split(",")
    for name in names:
        if name not in tasks.FAMILIES:
            raise UnknownNameError(f"tasks: {name_hint(name, ['starter', 'all', *tasks.FAMILIES])}")
    return tasks.generate(names, TASKS_PER_FAMILY * len(names) if n is None else n, seed, level)


def _is_file(source: str, families: object) -> bool:
    if source == "all" or source in families:  # type: ignore[operator]
        return False
    return Path(source).suffix in (".json", ".jsonl") or "/" in source or Path(source).exists()


def pick(found: TaskSet, task_id: str | None) -> Task:
    """Returns the task called ``task_id``, the first one for ``None``."""
    if not len(found):
        raise InvalidValueError("tasks: expected at least one task, got none")
    return found[0] if task_id is None else found.get(task_id)


def check_seat(task: Task, seat: int) -> None:
    """Raises :class:`InvalidValueError` unless the task has this seat."""
    if seat >= len(task.agents):
        raise InvalidValueError(f"--seat: task {task.id!r} has seats 0 to {len(task.agents) - 1}, got {seat}")


def make_evaluator(spec: str) -> Evaluator | None:
    """Returns the evaluator that ``spec`` names; ``none`` is none."""
    from sotopia_env import naming

    return None if spec == "none" else naming.make_evaluator(spec)
