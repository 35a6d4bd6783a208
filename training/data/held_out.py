"""Held-out scenarios: what evaluation keeps and training must not see."""

from __future__ import annotations

from sotopia_env import tasks
from sotopia_env.tasks import STARTER, task_key


def evaluation_scenarios(source: str | None) -> dict[str, str]:
    """Returns the scenarios that must not be trained on, by
    :func:`~sotopia_env.tasks.task_key`, each with the id of a task.

    Args:
        source: ``starter``, or a task file; ``None`` reserves nothing.

    Raises:
        InvalidTaskError: the file cannot be read as tasks.
    """
    if source is None:
        return {}
    return {task_key(task): task.id for task in (tasks.starter_tasks() if source == STARTER else tasks.load(source))}
