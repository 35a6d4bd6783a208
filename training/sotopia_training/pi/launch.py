"""Training an update of the pipeline by another program, which is how it runs in several processes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings
from sotopia_training.stage.directory import DONE


def launch(command: Sequence[str], settings: BehaviorCloningSettings, output: Path) -> None:
    """Trains in separate processes: runs ``command`` with ``--config`` and a file with the settings appended.

    Raises:
        SotopiaError: the command cannot be run, or fails.
    """
    file = output.with_suffix(".yaml")
    write_text_atomically(file, to_yaml(settings.model_dump(mode="json")))
    line = [*command, "--config", str(file)]
    try:
        process = subprocess.run(line, check=False)
    except OSError as error:
        raise SotopiaError(f"launch: {command[0]!r} cannot be run ({error.strerror})") from None
    # The exit code alone does not show that the stage is complete.
    if process.returncode or not (output / DONE).is_file():
        raise SotopiaError(
            f"launch: {' '.join(line)} ended with code {process.returncode} and did not complete {output}; the same "
            "command continues the pipeline"
        )
