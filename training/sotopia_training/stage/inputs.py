"""Checks that the directories which a stage reads exist, and which command makes a missing one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings
from sotopia_training.stage.configurations import stage_outputs
from sotopia_training.stage.directory import DONE


def check_inputs(settings: Settings, config: Path) -> None:
    """Checks that what other stages must have made before this one exists.

    A text in the settings is such a path if it is inside the output of a configuration, of the package or beside
    ``config``. A stage that is complete needs none.

    Raises:
        InvalidValueError: a path does not exist; names the setting and the command that makes it.
    """
    own = Path(str(getattr(settings, "output", "")))
    if (own / DONE).is_file():
        return
    outputs: dict[Path, str] | None = None
    for field, text in _texts(settings.model_dump(mode="json"), ""):
        path = Path(text.partition(":")[0])  # options of a source of tasks or a policy may follow
        if not path.parts[1:] or own in (path, *path.parents):
            continue
        outputs = stage_outputs(config) if outputs is None else outputs
        makers = [output for output in (path, *path.parents) if output in outputs and output != own]
        if makers and not path.exists():
            hint = f"`{outputs[makers[0]]}` makes it"
            raise InvalidValueError(field=field, expected="a file or directory that exists", got=text, hint=hint)


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """Yields the texts in nested settings, each with the name of its setting."""
    if isinstance(value, str):
        yield field, value
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from _texts(item, f"{field}.{name}" if field else str(name))
