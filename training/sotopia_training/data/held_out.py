"""Held-out scenarios: those reserved for evaluation, which training must not contain."""

from __future__ import annotations

from collections.abc import Mapping

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.naming import SHIPPED
from sotopia_env.tasks.open_scenario import task_key


def evaluation_scenarios(source: str | None) -> dict[str, str]:
    """Returns the reserved scenarios: :func:`~sotopia_env.tasks.open_scenario.task_key` to the id of a task.

    Args:
        source: ``starter``, ``everyday``, or a task file; ``None`` reserves no scenario.

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
    """Raises :class:`InvalidValueError` if a scenario is reserved for evaluation.

    Args:
        scenario: the key of the scenario.
        reserved: the result of :func:`evaluation_scenarios`.
        got: the id of the episode or task to train on.
        field: ``"episode"``, ``"task"``, or the setting that names it.
        file: the file that it was read from.
    """
    if scenario in reserved:
        raise InvalidValueError(
            f"its scenario is kept for evaluation (task {reserved[scenario]!r})",
            field=field,
            got=got or ...,
            hint="training on it would make the evaluation worthless",
            where=file,
        )
