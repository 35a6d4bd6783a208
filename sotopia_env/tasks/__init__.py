"""Procedural task families, whose outcome can be verified, and the starter task set.

Nothing is generated or read at import; a family's module is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sotopia_env.errors import InvalidTaskError, InvalidValueError, UnknownNameError, name_hint
from sotopia_env.tasks.family import Family
from sotopia_env.tasks.starter import starter_cast, starter_scenarios, starter_tasks
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet, read_records

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        name: f"sotopia_env.tasks.{name}"
        for name in ("bargaining", "division", "mutual_friend", "hiring", "group_decision")
    }
)


class _Families(Mapping[str, Family]):
    """Family by name; the module that holds it is imported on first use."""

    def __getitem__(self, name: str) -> Family:
        found: Family = importlib.import_module(_MODULES[name]).FAMILY
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __repr__(self) -> str:
        return f"FAMILIES({', '.join(_MODULES)})"


FAMILIES: Mapping[str, Family] = _Families()
"""The families by name: ``bargaining``, ``division``, ``mutual_friend``, ``hiring`` and ``group_decision``."""


def family(name: str) -> Family:
    """Returns the family called ``name``.

    Raises:
        UnknownNameError: there is none; the message offers the nearest name.
    """
    if not isinstance(name, str) or name not in FAMILIES:
        raise UnknownNameError(f"family: {name_hint(str(name), FAMILIES)}")
    return FAMILIES[name]


def family_of(task: Task) -> Family | None:
    """Returns the family that can read the outcome of ``task``, or ``None`` for a task without a checkable outcome.

    Raises:
        UnknownNameError: the task names a family that does not exist.
    """
    outcome = task.scenario.outcome
    if outcome is None:
        return None
    if outcome.family not in FAMILIES:
        raise UnknownNameError(f"task {task.id!r}, outcome.family: {name_hint(outcome.family, FAMILIES)}")
    return FAMILIES[outcome.family]


def generate(family: str | Sequence[str], n: int, seed: int, level: str = "medium", start: int = 0) -> TaskSet:
    """Returns ``n`` generated tasks.

    Args:
        family: a family's name, or several; several take turns, so that task ``k`` of the set is task
            ``start + k // len(family)`` of family ``k % len(family)``.
        n: how many tasks in all; 0 or more.
        seed: fixes the sequence of every family; 0 or more.
        level: ``"easy"``, ``"medium"`` or ``"hard"``.
        start: index of the first task in each family's sequence.

    Raises:
        UnknownNameError: a family or the level does not exist.
        InvalidValueError: ``n``, ``seed`` or ``start`` is not a whole number of at least 0, or no family is named.
    """
    if not isinstance(family, str | Iterable):
        raise InvalidValueError(f"family: expected a name or several, got {family!r}")
    names = [family] if isinstance(family, str) else list(family)
    makers = [_named(name) for name in names]
    if not names or len(set(names)) != len(names):
        raise InvalidValueError(f"family: expected one or more different names, got {names}")
    for field, value in (("n", n), ("start", start)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidValueError(f"{field}: expected a whole number of at least 0, got {value!r}")
    return TaskSet([makers[k % len(makers)].generate(start + k // len(makers), seed, level) for k in range(n)])


_named = family  # ``generate`` has a parameter of the same name


def check(task: Task) -> None:
    """Finds out whether a task can be played and its outcome be read (:mod:`sotopia_env.tasks.checks`).

    Raises:
        InvalidTaskError: names the task, the first field that is wrong, its value and the nearest valid name.
    """
    from sotopia_env.tasks import checks

    checks.check(task)


def load(path: str | os.PathLike[str]) -> TaskSet:
    """Reads a file of tasks as :meth:`~sotopia_env.world.taskset.TaskSet.load` does, and checks every one of them.

    Raises:
        InvalidTaskError: names file, line, field, value and nearest valid name; see :func:`check`.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidValueError(f"path: expected the path of a task file, got {path!r}")
    found = []
    for where, task in read_records(Path(path), Task):
        try:
            check(task)
        except InvalidTaskError as error:
            raise InvalidTaskError(f"{where}: {error}") from None
        found.append(task)
    if not found:
        raise InvalidTaskError(f"{path}: expected at least one task, got none")
    return TaskSet(found)


__all__ = [
    "FAMILIES",
    "check",
    "family",
    "family_of",
    "generate",
    "load",
    "starter_cast",
    "starter_scenarios",
    "starter_tasks",
]
