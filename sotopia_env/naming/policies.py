"""Policies by name: a word on a command line or in YAML makes who sits in a seat."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sotopia_env.chat_model.factory import make_model
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.naming.best_of_n import FORM, PREFIX, make_best_of_n
from sotopia_env.naming.language_models import ModelMaker, make_llm, names_a_model
from sotopia_env.naming.plugins import Plugins
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.negotiators import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.policy import Policy
from sotopia_env.policies.scripted import Leaver, Sharer, Silent, UniformRandom

_MAKERS: Mapping[str, Callable[..., Any]] = {
    "boulware": partial(TimeDependent, name="boulware", exponent=0.2),
    "linear": partial(TimeDependent, name="linear", exponent=1.0),
    "conceder": partial(TimeDependent, name="conceder", exponent=5.0),
    "tit-for-tat": TitForTat,
    "stubborn": FixedDemand,
    "generous": partial(TimeDependent, name="generous", opening=0.6, floor=0.0),
    "random-offers": RandomOffers,
    "sharer": Sharer,
    "splitter": Splitter,
    "leaver": Leaver,
    "silent": Silent,
    "random": UniformRandom,
    "human": HumanPolicy,
}


POLICY_NAMES: tuple[str, ...] = tuple(_MAKERS)
"""The policies without a language model that :func:`make_policy` knows."""


POLICY_PLUGINS: Plugins[Policy] = Plugins("policy", "sotopia.policies", lambda found: isinstance(found, Policy))
"""The policies of other packages."""


def make_policy(
    spec: str | Policy, chat_model: ModelMaker = make_model, manner: Mapping[str, Any] | None = None
) -> Policy:
    """Returns the policy that ``spec`` names; a policy is returned as it is.

    Args:
        spec: a name of :data:`POLICY_NAMES`, a model as ``PROVIDER/MODEL``, or what another package adds
            (:mod:`sotopia_env.naming.plugins`), optionally followed by ``:`` and ``key=value`` pairs with commas
            between them; or ``best-of-N(POLICY by SCORER)``.
        chat_model: makes the models that are named; see :func:`~sotopia_env.naming.language_models.make_llm`.
        manner: settings of language models' policies that their names do not give.

    Raises:
        UnknownNameError: the name or a parameter's name is not known; names the nearest.
        InvalidValueError: a parameter's value cannot be read or is out of range, or ``spec`` is no policy at all.
    """
    if not isinstance(spec, str):
        if isinstance(spec, Policy) and not isinstance(spec, type):
            return spec
        raise InvalidValueError(f"policy: expected a name or a policy, got {spec!r}")
    offered = {"chat_model": chat_model, **(manner or {})}
    if spec.strip().startswith(PREFIX):
        return make_best_of_n(spec, lambda inner: make_policy(inner, chat_model, manner), offered)
    name, _, given = (part.strip() for part in spec.partition(":"))
    if name in _MAKERS:
        return _built_in(name, given)
    added = POLICY_PLUGINS.make(spec, offered)
    if added is not None:
        return added
    if names_a_model(spec):
        return make_llm(spec, chat_model, manner)
    known = [*POLICY_NAMES, *POLICY_PLUGINS.names, FORM]
    raise UnknownNameError(
        f"policy: {name_hint(name, known)} (a language model is named PROVIDER/MODEL, your own package.module:factory)"
    )


def _built_in(name: str, given: str) -> Policy:
    default: Policy = _MAKERS[name]()
    if not given:
        return default
    changed: Policy = dataclasses.replace(default, **_parameters(name, given, default.parameters))  # type: ignore[type-var]
    return changed


def _parameters(name: str, given: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in given.split(","):
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidValueError(f"policy {name!r}: expected key=value pairs with commas between, got {pair!r}")
        if key not in defaults:
            hint = name_hint(key, defaults) if defaults else f"it has no parameters, got {key!r}"
            raise UnknownNameError(f"policy {name!r}, parameter: {hint}")
        if key in found:
            raise InvalidValueError(f"policy {name!r}: parameter {key!r} is given twice")
        found[key] = _number(name, key, text, type(defaults[key]))
    return found


def _number(name: str, key: str, text: str, kind: type) -> int | float:
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        raise InvalidValueError(f"policy {name!r}, {key}: expected {expected}, got {text!r}") from None
