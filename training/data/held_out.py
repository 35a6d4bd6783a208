"""Held-out scenarios: what evaluation keeps and training must not see."""

from __future__ import annotations

from collections.abc import Mapping

from sotopia_env import tasks
from sotopia_env.errors import InvalidValueError
from sotopia_env.naming import SHIPPED
from sotopia_env.tasks import task_key


def evaluation_scenarios(source: str | None) -> dict[str, str]:
    """Returns the scenarios that must not be trained on, by
    :func:`~sotopia_env.tasks.task_key`, each with the id of a task.

    Args:
        source: ``starter``, ``everyday``, or a task file; ``None`` reserves nothing.

    Raises:
        InvalidTaskError: the file cannot be read as tasks.
    """
    if source is None:
        return {}
    task_set = SHIPPED[source]() if source in SHIPPED else tasks.load(source)
    return {task_key(task): task.id for task in task_set}


def check_not_reserved(
    scenario: str, reserved: Mapping[str, str], *, got: str = "", field: str = "episode", file: str = ""
) -> None:
    """Raises :class:`InvalidValueError` if a scenario is kept for evaluation.

    Args:
        scenario: its key.
        reserved: see :func:`evaluation_scenarios`.
        got: the id of the episode or task that is to be trained on.
        field: which of the two it is, or the setting that names it.
        file: it is read from.
    """
    if scenario in reserved:
        raise InvalidValueError(
            f"its scenario is kept for evaluation (task {reserved[scenario]!r})",
            field=field,
            got=got or ...,
            hint="training on it would make the evaluation worthless",
            where=file,
        )
