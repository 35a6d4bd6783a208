"""Scenarios with open seats, and a key that identifies a task independently of its cast."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.world.scenario import Scenario, Task


@dataclass(frozen=True, slots=True)
class OpenScenario:
    """A scenario with open seats, and the full names that its texts use for the characters, in seat order."""

    scenario: Scenario
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: Task) -> OpenScenario:
        """Returns the scenario of a task, with open seats."""
        return cls(task.scenario, tuple(character.name for character in task.characters))

    @property
    def key(self) -> str:
        """The key of :func:`task_key`."""
        # What judges score does not make another situation of it.
        content = self.scenario.model_dump(mode="json", exclude={"id", "dimensions"})
        if self.names_people:
            seats = [f"agent_{seat}" for seat in range(len(self.names))]
            content = renamed(content, dict(zip(self.names, seats, strict=True)))
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]

    @property
    def names_people(self) -> bool:
        """Whether the texts name any of the seated characters."""
        # One search of the whole JSON: most scenarios name none of their characters and need no renaming.
        text = self.scenario.model_dump_json(exclude={"id"}) if self.names else ""
        return any(name in text for name in self.names)

    def played_by(self, names: Sequence[str]) -> Scenario:
        """Returns the scenario with ``names`` in place of the characters' full names in its texts."""
        renaming = dict(zip(self.names, names, strict=True))
        return Scenario.model_validate(renamed(self.scenario.model_dump(), renaming))


def task_key(task: Task) -> str:
    """Returns a hash of the scenario (16 hex digits) that does not depend on its id or on the characters in its seats.

    Tasks with equal keys are one *social task* in the sense of SOTOPIA-π (appendix B.2): one scenario with its goals,
    played by several pairs.
    """
    key: str = task.memo.get(__name__) or task.memo.setdefault(__name__, OpenScenario.of(task).key)
    return key


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Returns ``value`` with every key of ``names`` replaced in all its texts, in one pass."""
    if not names:
        return value
    # In one pass, because two casts may exchange names; longest first, because one name may begin another.
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest_first))

    def walk(part: Any) -> Any:
        if isinstance(part, str):
            return pattern.sub(lambda match: names[match.group()], part)
        if isinstance(part, Mapping):
            return {walk(key): walk(item) for key, item in part.items()}
        if isinstance(part, list | tuple):
            return type(part)(walk(item) for item in part)
        return part

    return walk(value)
