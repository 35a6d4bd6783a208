"""Who can sit in a seat, and how to name it.

A policy without a language model is named by a word: ``"boulware"``, ``"boulware:exponent=0.3,horizon=8"``. A name with
a slash is a language model: ``"local/my-model"``, ``"local/my-model:temperature=0.7,reasks=1"``.
:class:`BestOfNPolicy`, :class:`MixedPolicy` and :class:`Mixture` are made of other policies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sotopia_env.chat_model.factory import make_model
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.policies.best_of_n import BestOfNPolicy, OfferWorth, Scorer
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.mixed import MixedPolicy, Mixture
from sotopia_env.policies.model_spec import ModelMaker, make_llm, names_a_model
from sotopia_env.policies.negotiators import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
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


def make(spec: str | Policy, chat_model: ModelMaker = make_model, manner: Mapping[str, Any] | None = None) -> Policy:
    """Returns the policy that ``spec`` names; a policy is returned as it is.

    Args:
        spec: a name of :data:`NAMES` or a model as ``PROVIDER/MODEL``, optionally followed by ``:`` and ``key=value``
            pairs with commas between them.
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
    if names_a_model(spec):
        return make_llm(spec, chat_model, manner)
    name, _, given = (part.strip() for part in spec.partition(":"))
    if name not in _MAKERS:
        raise UnknownNameError(f"policy: {name_hint(name, NAMES)} (a language model is named PROVIDER/MODEL)")
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
]
