"""Who can sit in a seat, and how to name it.

A policy without a language model is named by a word: ``"boulware"``, ``"boulware:exponent=0.3,horizon=8"``. A name with
a slash is a language model: ``"local/my-model"``, ``"local/my-model:temperature=0.7,reasks=1"``. Policies of other
packages are named as :mod:`sotopia_env.policies.plugins` says: ``"package.module:factory"``, or the directory of a
trained model. :class:`BestOfNPolicy` (``"best-of-8(local/my-model by offer-worth)"``), :class:`MixedPolicy` and
:class:`Mixture` are made of other policies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sotopia_env.chat_model.factory import make_model
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.policies.best_of_n import BestOfNPolicy, OfferWorth, Scorer
from sotopia_env.policies.best_of_n_spec import FORM, PREFIX, SCORERS, make_best_of_n, make_scorer
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.mixed import MixedPolicy, Mixture
from sotopia_env.policies.model_spec import ModelMaker, make_llm, names_a_model
from sotopia_env.policies.negotiators import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.plugins import Plugins
from sotopia_env.policies.policy import Decision, Policy
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
NAMES: tuple[str, ...] = tuple(_MAKERS)
"""The policies without a language model that :func:`make` knows."""
PLUGINS: Plugins[Policy] = Plugins("policy", "sotopia.policies", lambda found: isinstance(found, Policy))
"""The policies of other packages."""


def make(spec: str | Policy, chat_model: ModelMaker = make_model, manner: Mapping[str, Any] | None = None) -> Policy:
    """Returns the policy that ``spec`` names; a policy is returned as it is.

    Args:
        spec: a name of :data:`NAMES`, a model as ``PROVIDER/MODEL``, or what another package adds
            (:mod:`sotopia_env.policies.plugins`), optionally followed by ``:`` and ``key=value`` pairs with commas
            between them; or ``best-of-N(POLICY by SCORER)``.
        chat_model: makes the models that are named; see :func:`~sotopia_env.policies.model_spec.make_llm`.
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
        return make_best_of_n(spec, lambda inner: make(inner, chat_model, manner), offered)
    name, _, given = (part.strip() for part in spec.partition(":"))
    if name in _MAKERS:
        return _built_in(name, given)
    added = PLUGINS.make(spec, offered)
    if added is not None:
        return added
    if names_a_model(spec):
        return make_llm(spec, chat_model, manner)
    known = [*NAMES, *PLUGINS.names, FORM]
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


__all__ = [
    "NAMES",
    "PLUGINS",
    "SCORERS",
    "BestOfNPolicy",
    "Decision",
    "FixedDemand",
    "HumanPolicy",
    "LLMPolicy",
    "Leaver",
    "MixedPolicy",
    "Mixture",
    "ModelMaker",
    "OfferWorth",
    "Policy",
    "RandomOffers",
    "Scorer",
    "Sharer",
    "Silent",
    "Splitter",
    "TimeDependent",
    "TitForTat",
    "UniformRandom",
    "make",
    "make_scorer",
]
