"""Rows of a data set: a seat of a task in each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sotopia_env import naming
from sotopia_env.foundation.records import read_record
from sotopia_env.world import Task

COLUMNS = ("task", "partner", "focal", "seed")
"""The columns of :func:`rows`."""


def rows(tasks: Iterable[Task], partner: str = "boulware", seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yields the arguments of :meth:`sotopia_env.adapters.seat.TextSeat.against` for every seat of every task.

    Args:
        tasks: the tasks.
        partner: the name of the policy in all other seats.
        seed: the seed of the first task's episodes; the next task's is one more.
    """
    for number, task in enumerate(tasks):
        for focal in range(len(task.agents)):
            yield {"task": task.model_dump_json(), "partner": partner, "focal": focal, "seed": seed + number}


def read_task(source: Mapping[str, Any] | str, seed: int) -> Task:
    """Returns a task from its JSON, or task number ``seed`` of a set, which repeats after its last task."""
    if isinstance(source, str) and not source.lstrip().startswith("{"):
        tasks = naming.task_set(source, None, seed, "medium")
        return tasks[seed % len(tasks)]
    text = source if isinstance(source, str) else json.dumps(source)
    return read_record(Task, text, "task")
