"""Reconstruction of policies from their records, to resume episodes and to interview the policies after the end.

A record is data: names in it are never imported, only looked up among built-in and installed objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Verbatim
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.validation import explain
from sotopia_env.naming.models import MODEL_PLUGINS, with_directories
from sotopia_env.naming.policies import BUILT_IN, LLM_OPTIONS, POLICY_PLUGINS, make_policy
from sotopia_env.naming.scorers import SCORER_PLUGINS, SCORERS, make_scorer
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.policies.combined.advised import AdvisedPolicy, mode_of
from sotopia_env.policies.combined.best_of_n import BestOfNPolicy, Scorer
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.manipulation import Manipulator
from sotopia_env.storage.manifest import Named
from sotopia_env.world.answers import (
    BeliefReplies,
    BeliefReply,
    Configured,
    InterviewQuestion,
    InterviewReply,
    answer_of,
    beliefs_of,
)
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Policy, policy_identity

_UNRECORDED = ("examples", "template", "name")
"""Settings of a language model's policy of which a record contains only a hash or a count."""


def policy_of(
    record: Configured,
    chat_model: Callable[[str], ChatModel],
    *,
    specs: Mapping[str, str] | None = None,
    exact: bool = True,
) -> Policy:
    """Returns the policy of a record.

    Scripted policies, people, language models, best-of-N and advised ones of these are reconstructed from name and
    parameters, policies of installed packages from the name of their entry point.

    Args:
        record: name and parameters, as recorded by a run.
        chat_model: returns the model of a name.
        specs: specs for :func:`~sotopia_env.naming.make_policy`, by the name in the record, of policies whose record is
            not sufficient, such as those in a trained model's directory.
        exact: whether the policy must have the recorded parameters. A record contains only hashes of prompts and
            examples, and its model may have moved; without ``exact``, parameters of such policies may differ.

    Raises:
        UnknownNameError: the record is not sufficient to reconstruct the policy.
        InvalidValueError: the record's parameters are invalid, or with ``exact``, the policy's parameters differ.
    """
    spec = (specs or {}).get(record.name)
    policy = make_policy(spec, chat_model) if spec else _remade(record, chat_model, specs)
    recorded = canonical_json([record.name, dict(record.parameters)])
    if exact and (identity := policy_identity(policy)) != recorded:
        expected = f"{recorded} from {spec!r}" if spec else recorded
        changed = record.parameters.get("prompts") != policy.parameters.get("prompts")
        hint = "the prompts of this version are others, so that it cannot play on as it played" if changed else ""
        raise InvalidValueError(field=f"policy {record.name!r}", expected=expected, got=Verbatim(identity), hint=hint)
    return policy


def _remade(record: Configured, chat_model: Callable[[str], ChatModel], specs: Mapping[str, str] | None) -> Policy:
    name, parameters = record.name, record.parameters
    try:
        base, _, worn = name.partition("+")
        if base in BUILT_IN:
            policy: Policy = dataclasses.replace(BUILT_IN[base](), **parameters)
            return Manipulator(policy, worn) if worn else policy
        if (candidates := _candidates(record)) is not None:
            # Not exact: the comparison of the whole best-of-N includes the parameters of its parts.
            inner = policy_of(candidates, chat_model, specs=specs, exact=False)
            return BestOfNPolicy(inner, parameters["n"], _scorer(_part(record, "scorer"), chat_model), name=name)
        if {"policy", "adviser", "mode"} <= set(parameters):
            own, adviser = [
                policy_of(_part(record, part), chat_model, specs=specs, exact=False) for part in ("policy", "adviser")
            ]
            return AdvisedPolicy(own, adviser, mode_of(parameters["mode"]), name=name)
        if name in POLICY_PLUGINS.names:
            plugin = POLICY_PLUGINS.make(name, {"chat_model": chat_model, **parameters})
            assert plugin is not None  # the name is an installed entry point
            return plugin
        return _llm_policy(name, parameters, with_directories(chat_model))
    except TypeError as error:
        # A parameter of another version of the policy.
        raise InvalidValueError(f"its record cannot be read ({error})", field=f"policy {name!r}") from None


def _llm_policy(name: str, parameters: Mapping[str, Any], chat_model: Callable[[str], ChatModel]) -> LLMPolicy:
    model = parameters.get("model")
    if not isinstance(model, str) or "prompts" not in parameters:
        raise UnknownNameError(field="policy", got=name, valid=[*BUILT_IN, *POLICY_PLUGINS.names])
    # Anything else might be an import path, whose code would run.
    if "/" not in model and model not in MODEL_PLUGINS.names:
        raise UnknownNameError(field="model", expected="PROVIDER/MODEL or one of an installed package", got=model)
    settings = {key: parameters[key] for key in LLM_OPTIONS if key in parameters and key not in _UNRECORDED}
    return LLMPolicy(chat_model(model), name=name, **settings)


def _scorer(record: Named, chat_model: Callable[[str], ChatModel]) -> Scorer:
    # Checked first, because ``make_scorer`` would also import a module that the record names.
    installed = [*SCORERS, *SCORER_PLUGINS.names]
    if record.name not in installed:
        raise UnknownNameError(field="scorer", got=record.name, valid=installed)
    return make_scorer(record.name, {"chat_model": chat_model, **record.parameters})


def _candidates(record: Configured) -> Named | None:
    """The record of the policy that generates the candidates of a best-of-N; ``None`` for any other policy."""
    return _part(record, "policy") if {"n", "policy", "scorer"} <= set(record.parameters) else None


def _part(record: Configured, key: str) -> Named:
    try:
        return Named.model_validate(record.parameters[key])
    except ValidationError as error:
        raise InvalidValueError(f"{key}: {explain(error)}", field=f"policy {record.name!r}") from None


# --- interviews ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordedPolicy:
    """A policy that answers questions and does not act.

    Attributes:
        name: the recorded name.
        parameters: the recorded parameters.
        policy: the policy that answers; ``None`` if it cannot be reconstructed from its record.
        reason: why the policy cannot be reconstructed.
    """

    name: str
    parameters: Mapping[str, Any]
    policy: Configured | None = None
    reason: str = ""

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the policy's answer, or a reply without an answer if the policy was not reconstructed."""
        if self.policy is None:
            return InterviewReply(reason=self.reason, asked=False)
        return await answer_of(self.policy, observation, question, seed)

    def believe(
        self, observation: Observation, variables: Sequence[PublicVariable], seed: int, samples: int
    ) -> BeliefReplies:
        """Returns the policy's beliefs, or replies without any if the policy was not reconstructed."""
        if self.policy is None:
            return [BeliefReply(reason=self.reason, asked=False) for _ in variables]
        return beliefs_of(self.policy, observation, variables, seed, samples)


def interviewees(policies: Iterable[Configured], chat_model: Callable[[str], ChatModel]) -> list[Configured]:
    """Returns the policies, with records replaced by policies that can answer."""
    return [policy if isinstance(policy, Policy) else _interviewee(policy, chat_model) for policy in policies]


def _interviewee(record: Configured, chat_model: Callable[[str], ChatModel]) -> RecordedPolicy:
    try:
        respondent = record
        # Answers are not scored, so the scorer of a best-of-N need not be installed.
        while (candidates := _candidates(respondent)) is not None:
            respondent = candidates
        return RecordedPolicy(record.name, record.parameters, policy_of(respondent, chat_model, exact=False))
    except UnknownNameError as error:
        reason = f"the policy {record.name!r} cannot be reconstructed from its record: {error}"
        return RecordedPolicy(record.name, record.parameters, reason=reason)
