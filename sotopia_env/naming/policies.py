"""Factory of policies by name: scripted policies, language models, best-of-N, and policies of other packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from sotopia_env.chat_model.factory import make_model
from sotopia_env.chat_model.protocol import REQUEST_SETTINGS, ChatModel
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, check_members
from sotopia_env.naming.grammar import (
    READERS,
    Reader,
    options_of,
    read_options,
    readers_of,
    split,
    split_call,
    split_options,
)
from sotopia_env.naming.models import MODEL_PLUGINS
from sotopia_env.naming.plugins import Plugins
from sotopia_env.naming.scorers import make_scorer
from sotopia_env.naming.unbuilt import Unbuilt
from sotopia_env.policies.best_of_n import BestOfNPolicy
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.negotiators.concession import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.negotiators.opponents import Liar, Micro, OpponentModeller, RandomWalk
from sotopia_env.policies.negotiators.pressing import Presser, Prober
from sotopia_env.policies.scripted import Leaver, Sharer, Silent, UniformRandom
from sotopia_env.policies.speakers.informer import Informer
from sotopia_env.policies.speakers.speaker import Speaker
from sotopia_env.world.play.policy import Policy

ModelMaker = Callable[[str], ChatModel]
"""A function that returns the model of a name such as ``local/my-model``."""

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
    "presser": Presser,
    "prober": Prober,
    "sharer": Sharer,
    "splitter": Splitter,
    "leaver": Leaver,
    "silent": Silent,
    "random": UniformRandom,
    "honest": Speaker,
    "deceiver": partial(Speaker, name="deceiver", lies=1.0),
    "mute": partial(Speaker, name="mute", lies=None),
    "bayesian": partial(Speaker, name="bayesian", doubt=0.5),
    "uniform": partial(Speaker, name="uniform", lies=None, votes="uniform"),
    "oracle": Informer,
    "broadcaster": partial(Informer, name="broadcaster", shares="all", asks="nothing"),
    "keeper": partial(Informer, name="keeper", asks="nothing"),
    "asker": partial(Informer, name="asker", shares="asked", asks="unknown"),
    "human": HumanPolicy,
}

POLICY_NAMES: tuple[str, ...] = tuple(BUILT_IN)
"""The built-in policies without a language model."""

LLM_OPTIONS: Mapping[str, Reader] = readers_of(LLMPolicy)
"""The options of a language model's policy."""
_REQUEST_OPTIONS: Mapping[str, Reader] = {name: READERS[kind] for name, kind in REQUEST_SETTINGS.items()}


def _unbuilt(name: str, options: Mapping[str, Any]) -> Policy:
    """In place of a policy that is not built: one that asks its model if the name is also a model's."""
    if not MODEL_PLUGINS.has(name):
        return Unbuilt(name, options)
    return LLMPolicy(Unbuilt(name, options), **{key: value for key, value in options.items() if key in LLM_OPTIONS})


POLICY_PLUGINS: Plugins[Policy] = Plugins("policy", "sotopia.policies", Policy, _unbuilt)
"""The policies of other packages."""

_BEST_OF = "best-of-"
_BEST_OF_FORM = "best-of-N(POLICY by SCORER)"
_MOST_CANDIDATES = 1024  # candidates of one turn, which are requested concurrently


def described_policies() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields the name, the first line of the docstring, and the default parameters of each of :data:`POLICY_NAMES`."""
    for name, make in BUILT_IN.items():
        policy: Policy = make()
        yield name, (inspect.getdoc(type(policy)) or "").partition("\n")[0], policy.parameters


def make_policy(
    spec: str | Policy, chat_model: ModelMaker = make_model, manner: Mapping[str, Any] | None = None
) -> Policy:
    """Returns the policy that ``spec`` names; a policy is returned as it is.

    Args:
        spec: a name of :data:`POLICY_NAMES`, a model ``PROVIDER/MODEL``, or a policy of another package
            (:mod:`sotopia_env.naming.plugins`), optionally followed by ``:`` and comma-separated ``key=value`` pairs;
            or ``best-of-N(POLICY by SCORER)``. The options of a model are those of
            :class:`~sotopia_env.policies.llm.LLMPolicy`.
        chat_model: returns the model of a name. It should apply the base URL, limits and ledger of the run, and create
            each model only once.
        manner: settings for language models' policies that their names do not contain.

    Raises:
        UnknownNameError: the name or a parameter's name is unknown; the message suggests the nearest one.
        InvalidValueError: a parameter's value is invalid or out of range, or ``spec`` is not a policy.
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
    # Before models, because a name with a slash may be a directory.
    plugin = POLICY_PLUGINS.make(spec, arguments)
    if plugin is not None:
        return plugin
    if "/" in name:
        model, options = split_options(spec)
        owner = f"policy {model!r}"
        settings = _with_request(read_options(owner, options, {**LLM_OPTIONS, **_REQUEST_OPTIONS}))
        _check_manner(manner or {})
        with options_of(owner, LLM_OPTIONS):
            return LLMPolicy(chat_model(model), **{**(manner or {}), **settings})
    names = [*POLICY_NAMES, *POLICY_PLUGINS.names, _BEST_OF_FORM]
    raise UnknownNameError(
        field="policy",
        got=name,
        valid=names,
        hint="a language model is named PROVIDER/MODEL, your own package.module:factory",
    )


def _with_request(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of a name with those of the request's body as the setting ``request``."""
    request = {key: settings.pop(key) for key in _REQUEST_OPTIONS if key in settings}
    whole = settings.get("request", {})
    return {**settings, "request": {**whole, **request}} if request and isinstance(whole, dict) else settings


def _check_manner(manner: Mapping[str, Any]) -> None:
    for key in manner:
        if key not in LLM_OPTIONS:
            raise UnknownNameError("unknown setting", field=f"manner.{key}", got=key, valid=LLM_OPTIONS)


def _built_in(name: str, options: str) -> Policy:
    # Without ``name``: records find a built-in policy by the name of its kind.
    make = BUILT_IN[name]
    policy: Policy = make(**read_options(f"policy {name!r}", options, readers_of(make, but=("name",))))
    return policy


def _best_of_n(spec: str, make: Callable[[str], Policy], arguments: Mapping[str, Any]) -> BestOfNPolicy:
    head, inner = split_call(spec) or ("", "")
    # The last " by " separates the scorer: the policy may be a best-of-N too.
    *policy_parts, scorer_name = split(inner, " by ")
    if not policy_parts:
        raise InvalidValueError(
            expected=f"{_BEST_OF_FORM}, such as 'best-of-8(local/my-model by offer-worth)'", field="policy", got=spec
        )
    n = head.removeprefix(_BEST_OF)
    # The length is checked first, because ``int`` refuses texts of more than 4300 digits with an error of its own.
    if not n.isdecimal() or len(n) > len(str(_MOST_CANDIDATES)) or not 1 <= int(n) <= _MOST_CANDIDATES:
        raise InvalidValueError(
            field="policy",
            expected=f"an integer from 1 to {_MOST_CANDIDATES} after {_BEST_OF!r}",
            got=spec,
        )
    policy, scorer = make(" by ".join(policy_parts)), make_scorer(scorer_name, arguments)
    if isinstance(policy, HumanPolicy):
        raise InvalidValueError(expected="a policy that can be sampled, not a person", field="policy", got=spec)
    return BestOfNPolicy(policy, int(n), scorer, name=f"{_BEST_OF}{n}({policy.name} by {scorer.name})")
