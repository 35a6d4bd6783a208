"""The linter's input: tasks, templates, scenarios and casts, read from a file or a built-in set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import ConstraintError, InvalidTaskError, UnknownNameError, Where
from sotopia_env.tasks.builtin import everyday_cast, everyday_scenarios, starter_cast, starter_scenarios
from sotopia_env.tasks.checks import check
from sotopia_env.tasks.task_files import Record, kind_of
from sotopia_env.tasks.templates import TEMPLATE_FIELDS, everyday_templates, instantiate
from sotopia_env.world.scenario import Scenario, Task
from sotopia_env.world.taskset import Cast, Location, read_values, to_record


@dataclass(slots=True)
class Material:
    """Records to be linted.

    Attributes:
        records: the records in order, each with its location.
        refused: a sentence for every record or file that cannot be read, played or scored.
    """

    records: list[tuple[str, Record]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def extend(self, other: Material) -> None:
        """Adds the contents of ``other``."""
        self.records += other.records
        self.refused += other.refused

    @property
    def summary(self) -> str:
        """The number of records of each kind, in words."""
        numbers = Counter(type(record).__name__.lower() for _, record in self.records)
        return ", ".join(f"{number} {kind}{'s' * (number != 1)}" for kind, number in numbers.items()) or "no records"


def _everyday() -> list[Record]:
    return [everyday_cast(), *everyday_scenarios()]


def _starter() -> list[Record]:
    return [starter_cast(), *starter_scenarios()]


BUILT_IN: Mapping[str, Callable[[], list[Record]]] = {
    "starter": _starter,
    "everyday": _everyday,
    "everyday-groups": lambda: list(everyday_templates()),
}
"""The records of the package's own sets."""


def read_material(source: str | PathLike[str]) -> Material:
    """Reads a built-in set, or a file of any mixture of tasks, templates, scenarios and casts.

    Invalid records do not stop the reading; they are listed in :attr:`Material.refused`.

    Args:
        source: a name of :data:`BUILT_IN`, or the path of a ``.json``, ``.jsonl`` or ``.yaml`` file.

    Raises:
        UnknownNameError: ``source`` is neither a name nor a path with a suffix.
    """
    if str(source) not in BUILT_IN and not Path(source).suffix:
        raise UnknownNameError(field="source", got=source, valid=BUILT_IN, hint="or give the path of a file")
    if str(source) in BUILT_IN:
        return Material([(str(source), record) for record in BUILT_IN[str(source)]()])
    material = Material()
    try:
        for location, raw in read_values(Path(source), material.refused):
            _read(raw, location, material)
    except InvalidTaskError as error:
        material.refused.append(str(error))
    if not material.records and not material.refused:
        material.refused.append(f"{source}: expected at least one task, template, scenario or cast, got none")
    return material


def _read(raw: Any, location: Location, material: Material) -> None:
    try:
        record = to_record(raw, kind_of(raw), location, TEMPLATE_FIELDS)
        _check(record, location.where)
    except InvalidTaskError as error:
        material.refused.append(str(error))
    else:
        material.records.append((str(location.where), record))


def _check(record: Record, where: Where) -> None:
    """Checks that a task, or the first instance of a template, can be played and scored."""
    # Scenarios and casts are checked against each other later, in the report.
    if isinstance(record, Scenario | Cast):
        return
    try:
        check(record if isinstance(record, Task) else instantiate(record, 0, 0))
    except (InvalidTaskError, ConstraintError) as error:
        raise InvalidTaskError.of(error, where=where) from None
