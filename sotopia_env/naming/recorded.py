"""Policies as a record names them, to be asked after the end of an episode; nothing that a record names is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming.policies import BUILT_IN, LLM_OPTIONS
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.policies.policy import Policy
from sotopia_env.storage.manifest import Named
from sotopia_env.world.answers import Configured, InterviewQuestion, InterviewReply, answer_of
from sotopia_env.world.observation import Observation

_UNRECORDED = ("examples", "template", "name")
"""Settings of a language model's policy of which a record has no more than a hash or a count."""


@dataclass(frozen=True, slots=True)
class RecordedPolicy:
    """A policy that answers questions and does not act.

    Attributes:
        name: as recorded.
        parameters: likewise.
        policy: answers; ``None`` where the record does not say enough to make it again.
        reason: why there is none.
    """

    name: str
    parameters: Mapping[str, Any]
    policy: Configured | None = None
    reason: str = ""

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the policy's answer; without a policy, no answer and the reason."""
        if self.policy is None:
            return InterviewReply(reason=self.reason, asked=False)
        return await answer_of(self.policy, observation, question, seed)


def interviewees(policies: Iterable[Configured], chat_model: Callable[[str], ChatModel]) -> list[Configured]:
    """Returns policies as they are, and records of policies as policies that answer."""
    return [policy if isinstance(policy, Policy) else recorded_policy(policy, chat_model) for policy in policies]


def recorded_policy(record: Configured, chat_model: Callable[[str], ChatModel]) -> RecordedPolicy:
    """Returns the policy that a record names.

    Scripted policies, people and language models come back by name and parameters, and for a best-of-N answers the
    policy that gave its candidates. For any other policy nobody answers.

    Args:
        record: name and parameters, as a run has recorded them.
        chat_model: makes the models that are named.

    Raises:
        InvalidValueError: the name is known, and its parameters cannot be meant.
    """
    name, parameters = record.name, record.parameters
    lacking = f"the policy {name!r} cannot be made again from its record"
    try:
        policy = _policy(name, parameters, chat_model)
    except UnknownNameError as error:  # a model of another package, such as one that was trained
        return RecordedPolicy(name, parameters, reason=f"{lacking}: {error}")
    except (TypeError, KeyError, ValidationError) as error:
        raise InvalidValueError(f"the record cannot be read ({error})", field="policy", got=name) from None
    return RecordedPolicy(name, parameters, policy, "" if policy else lacking)


def _policy(name: str, parameters: Mapping[str, Any], chat_model: Callable[[str], ChatModel]) -> Configured | None:
    if name in BUILT_IN:
        policy: Configured = dataclasses.replace(BUILT_IN[name](), **parameters)
        return policy
    if {"n", "policy", "scorer"} <= set(parameters):
        return recorded_policy(Named(**parameters["policy"]), chat_model)
    if isinstance(parameters.get("model"), str) and "prompts" in parameters:
        keys = [key for key in LLM_OPTIONS if key in parameters and key not in _UNRECORDED]
        return LLMPolicy(chat_model(parameters["model"]), name=name, **{key: parameters[key] for key in keys})
    return None
