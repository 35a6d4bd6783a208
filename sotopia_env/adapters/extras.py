"""The error for a library that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sotopia_env.errors import SotopiaError


class MissingExtraError(SotopiaError, ImportError):
    """A package of an optional extra is not installed; the message says what to install."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Wraps the imports of the packages that the extra ``name`` installs.

    Raises:
        MissingExtraError: one of them is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"this needs {error.name}, which is not installed: pip install 'sotopia-env[{name}]'"
        raise MissingExtraError(message, name=error.name) from None
