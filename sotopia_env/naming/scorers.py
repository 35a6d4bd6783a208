"""Factory of the scorers of best-of-N by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sotopia_env.foundation.errors import UnknownNameError, check_members
from sotopia_env.naming.plugins import Plugins
from sotopia_env.naming.unbuilt import Unbuilt
from sotopia_env.policies.combined.best_of_n import OfferWorth, Scorer

_BUILT_IN: Mapping[str, Callable[[], Scorer]] = {"offer-worth": OfferWorth}

SCORERS: tuple[str, ...] = tuple(_BUILT_IN)
"""The built-in scorers."""

SCORER_PLUGINS: Plugins[Scorer] = Plugins("scorer", "sotopia.scorers", Scorer, Unbuilt)
"""The scorers of other packages."""


def make_scorer(spec: str | Scorer, arguments: Mapping[str, Any] | None = None) -> Scorer:
    """Returns the scorer that ``spec`` names; a scorer is returned as it is.

    Args:
        spec: a name of :data:`SCORERS`, or a scorer of another package (:mod:`sotopia_env.naming.plugins`, group
            ``sotopia.scorers``): an entry point, ``package.module:factory``, or a directory such as a trained reward
            model's.
        arguments: further arguments, passed to factories that have a parameter of their name.

    Raises:
        UnknownNameError: the name is unknown; the message suggests the nearest one.
        InvalidValueError: the scorer's factory failed.
    """
    if not isinstance(spec, str):
        check_members("scorer", "a name or a scorer", spec, Scorer)
        return spec
    name = spec.strip()
    scorer = _BUILT_IN[name]() if name in _BUILT_IN else SCORER_PLUGINS.make(name, arguments or {})
    if scorer is None:
        names = [*SCORERS, *SCORER_PLUGINS.names]
        raise UnknownNameError(field="scorer", got=name, valid=names, hint="your own: package.module:factory")
    return scorer
