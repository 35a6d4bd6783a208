"""Factory of evaluators by name, such as ``verified``, ``judge:MODEL:per=agent``, ``mean(judge:A+judge:B)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from sotopia_env.chat_model.factory import make_model
from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.evaluators.composite import Composite
from sotopia_env.evaluators.diligence import Diligence
from sotopia_env.evaluators.ensemble import Ensemble
from sotopia_env.evaluators.games import GameMeasures
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.evaluators.judge.question import Manner
from sotopia_env.evaluators.probes.asking import MOMENTS
from sotopia_env.evaluators.probes.evaluator import FactsEvaluator
from sotopia_env.evaluators.spoken_outcome import SpokenOutcome
from sotopia_env.evaluators.verified import VerifiedOutcome
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Where, check_members
from sotopia_env.interviews.evaluator import InterviewEvaluator
from sotopia_env.naming.grammar import (
    WORD,
    Reader,
    options_of,
    read_options,
    readers_of,
    split,
    split_call,
    split_options,
    words,
)
from sotopia_env.naming.models import with_directories
from sotopia_env.naming.plugins import Plugins
from sotopia_env.naming.policies import make_policy
from sotopia_env.naming.recorded import interviewees
from sotopia_env.naming.unbuilt import Unbuilt
from sotopia_env.world.answers import Configured
from sotopia_env.world.episode import COUNTS_OF_WORDS, Evaluator

ModelFactory = Callable[..., ChatModel]
"""A function that returns the model of a name; called with ``api_base`` if the evaluator's name contains one."""

_BUILT_IN: Mapping[str, Callable[[], Evaluator]] = {
    "verified": VerifiedOutcome,
    "diligence": Diligence,
    "games": GameMeasures,
}

EVALUATOR_NAMES: tuple[str, ...] = tuple(_BUILT_IN)
"""The built-in evaluators without a model; names may be combined with ``+``."""

EVALUATOR_PLUGINS: Plugins[Evaluator] = Plugins("evaluator", "sotopia.evaluators", Evaluator, Unbuilt)
"""The evaluators of other packages."""

NO_EVALUATOR = "none"
"""The name for which :func:`make_optional_evaluator` returns ``None``."""


def make_evaluator(
    spec: str | Evaluator,
    *,
    model_factory: ModelFactory = make_model,
    policies: Iterable[Configured] = (),
) -> Evaluator:
    """Returns the evaluator that ``spec`` names; an evaluator is returned as it is.

    Args:
        spec: a name of :data:`EVALUATOR_NAMES`, a judge (``judge:MODEL``), several of these joined with ``+`` (the
            first that scores a dimension counts), or an aggregate of several: ``mean(judge:A+verified)``. An aggregate
            of judges only is an :class:`~sotopia_env.evaluators.ensemble.Ensemble`, which also supports ``majority``
            and a minimum number of answers: ``mean(judge:A+judge:B+judge:C):quorum=2``. The default is that all judges
            must answer.

            A judge's model may be followed by ``:`` and any of ``dimensions=(goal,relationship)``, ``custom=FILE``
            (YAML; by default the dimensions of each episode's scenario), ``bands=true``, ``per=agent``,
            ``temperature=0.5``, ``reasks=3``, ``max_tokens=2000``, ``replicate=1`` and ``api_base=URL``.

            ``spoken-outcome:MODEL`` scores agreements that were made in words only, in episodes without moves. Its
            options are ``temperature``, ``reasks``, ``max_tokens``, ``replicate`` and ``api_base``; ``words_only=true``
            reads the words of episodes with moves.

            ``interview`` asks the policies themselves; ``interview:MODEL`` also asks one or several external judges,
            separated by commas. Its options are ``interviewee=POLICY`` (answers for all participants; or
            ``interviewee=(agent_0=POLICY,agent_1=POLICY)``), ``views=(self,other,external)``, ``deciding=all``, and
            ``temperature``, ``reasks``, ``max_tokens`` and ``api_base`` of judges and interviewees.

            ``facts`` measures knowledge, secrecy, norms and trust in tasks with facts, and asks the policies themselves
            about the variables. Its options are ``probe=end|turns|none``, ``samples``, ``trust``, ``interviewee`` as
            for ``interview``, and ``api_base``.

            Any other name refers to another package (:mod:`sotopia_env.naming.plugins`, group
            ``sotopia.evaluators``): an entry point, ``package.module:factory``, or a directory. A factory with a
            parameter ``chat_model`` is passed ``model_factory``.
        model_factory: returns a judge's model by name; models in directories are opened instead
            (:data:`~sotopia_env.naming.models.MODEL_PLUGINS`).
        policies: the policies of the run, for an interview and for ``facts``. Records of scripted policies and
            language models are sufficient (:func:`~sotopia_env.naming.recorded.policy_of`).

    Raises:
        UnknownNameError: a name, an option or a view is unknown; the message suggests the nearest name.
        InvalidValueError: ``spec`` is neither a text nor an evaluator, an option is invalid, or a model is missing.
    """
    if not isinstance(spec, str):
        check_members("evaluator", "a name or an evaluator", spec, Evaluator)
        return spec
    model_factory = with_directories(model_factory)
    head, options = split_options(spec)
    call = split_call(head)
    if call is None:
        members = [_make_one(name, model_factory, policies) for name in split(spec, "+")]
        return members[0] if len(members) == 1 else Composite(members)
    aggregate, inner = call
    arguments = read_options(f"evaluator {aggregate!r}", options, readers_of(Ensemble, but=("aggregate",)))
    members = [_make_one(name, model_factory, policies) for name in split(inner, "+")]
    # A majority and a quorum are defined for judges only, each of which may fail to answer.
    if all(isinstance(member, LLMJudge) for member in members):
        return Ensemble(members, aggregate, **arguments)
    if arguments:
        where = Where(record=f"evaluator {aggregate!r}")
        raise InvalidValueError(field="quorum", expected="only judges in the parentheses", got=inner, where=where)
    return Composite(members, aggregate)


def make_optional_evaluator(
    spec: str | Evaluator,
    *,
    model_factory: ModelFactory = make_model,
    policies: Iterable[Configured] = (),
) -> Evaluator | None:
    """Returns ``None`` for the name ``none``, and otherwise the evaluator of :func:`make_evaluator`."""
    if spec == NO_EVALUATOR:
        return None
    return make_evaluator(spec, model_factory=model_factory, policies=policies)


def with_probes(spec: str, moments: str) -> str:
    """Returns the name of an evaluator with ``probe=MOMENTS`` for its member ``facts``.

    Raises:
        UnknownNameError: ``moments`` is none of ``end``, ``turns`` and ``none``.
        InvalidValueError: no member is ``facts``, or it has the option already, with another value.
    """
    if moments not in MOMENTS:
        raise UnknownNameError(field="probe", got=moments, valid=MOMENTS)
    names = _with_probes(spec, moments)
    if names is None:
        raise InvalidValueError(
            field="evaluator",
            expected=f"one with a member {_FACTS!r}, which asks the seats",
            got=spec,
            hint=f"name '{spec}+{_FACTS}'" if spec != NO_EVALUATOR else f"name {_FACTS!r}",
        )
    return names


def _with_probes(spec: str, moments: str) -> str | None:
    head, options = split_options(spec)
    if call := split_call(head):
        inner = _with_probes(call[1], moments)
        return None if inner is None else f"{call[0]}({inner})" + (f":{options}" if options else "")
    names = split(spec, "+")
    if all(split_options(name)[0] != _FACTS for name in names):
        return None
    return "+".join(_probing(name, moments) for name in names)


def probe_of(spec: str) -> tuple[str, bool]:
    """Returns when the member ``facts`` of an evaluator asks the seats, and whether it also asks about trust.

    The moments are ``end``, ``turns``, or ``none``: also without such a member, and where an ``interviewee`` answers in
    place of the seats. No model is built.
    """
    head, options = split_options(spec)
    if call := split_call(head):
        return probe_of(call[1])
    for name in split(spec, "+"):
        head, options = split_options(name)
        if head == _FACTS:
            readers = {**readers_of(FactsEvaluator), **_ADDRESS, **_DEPUTY}
            present = read_options(f"evaluator {head!r}", options, readers)
            moment = "none" if "interviewee" in present else present.get("probe", "end")
            return moment, moment != "none" and present.get("trust", True)
    return "none", False


def _probing(name: str, moments: str) -> str:
    """The name of one evaluator; changed if it is ``facts``."""
    head, options = split_options(name)
    if head != _FACTS:
        return name
    present = dict(part.partition("=")[::2] for part in split(options)) if options else {}
    if present.get("probe", moments) != moments:
        raise InvalidValueError(
            "the evaluator's name says otherwise", field="probe", got=moments, expected=present["probe"]
        )
    return name if "probe" in present else f"{_FACTS}:{','.join(filter(None, [f'probe={moments}', options]))}"


def _make_one(name: str, model_factory: ModelFactory, policies: Iterable[Configured]) -> Evaluator:
    head, options = split_options(name)
    if head == COUNTS_OF_WORDS:
        raise InvalidValueError(
            "it counted words and was removed, because a count of words is not a score",
            field="evaluator",
            got=name,
            hint="name 'verified' for the moves, or a judge, as in 'verified+judge:MODEL'; "
            "`sotopia evaluate RUN --evaluator verified` scores a run that was begun with it, and its other episodes "
            "are played into a new directory",
        )
    if head in _BUILT_IN:
        read_options(f"evaluator {head!r}", options, {})
        return _BUILT_IN[head]()
    if head.partition(":")[0] == _INTERVIEW:
        return _interview(head, options, model_factory, policies)
    if head == _FACTS:
        return _probes(head, options, model_factory, policies)
    kind, _, model = head.partition(":")
    # ``judge`` without a colon may be another package's entry point; with a colon it is the built-in judge in any case.
    if kind not in _WITH_MODEL or ":" not in name:
        return _plugin(name, model_factory)
    if not model:
        raise InvalidValueError(field="evaluator", expected=f"a model's name after '{kind}:'", got=f"{kind}:")
    make = _WITH_MODEL[kind]
    readers = {**readers_of(make), **_ADDRESS}
    arguments = read_options(f"evaluator {head!r}", options, readers)
    model_factory = _at_address(model_factory, arguments)
    with options_of(f"evaluator {head!r}", readers):
        return make(model_factory(model), **arguments)


def _plugin(name: str, model_factory: ModelFactory) -> Evaluator:
    plugin = EVALUATOR_PLUGINS.make(name, {"chat_model": model_factory})
    if plugin is None:
        forms = [_FACTS, _INTERVIEW, *(f"{kind}:MODEL" for kind in _WITH_MODEL)]
        names = [*EVALUATOR_NAMES, *EVALUATOR_PLUGINS.names, *forms]
        raise UnknownNameError(field="evaluator", got=name, valid=names, hint="your own: package.module:factory")
    return plugin


def _interview(head: str, options: str, make: ModelFactory, policies: Iterable[Configured]) -> InterviewEvaluator:
    owner = f"evaluator {head!r}"
    readers = {**readers_of(InterviewEvaluator), **_ADDRESS, **_DEPUTY}
    arguments = read_options(owner, options, readers)
    make = _at_address(make, arguments)
    with options_of(owner, readers):
        judges = [make(name) for name in words(head.partition(":")[2])]
        # Temperature 0 by default: an answer is a measurement and should be reproducible.
        manner = {"temperature": 0.0, **{key: arguments[key] for key in readers_of(Manner) if key in arguments}}
        deputies = _deputies(arguments, make, manner)
        return InterviewEvaluator(judges, policies=interviewees(policies, make), interviewee=deputies, **arguments)


def _probes(head: str, options: str, make: ModelFactory, policies: Iterable[Configured]) -> FactsEvaluator:
    owner = f"evaluator {head!r}"
    readers = {**readers_of(FactsEvaluator), **_ADDRESS, **_DEPUTY}
    arguments = read_options(owner, options, readers)
    make = _at_address(make, arguments)
    with options_of(owner, readers):
        deputies = _deputies(arguments, make, {})
        return FactsEvaluator(policies=interviewees(policies, make), interviewee=deputies, **arguments)


def _at_address(make: ModelFactory, arguments: dict[str, Any]) -> ModelFactory:
    """Takes the address out of the arguments: it belongs to the models, not to the evaluator."""
    return partial(make, api_base=arguments.pop("api_base")) if "api_base" in arguments else make


def _deputies(
    arguments: dict[str, Any], make: ModelFactory, manner: Mapping[str, Any]
) -> Configured | Mapping[str, Configured] | None:
    """Takes the policies that answer instead of the seats' out of the arguments."""
    seats = {agent: make_policy(spec, make, manner) for agent, spec in arguments.pop("interviewee", {}).items()}
    return seats.get(_EVERY_SEAT, seats or None)


def _interviewee(text: str) -> dict[str, str]:
    """Policy specs by agent id; the key ``""`` means every seat."""
    # Agent ids contain no colon: ``bayesian:doubt=0`` is one policy with an option.
    if "=" not in text or ":" in text.partition("=")[0]:
        return {_EVERY_SEAT: text}
    policies = read_options("interviewee", text, {}, default=WORD)
    if not all(policies.values()):
        raise ValueError(text)
    return policies


_INTERVIEW, _FACTS = "interview", "facts"
_EVERY_SEAT = ""
_WITH_MODEL: Mapping[str, Callable[..., Evaluator]] = {"judge": LLMJudge, "spoken-outcome": SpokenOutcome}
_ADDRESS: Mapping[str, Reader] = {"api_base": WORD}
_DEPUTY: Mapping[str, Reader] = {"interviewee": Reader(_interviewee, "POLICY or (AGENT=POLICY,…)")}
