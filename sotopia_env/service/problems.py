"""Errors of the service itself; the package's own errors pass through it unchanged."""

from __future__ import annotations

from sotopia_env.errors import SotopiaError


class MissingError(SotopiaError):
    """There is no such thing: an id is not known, or the caller may not know of it (HTTP 404)."""


class ConflictError(SotopiaError):
    """What was asked contradicts the present state: a stale page, a closed study, an item in use (HTTP 409)."""


class ForbiddenError(SotopiaError):
    """The caller may not do this (HTTP 403)."""


class UnauthorizedError(SotopiaError):
    """The caller has not said, or not proved, who it is (HTTP 401)."""


class LimitError(SotopiaError):
    """Too much at once: a rate, a size or a number of live episodes (HTTP 429)."""
