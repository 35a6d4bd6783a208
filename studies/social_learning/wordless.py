"""A script that acts as another one and says nothing beside its moves.

Nothing that counts in this study reads words, and a tiny model would spend most of its tokens on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sotopia_env.naming import make_policy
from sotopia_env.policies import Decision, Policy
from sotopia_env.world import Observation


@dataclass(frozen=True, slots=True)
class Wordless:
    """Acts as a script, with an empty argument.

    Attributes:
        script: the script.
        name: the policy's name.
    """

    script: Policy
    name: str

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The script's parameters."""
        return self.script.parameters

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the script's action without its words."""
        decision = await self.script.act(observation, seed)
        return replace(decision, action=replace(decision.action, argument=""))


def wordless(policy: str) -> Wordless:
    """Returns the wordless form of a script, called ``wordless(NAME)``.

    Args:
        policy: the script's name, with options in parentheses: ``(deceiver:lies=0.5)``.
    """
    # With its options, so that the same script with others has another name in records.
    name = policy.removeprefix("(").removesuffix(")")
    return Wordless(make_policy(name), f"wordless({name})")
