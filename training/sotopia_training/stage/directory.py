"""The directory of a training stage: settings, checkpoints, model and figures.

It holds ``stage.json`` (settings and versions), ``checkpoints/`` (of the trainer), ``model/`` (the start of the next
stage) and, once the stage is complete, ``done.json`` (its figures). A stage that is run again with the same settings
continues from the last complete checkpoint, or does nothing when it is complete. As long as the directory holds no
output, other settings are accepted as corrections.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import first_difference, read_json
from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.versions import package_versions, source_revision
from sotopia_training.stage.earlier import present_settings

logger = logging.getLogger(__name__)
STAGE, DONE = "stage.json", "done.json"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "datasets")
_MAY_DIFFER = ("models", "concurrency", "timeout", "processes", "arms", "past_selves")
"""Settings, at any depth, that may change when a stage is continued: they do not affect existing output."""


@dataclass(frozen=True)
class StageDirectory:
    """The output directory of one stage.

    Attributes:
        path: the directory; created when the stage is opened.
        name: the name of the stage, e.g. ``behavior_cloning``.
        settings: the settings of the stage.
    """

    path: Path
    name: str
    settings: Settings

    @property
    def model(self) -> Path:
        """Directory of the trained model or adapter."""
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        """Directory of the trainer's checkpoints."""
        return self.path / "checkpoints"

    def open(self, start: Mapping[str, str] | None = None) -> None:
        """Creates the directory, or checks that it holds the same stage; a directory without output starts again.

        Args:
            start: the identities of what training starts from: of the weights ``base``, ``adapter`` and
                ``reward_model``, and of the ``prompts`` of this version.

        Raises:
            InvalidValueError: the directory holds output of another stage or of other settings (names the first setting
                that differs), or of training that started from other weights or prompts.
        """
        request = {"stage": self.name, "settings": _comparable(self.settings.model_dump(mode="json"))}
        record = self._read_record()
        recorded = present_settings(record.get("settings"), type(self.settings))
        stored = {"stage": record.get("stage"), "settings": _comparable(recorded)}
        if record and stored != request and self._has_output():
            field, expected, got = first_difference("", stored, request)
            raise InvalidValueError(
                "the directory holds output of another stage or of other settings",
                field=field,
                expected=expected,
                got=Verbatim(got),
                hint="choose another output",
                where=self.path,
            )
        self._check_start(record.get("start", {}), start or {})
        if os.environ.get("RANK", "0") != "0":
            return  # the first process of a distributed run writes for all processes
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        changes: dict[str, Any] = {} if start is None else {"start": self._noted(record, start)}
        if stored != request:
            record = {"packages": _versions(), "revision": source_revision()}
            changes |= {**request, "processes": processes}
        # Continued with fewer processes: checkpoints from now on have random states of these only.
        elif processes < record.get("processes", 1):
            changes["processes"] = processes
        if any(record.get(name) != value for name, value in changes.items()):
            self._write_record({**record, **changes})

    def _noted(self, record: Mapping[str, Any], start: Mapping[str, str]) -> dict[str, str]:
        """Returns what training starts from; of output that is there already, only what was noted when it began."""
        known = record.get("start", {}) if self._has_output() else start
        return {name: identity for name, identity in start.items() if name in known}

    def _check_start(self, recorded: Mapping[str, str], start: Mapping[str, str]) -> None:
        for name in recorded.keys() & start.keys():
            if recorded[name] != start[name] and self._has_output():
                raise InvalidValueError(
                    f"what training started from has changed since: {name.replace('_', ' ')}",
                    field=f"start.{name}",
                    expected=recorded[name],
                    got=start[name],
                    hint="go back to what it started from, or choose another output",
                    where=self.path,
                )

    def is_complete(self) -> bool:
        """Returns whether the stage is complete with these settings, and logs it if so.

        Raises:
            InvalidValueError: the directory holds another stage, or the same with other settings.
        """
        if self.path.exists():
            self.open()
        if self.figures is None:
            return False
        logger.info("%s is complete: nothing to do", self.path)
        return True

    def _read_record(self) -> dict[str, Any]:
        file = self.path / STAGE
        record: dict[str, Any] = read_json(file) if file.is_file() else {}
        return record

    def _write_record(self, record: Mapping[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self.path / STAGE, json.dumps(dict(record), indent=2) + "\n")

    def _has_output(self) -> bool:
        """Whether the directory has any file besides ``stage.json``."""
        return any(file.is_file() and file != self.path / STAGE for file in self.path.rglob("*"))

    @property
    def figures(self) -> dict[str, Any] | None:
        """The figures of the complete stage; ``None`` while it is not complete."""
        file = self.path / DONE
        if not file.is_file():
            return None
        # A loss may be NaN or infinite.
        figures: dict[str, Any] = read_json(file, finite=False)
        return figures

    def finish(self, figures: Mapping[str, Any]) -> None:
        """Writes the figures; the stage is then complete."""
        write_text_atomically(self.path / DONE, json.dumps(dict(figures), indent=2) + "\n")

    def complete_checkpoints(self) -> list[tuple[Path, dict[str, Any]]]:
        """The complete checkpoints, oldest first, each with its ``trainer_state.json``.

        The first process writes that file last, so a checkpoint in which it is missing or damaged is incomplete. Every
        process writes its random state: if one is missing, the losses after resuming would differ. A stage that was
        continued with fewer processes needs only their states.
        """
        processes = self._read_record().get("processes", 1)
        checkpoints = []
        # One process writes ``rng_state.pth``, several write ``rng_state_0.pth``, ``rng_state_1.pth`` and so on.
        for path in self.checkpoints.glob("checkpoint-*"):
            if not (path / "rng_state.pth").is_file() and len(list(path.glob("rng_state_*.pth"))) < processes:
                continue
            try:
                state = read_json(path / "trainer_state.json", finite=False)
            except InvalidValueError:
                continue
            checkpoints.append((path, state))
        return sorted(checkpoints, key=lambda item: int(item[1]["global_step"]))

    def last_checkpoint(self) -> Path | None:
        """The newest complete checkpoint, or ``None``."""
        checkpoints = self.complete_checkpoints()
        return checkpoints[-1][0] if checkpoints else None


def _comparable(settings: Any) -> Any:
    """Returns the settings that must stay the same when a stage is continued."""
    if isinstance(settings, dict):
        return {key: _comparable(value) for key, value in settings.items() if key not in _MAY_DIFFER}
    return [_comparable(value) for value in settings] if isinstance(settings, list) else settings


@cache
def _versions() -> dict[str, str | None]:
    return {**package_versions(), **package_versions(PACKAGES)}
