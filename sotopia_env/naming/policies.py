"""Factory of policies by name: scripted policies, language models, best-of-N, and policies of other packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

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
from sotopia_env.policies.choosers.chooser import Chooser
from sotopia_env.policies.combined.advised import AdvisedPolicy
from sotopia_env.policies.combined.best_of_n import BestOfNPolicy
from sotopia_env.policies.human import HumanPolicy
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.manipulation import Manipulator, manipulations
from sotopia_env.policies.negotiators.concession import FixedDemand, RandomOffers, Splitter, TimeDependent, TitForTat
from sotopia_env.policies.negotiators.opponents import Liar, Micro, OpponentModeller, RandomWalk
from sotopia_env.policies.negotiators.pressing import Presser, Prober
from sotopia_env.policies.scripted import Leaver, Sharer, Silent, UniformRandom
from sotopia_env.policies.speakers.guesser import Guesser
from sotopia_env.policies.speakers.informer import Informer
from sotopia_env.policies.speakers.speaker import Speaker
from sotopia_env.world.play.policy import Policy

ModelMaker = Callable[[str], ChatModel]
"""A function that returns the model of a name such as ``local/my-model``."""

_ROWS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "boulware": (
        partial(TimeDependent, name="boulware", exponent=0.2),
        "Concedes late: insists on its best outcomes until shortly before the end.",
    ),
    "linear": (partial(TimeDependent, name="linear", exponent=1.0), "Concedes in equal steps until the end."),
    "conceder": (
        partial(TimeDependent, name="conceder", exponent=5.0),
        "Concedes early: most of the way in its first turns.",
    ),
    "tit-for-tat": (TitForTat, "Concedes as much as its partners have conceded, and a little with time."),
    "micro": (Micro, "Concedes one small step for every new offer of its partners (MiCRO)."),
    "hard-headed": (
        partial(OpponentModeller, name="hard-headed", exponent=0.05, tolerance=0.01),
        "Concedes almost nothing before the end, and offers what its partners seem to like best.",
    ),
    "frequency": (
        partial(OpponentModeller, name="frequency"),
        "Concedes in equal steps, and offers what its partners seem to like best.",
    ),
    "stubborn": (FixedDemand, "Asks for the same utility in every turn and accepts nothing below it."),
    "generous": (
        partial(TimeDependent, name="generous", opening=0.6, floor=0.0),
        "Asks for little more than half of its best outcome, and concedes in equal steps to nothing.",
    ),
    "random-offers": (RandomOffers, "Draws in every turn how much it asks for, and accepts offers that reach it."),
    "random-walk": (RandomWalk, "Asks for a random utility, which changes a little with every offer."),
    "liar": (Liar, "Makes the moves of a linear negotiator and says the opposite."),
    "presser": (Presser, "Concedes late and says with every offer that it is the last one."),
    "prober": (Prober, "Concedes in equal steps and asks with every offer for its partner's limits and secrets."),
    "sharer": (Sharer, "Discloses its private information one sentence per turn, then concedes in equal steps."),
    "splitter": (Splitter, "Asks for half of its best outcome, then for the middle between the offers."),
    "leaver": (Leaver, "Leaves at once; if leaving is not possible, it stays silent."),
    "silent": (Silent, "Does nothing in every turn."),
    "random": (UniformRandom, "Draws one of the available action types, with one to eight random words."),
    "honest": (Speaker, "States what it knows in every turn and votes by its belief."),
    "deceiver": (partial(Speaker, name="deceiver", lies=1.0), "Lies in every turn and votes by its belief."),
    "mute": (partial(Speaker, name="mute", lies=None), "States nothing and votes by its belief."),
    "bayesian": (
        partial(Speaker, name="bayesian", doubt=0.5),
        "States what it knows, takes half of what others state for lies, and votes by its belief.",
    ),
    "uniform": (partial(Speaker, name="uniform", lies=None, votes="uniform"), "States nothing and votes by lot."),
    "guesser": (Guesser, "States and asks at random, and votes by lot: the chance level of measures of social acts."),
    "oracle": (Informer, "Tells every fact to those who may know it and asks for all that it is to learn."),
    "broadcaster": (
        partial(Informer, name="broadcaster", shares="all", asks="nothing"),
        "Tells every fact to everybody, also those that are to be kept, and asks for nothing.",
    ),
    "keeper": (
        partial(Informer, name="keeper", asks="nothing"),
        "Tells every fact to those who may know it and asks for nothing.",
    ),
    "asker": (
        partial(Informer, name="asker", shares="asked", asks="unknown"),
        "Asks for the facts that it does not know, and tells a fact only when it is asked for it.",
    ),
    "promiser": (Chooser, "Promises in each round of a game to co-operate, and does."),
    "cooperator": (
        partial(Chooser, name="cooperator", promises=False),
        "Chooses in each round of a game what is best for all together.",
    ),
    "cheater": (
        partial(Chooser, name="cheater", plays="deviate"),
        "Promises to co-operate and chooses what pays most if the others do.",
    ),
    "reciprocator": (
        partial(Chooser, name="reciprocator", plays="reciprocate"),
        "Announces and does its part if the others did theirs and announce nothing else.",
    ),
    "grim": (
        partial(Chooser, name="grim", plays="trigger", promises=False),
        "Co-operates in a game until somebody has not, and punishes for ever after.",
    ),
    "copycat": (
        partial(Chooser, name="copycat", plays="copy", promises=False),
        "Co-operates first in a game, then does what the others did last.",
    ),
    "best-responder": (
        partial(Chooser, name="best-responder", plays="respond", promises=False),
        "Chooses what pays most against what the others did last.",
    ),
    "equilibrium": (
        partial(Chooser, name="equilibrium", plays="equilibrium", promises=False),
        "Plays an equilibrium of a single round, mixed and symmetric if there is one.",
    ),
    "human": (HumanPolicy, "A person, who is shown the seat's observation and chooses each action."),
}

BUILT_IN: Mapping[str, Callable[..., Any]] = {name: make for name, (make, _) in _ROWS.items()}
"""The factories of the built-in policies by name."""

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

_WORN = re.compile(r"[A-Za-z][\w-]*(:[A-Za-z]*)?")
"""The form of a manipulation after a plus sign; a number such as ``1e+3`` has none."""
_ADVISED, _ADVISED_FORM = "advised(", "advised(POLICY by ADVISER)"
_BEST_OF = "best-of-"
_BEST_OF_FORM = "best-of-N(POLICY by SCORER)"
_MOST_CANDIDATES = 1024  # candidates of one turn, which are requested concurrently


class PolicyLine(NamedTuple):
    """A policy in a list to choose from.

    Attributes:
        name: the name for :func:`make_policy`.
        about: what it does, in a sentence.
        parameters: its default parameters; empty for a policy of another package.
    """

    name: str
    about: str
    parameters: Mapping[str, Any]


def described_policies() -> Iterator[PolicyLine]:
    """Yields the policies that can be named without a model or a directory: :data:`POLICY_NAMES`, then plug-ins."""
    for name, (make, about) in _ROWS.items():
        yield PolicyLine(name, about, make().parameters)
    for name, about in POLICY_PLUGINS.described():
        yield PolicyLine(name, about, {})


def make_policy(
    spec: str | Policy, chat_model: ModelMaker = make_model, manner: Mapping[str, Any] | None = None
) -> Policy:
    """Returns the policy that ``spec`` names; a policy is returned as it is.

    Args:
        spec: a name of :data:`POLICY_NAMES`, a model ``PROVIDER/MODEL``, or a policy of another package
            (:mod:`sotopia_env.naming.plugins`), optionally followed by ``:`` and comma-separated ``key=value`` pairs;
            ``best-of-N(POLICY by SCORER)``, or ``advised(POLICY by ADVISER)``. The options of a model are those of
            :class:`~sotopia_env.policies.llm.LLMPolicy`. A scripted policy may be followed by ``+`` and a manipulation
            (:mod:`sotopia_env.policies.manipulation`), as in ``boulware+authority:strong``.
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
    if spec.strip().startswith(_ADVISED):
        return _advised(spec.strip(), lambda inner: make_policy(inner, chat_model, manner))
    if (worn := _worn(spec)) is not None:
        return worn
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
    names = [*POLICY_NAMES, *POLICY_PLUGINS.names, _BEST_OF_FORM, _ADVISED_FORM]
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


def _worn(spec: str) -> Manipulator | None:
    """The policy of ``SCRIPT+MANIPULATION``; ``None`` if the name has another form."""
    *rest, kind = split(spec, "+")
    base = "+".join(rest)
    name, _, options = (part.strip() for part in base.partition(":"))
    # A plus sign may also be part of an option of somebody else's policy.
    if not _WORN.fullmatch(kind) or not (name in BUILT_IN or kind.partition(":")[0] in manipulations()):
        return None
    scripts = [script for script in POLICY_NAMES if BUILT_IN[script] is not HumanPolicy]
    if name not in scripts:
        hint = f"one manipulation is worn by one scripted policy, as in 'boulware+{kind}'"
        raise UnknownNameError(field="policy", got=name, valid=scripts, hint=hint)
    return Manipulator(_built_in(name, options), kind)


def _advised(spec: str, make: Callable[[str], Policy]) -> AdvisedPolicy:
    _, inner = split_call(spec) or ("", "")
    # The last " by " separates the adviser: the policy may be a best-of-N.
    *policy_parts, adviser = split(inner, " by ")
    if not policy_parts:
        expected = f"{_ADVISED_FORM}, such as 'advised(local/my-model by conceder)'"
        raise InvalidValueError(expected=expected, field="policy", got=spec)
    if isinstance(advising := make(adviser), HumanPolicy):
        raise InvalidValueError(expected="a policy that advises, not a person", field="policy", got=spec)
    return AdvisedPolicy(make(" by ".join(policy_parts)), advising)


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
