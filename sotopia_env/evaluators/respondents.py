"""The policies that answer questions for the seats of recorded episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.errors import check_members
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.world.answers import Configured
from sotopia_env.world.episode import Episode, PolicyInfo


@dataclass(frozen=True, slots=True)
class Respondent:
    """Who answers for a seat.

    Attributes:
        agent: the seat.
        name: the name of the policy that answers, or that played and is not available; empty if unknown.
        policy: the policy; ``None`` if none is available.
        absence: why nobody answers, where nobody does.
    """

    agent: str
    name: str
    policy: Configured | None
    absence: str = ""


class Respondents:
    """Finds the policy that answers for a seat: the one that played there, or another in its place.

    Args:
        policies: policies that may have played. A seat's is found by the recorded name and parameters, because a policy
            of the same name with other parameters is another policy.
        interviewee: a policy that answers for all seats instead, or a mapping from agent ids to such policies.

    Raises:
        InvalidValueError: ``interviewee`` is neither.
    """

    def __init__(
        self, policies: Iterable[Configured] = (), interviewee: Configured | Mapping[str, Configured] | None = None
    ) -> None:
        self._policies = {_identity(policy): policy for policy in policies}
        self._others = interviewee
        for policy in interviewee.values() if isinstance(interviewee, Mapping) else filter(None, [interviewee]):
            check_members("interviewee", "a policy, or policies by agent id", policy, Configured)

    @property
    def parameters(self) -> Any:
        """The policies that answer instead, as JSON; ``None`` if every seat answers itself."""
        if isinstance(self._others, Mapping):
            return {agent: _described(policy) for agent, policy in self._others.items()}
        return None if self._others is None else _described(self._others)

    def replaces(self, agent: str) -> bool:
        """Whether another policy answers in place of the one that played, or of the person who did."""
        return agent in self._others if isinstance(self._others, Mapping) else self._others is not None

    def policy(self, episode: Episode, agent: str) -> Configured | None:
        """Returns the policy that answers for a seat; ``None`` if it is not available."""
        if self._others is not None and not isinstance(self._others, Mapping):
            return self._others
        if self._others is not None and agent in self._others:
            return self._others[agent]
        info = _info(episode, agent)
        return None if info is None else self._policies.get(_identity(info))

    def respondent(self, episode: Episode, agent: str) -> Respondent:
        """Returns who answers for a seat of a recorded episode."""
        policy, info = self.policy(episode, agent), _info(episode, agent)
        if policy is not None:
            return Respondent(agent, policy.name, policy)
        if info is None:
            return Respondent(agent, "", None, "no policy is recorded for the seat")
        return Respondent(agent, info.name, None, f"the policy {info.name!r} is not available")


def _info(episode: Episode, agent: str) -> PolicyInfo | None:
    return next((info for info in episode.policies if info.agent == agent), None)


def _described(policy: Configured) -> dict[str, Any]:
    return {"name": policy.name, "parameters": dict(policy.parameters)}


def _identity(policy: Configured | PolicyInfo) -> str:
    return canonical_json([policy.name, dict(policy.parameters)])
