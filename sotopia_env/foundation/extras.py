"""The optional extras of the package: the command that installs one, and checks of the packages that it needs."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.versions import package_versions

DISTRIBUTION = "sotopia-env"
_ROOT = Path(__file__).parents[2]


class MissingExtraError(SotopiaError, ImportError):
    """A package of an optional extra is missing or has another version; the message says what to install."""


def install_command(*extras: str) -> str:
    """Returns the command that adds extras to this installation, whether from a checkout, a file, a URL or an index."""
    names = f"[{','.join(extras)}]"
    if (_ROOT / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{_ROOT}{names}')}"
    source = _source()
    requirement = f"{DISTRIBUTION}{names} @ {source}" if source else f"{DISTRIBUTION}{names}"
    return f"pip install {shlex.quote(requirement)}"


def check_extra(name: str) -> None:
    """Checks that every package which the extra ``name`` declares is installed, in a version that it admits.

    Raises:
        MissingExtraError: a package is missing or has another version.
    """
    for requirement in _requirements(DISTRIBUTION, name):
        if problem := _problem(f"{DISTRIBUTION}[{name}]", requirement):
            raise MissingExtraError(f"{problem}: {install_command(name)}", name=requirement.name)


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Checks the extra ``name`` (:func:`check_extra`) before the imports of its packages.

    Warns if these packages in turn need other versions than the installed ones, which happens when extras that exclude
    each other are installed one after the other.

    Raises:
        MissingExtraError: a package is missing or has another version.
    """
    check_extra(name)
    clash = "; ".join(_clashes(name))
    advice = f"{clash}: in another virtual environment, {install_command(name)}"
    try:
        yield
    except ImportError as error:
        if clash:
            raise MissingExtraError(advice, name=error.name) from error
        if not isinstance(error, ModuleNotFoundError):
            raise
        # Without metadata, or in an incomplete environment.
        message = f"{DISTRIBUTION}[{name}] needs {error.name}, which is not installed: {install_command(name)}"
        raise MissingExtraError(message, name=error.name) from None
    if clash:
        warnings.warn(advice, stacklevel=3)


def _clashes(name: str) -> Iterator[str]:
    """The unmet requirements of the packages that the extra declares."""
    for package in _requirements(DISTRIBUTION, name):
        owner = f"{package.name} {package_versions([package.name])[package.name]}"
        yield from filter(None, (_problem(owner, requirement) for requirement in _requirements(package.name)))


def _requirements(distribution: str, extra: str = "") -> list[Requirement]:
    """What an installed distribution requires for one of its extras, or for itself."""
    try:
        requirements = [Requirement(text) for text in metadata.requires(distribution) or ()]
    except metadata.PackageNotFoundError:
        return []
    markers = {"extra": extra}
    return [r for r in requirements if (r.marker.evaluate(markers) if r.marker else not extra)]


def _problem(owner: str, requirement: Requirement) -> str:
    version = package_versions([requirement.name])[requirement.name]
    if version is None:
        return f"{owner} needs {requirement.name}, which is not installed"
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"{owner} needs {requirement.name}{requirement.specifier}, and {version} is installed"


def _source() -> str:
    """The file or URL that pip installed the package from, as in PEP 610; empty if it came from an index."""
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    if not text:
        return ""
    origin = decode_json(text)
    revision = origin.get("vcs_info")
    return f"{revision['vcs']}+{origin['url']}@{revision['commit_id']}" if revision else str(origin["url"])
