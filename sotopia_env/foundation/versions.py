"""The versions of this package, of the packages that it needs, and of a checkout."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def code_version() -> str:
    """Returns the version of the installed package."""
    return _version("sotopia-env") or "0+uninstalled"


_PACKAGES = ("pettingzoo", "gymnasium", "numpy", "pydantic", "aiohttp", "litellm")


def package_versions(names: Iterable[str] = _PACKAGES) -> dict[str, str | None]:
    """Returns the versions of Python and of packages, by default of those that affect episodes.

    The version is ``None`` for a package without metadata, which is not installed or was added to the path manually.
    """
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def source_revision() -> str | None:
    """Returns the git revision of the source checkout; ``None`` if the package is installed."""
    root, git = Path(__file__).resolve().parents[2], shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    process = subprocess.run([git, "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return process.stdout.strip() if process.returncode == 0 else None
