"""Rows of a data set: a seat of a task in each."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.records import read_record
from sotopia_env.world import Task

COLUMNS = ("task", "partner", "focal", "seed")
"""The columns of :func:`rows`."""
PAYMENT = ("evaluator", "scalarisation", "turns")
"""Columns for how a seat is paid, which rows may have: options of :class:`~sotopia_env.adapters.seat.Seats`."""


def rows(
    tasks: Iterable[Task], partner: str | Mapping[str, str] = "boulware", seed: int = 0, **payment: str
) -> Iterator[dict[str, Any]]:
    """Yields the arguments of :meth:`sotopia_env.adapters.seat.TextSeat.against` for every seat of every task.

    Args:
        tasks: the tasks.
        partner: the name of the policy in all other seats, or names by those of seats
            (:mod:`sotopia_env.naming.seats`).
        seed: the seed of the first task's episodes; the next task's is one more.
        payment: the columns :data:`PAYMENT`, such as ``turns="belief"``.

    Raises:
        UnknownNameError: there is no such column.
    """
    refuse_unknown("rows", payment, PAYMENT)
    for number, task in enumerate(tasks):
        for focal in range(len(task.agents)):
            yield {"task": task.model_dump_json(), "partner": partner, "focal": focal, "seed": seed + number, **payment}


def read_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the :data:`COLUMNS` and :data:`PAYMENT` of a row; others are the host's and are ignored.

    Raises:
        InvalidValueError: there is no task.
        UnknownNameError: a column is missing, and another has nearly its name.
    """
    missing = [name for name in COLUMNS if name not in row]
    for name in row:
        # Hosts have columns of their own, so only a name that can hardly be anything else is refused.
        if name not in COLUMNS and difflib.get_close_matches(name, missing, 1, 0.8):
            raise UnknownNameError(field="row", got=name, valid=missing)
    if "task" in missing:
        raise InvalidValueError(field="row", expected="a column 'task'", got=[*row], hint="make it with rows(tasks)")
    values = {name: row[name] for name in (*COLUMNS, *PAYMENT) if row.get(name) is not None}
    # Data sets have numbers of NumPy.
    return values | {name: int(values[name]) for name in ("focal", "seed") if name in values}


def refuse_unknown(field: str, names: Iterable[str], valid: Iterable[str]) -> None:
    """Raises :class:`UnknownNameError` for the first of the names that is not valid, which the host would ignore."""
    valid = [*valid]
    for name in names:
        if name not in valid:
            raise UnknownNameError(field=field, got=name, valid=valid)


def read_task(source: Mapping[str, Any] | str, seed: int) -> Task:
    """Returns a task from its JSON, or task number ``seed`` of a set, which repeats after its last task."""
    if isinstance(source, str) and not source.lstrip().startswith("{"):
        tasks = naming.task_set(source, None, seed, "medium")
        return tasks[seed % len(tasks)]
    text = source if isinstance(source, str) else json.dumps(source)
    return read_record(Task, text, "task")
