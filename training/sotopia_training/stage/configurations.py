"""Lookup of the package's configurations by name: ``configs/`` of a checkout, which a wheel contains as data."""

from __future__ import annotations

from pathlib import Path

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.files import read_text
from sotopia_env.foundation.settings import read_values

_ENDINGS = (".yaml", ".yml")


def configurations_folder() -> Path:
    """Returns the folder of the configurations: in the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parents[1] / "configs"


def find_configuration(name: str) -> Path:
    """Returns the file for ``name``: a path if it ends in ``.yaml`` or ``.yml``, else a configuration of the package.

    Raises:
        UnknownNameError: the package has no such configuration; the message names the nearest one.
    """
    if name.endswith(_ENDINGS):
        return Path(name)
    path = configurations_folder() / f"{name}.yaml"
    if not path.is_file():
        names = sorted(file.stem for file in path.parent.glob("*.yaml"))
        raise UnknownNameError(field="--config", got=name, valid=names, hint="your own files must end in .yaml")
    return path


def listed_configurations(stage: str | None = None) -> str:
    """Returns the configurations of one or all stages, each with the command that runs it and its first sentence."""
    lines = []
    for path in sorted(configurations_folder().glob("*.yaml")):
        # By convention, a configuration begins with a comment whose first line is the command.
        command, _, about = _heading(read_text(path)).partition("\n")
        if stage is None or f" train {stage} " in command:
            lines.append(f"{command}\n    {about}\n")
    return "".join(lines) + f"\nfiles: {configurations_folder()} (accelerate/ is for several processes)\n"


def stage_outputs(config: Path) -> dict[Path, str]:
    """Returns the output directories of the package's configurations and of those beside ``config``, with commands."""
    files = sorted({*configurations_folder().glob("*.yaml"), *config.parent.glob("*.yaml")})
    outputs: dict[Path, str] = {}
    for file in files:
        command = _heading(read_text(file)).partition("\n")[0]
        try:
            output = read_values(file).get("output")
        except InvalidValueError:  # another file of the user's, which need not be one of settings
            continue
        # By convention, a configuration begins with its command.
        if isinstance(output, str) and " train " in command:
            outputs.setdefault(Path(output), command)
    return outputs


def _heading(text: str) -> str:
    """Returns the first line of the leading comment, and the first sentence of its rest on a second line."""
    comment = text[: text.index("\n", text.rindex("\n#") + 1)] if "\n#" in text else text
    lines = [line.removeprefix("#").strip() for line in comment.splitlines() if line.startswith("#")]
    first, *rest = lines or [""]  # a file of the user, without a comment
    return f"{first}\n{' '.join(rest).strip().partition('. ')[0].rstrip('.')}"
