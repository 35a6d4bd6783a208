"""The configurations of the package, found by name: ``configs/`` of a checkout, which a wheel holds as data."""

from __future__ import annotations

from pathlib import Path

from sotopia_env.errors import UnknownNameError
from sotopia_env.files import read_text

_ENDINGS = (".yaml", ".yml")


def configurations_folder() -> Path:
    """Returns the folder of the configurations: in the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def find_configuration(name: str) -> Path:
    """Returns the file that ``name`` means: a path with its ending, or a configuration of the package without.

    Raises:
        UnknownNameError: it is neither; the message names the nearest configuration.
    """
    if name.endswith(_ENDINGS):
        return Path(name)
    path = configurations_folder() / f"{name}.yaml"
    if not path.is_file():
        names = sorted(file.stem for file in path.parent.glob("*.yaml"))
        raise UnknownNameError(field="--config", got=name, valid=names, hint="a file of yours ends in .yaml")
    return path


def listed_configurations(stage: str | None = None) -> str:
    """Returns the configurations, of one stage or of all, each with the command that runs it and its first sentence."""
    lines = []
    for path in sorted(configurations_folder().glob("*.yaml")):
        command, _, about = _heading(read_text(path)).partition("\n")
        if stage is None or f" train {stage} " in command:
            lines.append(f"{command}\n    {about}\n")
    return "".join(lines) + f"\nfiles: {configurations_folder()} (accelerate/ is for several processes)\n"


def _heading(text: str) -> str:
    """The first line of the leading comment, and the first sentence of the rest."""
    comment = text[: text.index("\n", text.rindex("\n#") + 1)] if "\n#" in text else text
    first, *rest = [line.removeprefix("#").strip() for line in comment.splitlines() if line.startswith("#")]
    return f"{first}\n{' '.join(rest).strip().partition('. ')[0].rstrip('.')}"
