"""Selections from a task set, such as the hard tasks of a rule or a published list of ids."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from sotopia_env.foundation.errors import InvalidTaskError, UnknownNameError
from sotopia_env.foundation.files import read_text, write_text_atomically
from sotopia_env.foundation.records import Line, Name, Record, read_record
from sotopia_env.world.taskset import TaskSet

SELECTIONS: Mapping[str, str] = {
    "everyday-hard-scripted": "everyday_hard_scripted.json",
    "published-hard": "published_hard.json",
}
"""Data files of the package's selections, by name."""


class HeldOut(Record):
    """The shrunken difference of one scenario, by episodes that did not choose it.

    Attributes:
        mean: the mean of the other policies minus that of the target, drawn towards the mean of all scenarios as far as
            the variation within scenarios explains the differences between them.
        low: the lower end of its 95 % interval.
        high: the upper end.
        values: the number of seats' values behind it.
    """

    mean: float
    low: float
    high: float
    values: int


class Entry(Record):
    """One task, or all tasks of one scenario.

    Attributes:
        scenario: id of the scenario.
        task: id of the task; ``None`` for all tasks of the scenario.
        seats: seats of the policy under test; ``None`` if unknown or irrelevant.
        gap: the gap that makes the task hard, ``high - low`` (:mod:`sotopia_env.reports.hard`).
        high: the greatest estimated maximum of all policies.
        by: the policy with that maximum.
        low: the target's estimated minimum.
        difference: mean of that policy minus mean of the target.
        held_out: how much better the others are by other episodes; ``None`` if none were given or none can tell.
    """

    scenario: Name
    task: Name | None = None
    seats: tuple[int, ...] | None = None
    gap: float | None = None
    high: float | None = None
    by: Line | None = None
    low: float | None = None
    difference: float | None = None
    held_out: HeldOut | None = None


class Selection(Record):
    """Selected tasks of a set, with the method of selection.

    Attributes:
        about: description of the selection.
        target: the policy for which the tasks are hard.
        policies: the policies that were compared.
        metric: the metric whose values were compared.
        evaluator: the evaluator of the metric.
        compared: number of tasks from which the hardest were selected.
        left_out: number of tasks that could not be compared.
        entries: the selected tasks.
    """

    about: Line
    target: Line | None = None
    policies: tuple[Line, ...] = ()
    metric: Line | None = None
    evaluator: Line | None = None
    compared: int | None = None
    left_out: int | None = None
    entries: tuple[Entry, ...] = Field(min_length=1)

    def save(self, path: str | Path) -> None:
        """Writes the selection as JSON, atomically."""
        write_text_atomically(Path(path), self.model_dump_json(indent=1, exclude_none=True) + "\n")

    def of(self, tasks: TaskSet) -> TaskSet:
        """Returns the selected tasks, in the order of the entries.

        Raises:
            InvalidTaskError: an entry has no task in ``tasks``.
        """
        selected = []
        for number, entry in enumerate(self.entries):
            own = [task for task in tasks if task.scenario.id == entry.scenario and entry.task in (None, task.id)]
            if not own:
                name, ids = "scenario", {task.scenario.id for task in tasks}
                if entry.task is not None:
                    name, ids = "task", {task.id for task in tasks}
                raise InvalidTaskError(
                    field=f"entries.{number}.{name}",
                    got=entry.task or entry.scenario,
                    valid=sorted(ids),
                    hint="select from the set that the ids are from",
                )
            selected += own
        return TaskSet(selected)


def read_selection(source: str | Path) -> Selection:
    """Returns a selection of the package by name, or the selection in a JSON file.

    Raises:
        UnknownNameError: ``source`` is neither a name nor the path of a ``.json`` file.
        InvalidTaskError: the file cannot be read, or does not contain a selection.
    """
    name = SELECTIONS.get(str(source))
    if name is not None:
        text = importlib.resources.files("sotopia_env").joinpath("data", name).read_text(encoding="utf-8")
    elif Path(source).suffix == ".json":
        text = read_text(source, InvalidTaskError)
    else:
        raise UnknownNameError(field="selection", got=source, valid=SELECTIONS, hint="or give the path of a .json file")
    return read_record(Selection, text, source, InvalidTaskError)
