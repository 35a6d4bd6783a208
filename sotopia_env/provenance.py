"""Which code a run was made by."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("pettingzoo", "gymnasium", "numpy", "pydantic", "aiohttp", "litellm")


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that decide what an episode looks like."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def source_revision() -> str | None:
    """Returns the git revision of the source checkout this package runs from, ``None`` for an installed one."""
    root, git = Path(__file__).resolve().parents[1], shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    found = subprocess.run([git, "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None
