"""A stage of training on disk, and the frame every script runs in.

A stage directory holds ``stage.json`` (what was asked for, with versions), ``checkpoints/`` (of the trainer),
``model/`` (what the next stage begins from) and, once it is complete, ``done.json`` (its figures). Called again with
the same settings it continues from the last complete checkpoint, or does nothing when it is done. Until it has produced
something it may be called with others, for these are corrected ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sotopia_env.errors import InvalidValueError
from sotopia_env.files import write_text_atomically
from sotopia_env.records import first_difference, package_versions, source_revision
from training.stage.settings import Settings

STAGE, DONE = "stage.json", "done.json"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "datasets")
_MAY_DIFFER = ("access", "processes")
"""Settings at any depth that say where models are, what may be spent and how much is done at once, not what is done."""


@dataclass(frozen=True)
class StageDirectory:
    """Where one stage writes.

    Attributes:
        path: the directory; made when the stage is opened.
        name: of the stage, e.g. ``behavior_cloning``.
        settings: what was asked for.
    """

    path: Path
    name: str
    settings: Settings

    @property
    def model(self) -> Path:
        """Where the next stage looks for the trained model or adapter."""
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        """Where the trainer keeps its checkpoints."""
        return self.path / "checkpoints"

    def open(self) -> None:
        """Makes the directory, or finds out that it holds the same stage; one that holds nothing yet is begun anew.

        Raises:
            InvalidValueError: it holds another stage, or the same with other settings; says which differs first.
        """
        asked = {"stage": self.name, "settings": _lasting(self.settings.model_dump(mode="json"))}
        found = self._noted()
        held = {"stage": found.get("stage"), "settings": _lasting(self._completed(found.get("settings")))}
        if found and held != asked and self._has_produced():
            where, ours, theirs = first_difference(STAGE, held, asked)
            raise InvalidValueError(
                f"{self.path}: holds a stage with other settings ({where}: {ours} there, {theirs} "
                "now); choose another output"
            )
        if os.environ.get("RANK", "0") != "0":
            return  # the first process of a distributed run writes, for all
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if held != asked:
            self._note({**asked, "packages": _versions(), "revision": source_revision(), "processes": processes})
        elif processes < found.get("processes", 1):
            self._note({**found, "processes": processes})

    def _noted(self) -> dict[str, Any]:
        file = self.path / STAGE
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        return found

    def _completed(self, settings: Any) -> Any:
        """Settings of an earlier version, with the defaults of those that it did not have yet."""
        try:
            return type(self.settings).model_validate(settings).model_dump(mode="json")
        except ValidationError:
            return settings

    def _note(self, facts: Mapping[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self.path / STAGE, json.dumps(dict(facts), indent=2) + "\n")

    def _has_produced(self) -> bool:
        """Whether there is any file but the note of what was asked for."""
        return any(file.is_file() and file != self.path / STAGE for file in self.path.rglob("*"))

    @property
    def figures(self) -> dict[str, Any] | None:
        """The figures of the complete stage; ``None`` while it is not complete."""
        file = self.path / DONE
        if not file.is_file():
            return None
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def finish(self, figures: Mapping[str, Any]) -> None:
        """Notes that the stage is complete."""
        write_text_atomically(self.path / DONE, json.dumps(dict(figures), indent=2) + "\n")

    def complete_checkpoints(self) -> list[tuple[Path, dict[str, Any]]]:
        """The checkpoints that were written completely, oldest first, each with its ``trainer_state.json``.

        The first process writes that file last, so a checkpoint in which it is missing or ends early was cut short. The
        other processes write their random state when they come to it: without the state of each, the losses after a
        resumption would be others. A stage that went on with fewer processes needs but as many.
        """
        processes = self._noted().get("processes", 1)
        found = []
        for place in self.checkpoints.glob("checkpoint-*"):
            if not (place / "rng_state.pth").is_file() and len(list(place.glob("rng_state_*.pth"))) < processes:
                continue
            try:
                state = json.loads((place / "trainer_state.json").read_text(encoding="utf-8"))
            except (OSError, json.JSONDecodeError):
                continue
            found.append((place, state))
        return sorted(found, key=lambda item: int(item[1]["global_step"]))

    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint that was written completely; ``None`` where there is none."""
        found = self.complete_checkpoints()
        return found[-1][0] if found else None


def _lasting(settings: Any) -> Any:
    """What must stay the same when a stage is continued."""
    if isinstance(settings, dict):
        return {key: _lasting(value) for key, value in settings.items() if key not in _MAY_DIFFER}
    return [_lasting(value) for value in settings] if isinstance(settings, list) else settings


@cache
def _versions() -> dict[str, str]:
    found = package_versions()
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
