"""Policies by name: scripted ones, language models, best-of-N, and those of other packages."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from sotopia_env.chat_model.factory import make_model
from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import InvalidValueError, UnknownNameError, check_members
from sotopia_env.naming.grammar import (
    BOOLEAN,
    NUMBER,
    PATH,
    WHOLE,
    WORD,
    Reader,
    optional,
    options_of,
    read_options,
    split,
    split_call,
    split_options,
)
from sotopia_env.naming.plugins import Plugins
from sotopia_env.naming.scorers import make_scorer
from sotopia_env.policies.best_of_n import BestOfNPolicy
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.negotiators.concession import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.negotiators.opponents import Liar, Micro, OpponentModeller, RandomWalk
from sotopia_env.policies.policy import Policy
from sotopia_env.policies.scripted import Leaver, Sharer, Silent, UniformRandom

ModelMaker = Callable[[str], ChatModel]
"""Makes the model that a name such as ``local/my-model`` means."""

BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "boulware": partial(TimeDependent, name="boulware", exponent=0.2),
    "linear": partial(TimeDependent, name="linear", exponent=1.0),
    "conceder": partial(TimeDependent, name="conceder", exponent=5.0),
    "tit-for-tat": TitForTat,
    "micro": Micro,
    "hard-headed": partial(OpponentModeller, name="hard-headed", exponent=0.05, tolerance=0.01),
    "frequency": partial(OpponentModeller, name="frequency"),
    "stubborn": FixedDemand,
    "generous": partial(TimeDependent, name="generous", opening=0.6, floor=0.0),
    "random-offers": RandomOffers,
    "random-walk": RandomWalk,
    "liar": Liar,
    "sharer": Sharer,
    "splitter": Splitter,
    "leaver": Leaver,
    "silent": Silent,
    "random": UniformRandom,
    "human": HumanPolicy,
}

POLICY_NAMES: tuple[str, ...] = tuple(BUILT_IN)
"""The policies without a language model that :func:`make_policy` knows."""

POLICY_PLUGINS: Plugins[Policy] = Plugins("policy", "sotopia.policies", Policy)
"""The policies of other packages."""

LLM_OPTIONS: Mapping[str, Reader] = {
    "format": WORD,
    "temperature": optional(NUMBER),
    "max_tokens": optional(WHOLE),
    "reasks": WHOLE,
    "on_unusable": WORD,
    "context_limit": optional(WHOLE),
    "examples": PATH,
    "template": PATH,
    "send_seed": BOOLEAN,
    "logprobs": BOOLEAN,
    "name": WORD,
}
_BEST_OF = "best-of-"
_BEST_OF_FORM = "best-of-N(POLICY by SCORER)"
_MOST_CANDIDATES = 1024  # of one turn: all are asked for at once


def described_policies() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields name, first line of the docstring, and parameters with their values of each of :data:`POLICY_NAMES`."""
    for name, make in BUILT_IN.items():
        policy: Policy = make()
        yield name, (inspect.getdoc(type(policy)) or "").partition("\n")[0], policy.parameters


def make_policy(
    spec: str | Policy, chat_model: ModelMaker = make_model, manner: Mapping[str, Any] | None = None
) -> Policy:
    """Returns the policy that ``spec`` names; a policy is returned as it is.

    Args:
        spec: a name of :data:`POLICY_NAMES`, a model as ``PROVIDER/MODEL``, or what another package adds
            (:mod:`sotopia_env.naming.plugins`), optionally followed by ``:`` and ``key=value`` pairs with commas
            between them; or ``best-of-N(POLICY by SCORER)``. Options of a model are those of
            :class:`~sotopia_env.policies.llm.LLMPolicy`.
        chat_model: makes the models that are named; give one that knows base URL, limits and ledger, and that makes
            each model once.
        manner: settings of language models' policies that their names do not give.

    Raises:
        UnknownNameError: the name or a parameter's name is not known; names the nearest.
        InvalidValueError: a parameter's value cannot be read or is out of range, or ``spec`` is no policy at all.
    """
    if not isinstance(spec, str):
        check_members("policy", "a name or a policy", spec, Policy)
        return spec
    arguments = {"chat_model": chat_model, **(manner or {})}
    if spec.strip().startswith(_BEST_OF):
        return _best_of_n(spec.strip(), lambda inner: make_policy(inner, chat_model, manner), arguments)
    name, _, options = (part.strip() for part in spec.partition(":"))
    if name in BUILT_IN:
        return _built_in(name, options)
    plugin = POLICY_PLUGINS.make(spec, arguments)
    if plugin is not None:
        return plugin
    if "/" in name:
        model, options = split_options(spec)
        owner = f"policy {model!r}"
        settings = read_options(owner, options, LLM_OPTIONS)
        with options_of(owner, LLM_OPTIONS):
            return LLMPolicy(chat_model(model), **{**(manner or {}), **settings})
    names = [*POLICY_NAMES, *POLICY_PLUGINS.names, _BEST_OF_FORM]
    raise UnknownNameError(
        field="policy",
        got=name,
        valid=names,
        hint="a language model is named PROVIDER/MODEL, your own package.module:factory",
    )


def _built_in(name: str, options: str) -> Policy:
    default: Policy = BUILT_IN[name]()
    readers = {key: WHOLE if isinstance(value, int) else NUMBER for key, value in default.parameters.items()}
    changes = read_options(f"policy {name!r}", options, readers)
    return dataclasses.replace(default, **changes) if changes else default  # type: ignore[type-var]


def _best_of_n(spec: str, make: Callable[[str], Policy], arguments: Mapping[str, Any]) -> BestOfNPolicy:
    head, inner = split_call(spec) or ("", "")
    *policy_parts, scorer_name = split(inner, " by ")
    if not policy_parts:
        raise InvalidValueError(
            expected=f"{_BEST_OF_FORM}, such as 'best-of-8(local/my-model by offer-worth)'", field="policy", got=spec
        )
    n = head.removeprefix(_BEST_OF)
    if not n.isdecimal() or len(n) > len(str(_MOST_CANDIDATES)) or not 1 <= int(n) <= _MOST_CANDIDATES:
        raise InvalidValueError(
            field="policy",
            expected=f"a whole number from 1 to {_MOST_CANDIDATES} after {_BEST_OF!r}",
            got=spec,
        )
    policy, scorer = make(" by ".join(policy_parts)), make_scorer(scorer_name, arguments)
    if isinstance(policy, HumanPolicy):
        raise InvalidValueError(expected="a policy that is asked several times, not a person", field="policy", got=spec)
    return BestOfNPolicy(policy, int(n), scorer, name=f"{_BEST_OF}{n}({policy.name} by {scorer.name})")
