"""Best-of-N by name: ``best-of-8(local/my-model:temperature=0.7 by offer-worth)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.naming.plugins import Plugins
from sotopia_env.policies.best_of_n import BestOfNPolicy, OfferWorth, Scorer
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.policy import Policy

PREFIX = "best-of-"


FORM = "best-of-N(POLICY by SCORER)"


MOST = 1024
"""Candidates of one turn: all are asked for at once."""


_SPEC = re.compile(r"best-of-(?P<n>[^(]*)\((?P<policy>.*\S)\s+by\s+(?P<scorer>.*?)\s*\)", re.DOTALL)


_MAKERS: Mapping[str, Callable[[], Scorer]] = {"offer-worth": OfferWorth}


SCORERS: tuple[str, ...] = tuple(_MAKERS)
"""The scorers that :func:`make_scorer` knows without another package."""


SCORER_PLUGINS: Plugins[Scorer] = Plugins("scorer", "sotopia.scorers", lambda found: isinstance(found, Scorer))


def make_scorer(spec: str | Scorer, offered: Mapping[str, Any] | None = None) -> Scorer:
    """Returns the scorer that ``spec`` names; a scorer is returned as it is.

    Args:
        spec: a name of :data:`SCORERS`, or what another package adds (:mod:`sotopia_env.naming.plugins`, group
            ``sotopia.scorers``): an entry point, ``package.module:factory``, or a directory such as a trained reward
            model's.
        offered: arguments for factories that take them.

    Raises:
        UnknownNameError: there is no such scorer; names the nearest.
        InvalidValueError: it cannot be made.
    """
    if not isinstance(spec, str):
        if isinstance(spec, Scorer) and not isinstance(spec, type):
            return spec
        raise InvalidValueError(f"scorer: expected a name or a scorer, got {spec!r}")
    if spec.strip() in _MAKERS:
        return _MAKERS[spec.strip()]()
    found = SCORER_PLUGINS.make(spec, offered or {})
    if found is None:
        known = [*SCORERS, *SCORER_PLUGINS.names]
        raise UnknownNameError(f"scorer: {name_hint(spec.strip(), known)} (your own: package.module:factory)")
    return found


def make_best_of_n(spec: str, make: Callable[[str], Policy], offered: Mapping[str, Any]) -> BestOfNPolicy:
    """Returns the policy that ``spec`` names.

    Args:
        spec: of the form :data:`FORM`; the policy may be anything that ``make`` knows, another best-of-N too.
        make: makes the policy that gives the candidates.
        offered: arguments for the scorer's factory, if it takes them.

    Raises:
        UnknownNameError: policy or scorer is not known; names the nearest.
        InvalidValueError: ``spec`` has another form, or N is not a whole number from 1 to :data:`MOST`.
    """
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise InvalidValueError(f"policy {spec!r}: expected {FORM}, such as 'best-of-8(local/my-model by offer-worth)'")
    n = match["n"].strip()
    if not n.isdecimal() or len(n) > len(str(MOST)) or not 1 <= int(n) <= MOST:
        raise InvalidValueError(
            f"policy {PREFIX}N: expected a whole number from 1 to {MOST} after {PREFIX!r}, got {n[:20]!r}"
        )
    policy, scorer = make(match["policy"]), make_scorer(match["scorer"], offered)
    if isinstance(policy, HumanPolicy):
        raise InvalidValueError(f"policy {spec!r}: expected a policy that is asked several times, not a person")
    return BestOfNPolicy(policy, int(n), scorer, name=f"{PREFIX}{n}({policy.name} by {scorer.name})")
