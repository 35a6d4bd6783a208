"""Errors of the service itself; the package's own errors pass through it unchanged."""

from __future__ import annotations

from sotopia_env.foundation.errors import SotopiaError


class MissingError(SotopiaError):
    """An object was not found, or the caller may not see it (HTTP 404)."""


class ConflictError(SotopiaError):
    """A request conflicts with the present state: a stale page, a closed study, an item in use (HTTP 409)."""


class ForbiddenError(SotopiaError):
    """The caller may not do this (HTTP 403)."""


class UnauthorizedError(SotopiaError):
    """The caller is not authenticated (HTTP 401)."""


class LimitError(SotopiaError):
    """A limit on the rate or the number of live episodes is exceeded (HTTP 429)."""


class TooLargeError(SotopiaError):
    """The body of a request is too large (HTTP 413)."""
