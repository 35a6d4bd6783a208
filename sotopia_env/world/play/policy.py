"""The policy protocol: one observation in, one action out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from sotopia_env.foundation.errors import InvalidValueError, PolicyError, excerpt
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.world.action import Action
from sotopia_env.world.answers import Configured
from sotopia_env.world.episode import EpisodeError, Generation
from sotopia_env.world.observation import Observation


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, with the text and the usage that produced it, if any.

    Attributes:
        action: the action to take.
        generation: the text that the action was read from.
        errors: the external errors that were recovered from while the decision was made.

    Raises:
        PolicyError: the action is not an :class:`~sotopia_env.world.Action`, or the generation is not a ``Generation``.
    """

    action: Action
    generation: Generation | None = None
    errors: tuple[EpisodeError, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.action, Action):
            raise PolicyError(f"action: expected an Action, got {excerpt(self.action)}")
        if self.generation is not None and not isinstance(self.generation, Generation):
            raise PolicyError(f"generation: expected a Generation or None, got {excerpt(self.generation)}")


@runtime_checkable
class Policy(Protocol):
    """Maps an observation to an action.

    A policy keeps no state between calls: everything it needs is in the observation and the seed, so episodes may run
    concurrently and be resumed. A policy that can be interviewed after the end also has a method ``answer``
    (:class:`~sotopia_env.world.answers.Interviewee`).
    """

    @property
    def name(self) -> str:
        """The policy's name in records and on the command line."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Everything that changes its behaviour, as JSON."""
        ...

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the action to take.

        Args:
            observation: everything that the policy's seat may know; ``observation.acting`` is true.
            seed: differs for every turn of every episode; the only source of randomness that a policy may use.

        Raises:
            PolicyError: no action could be produced for a reason other than unusable text.
            BudgetExceededError: a model's budget is spent; ends the run, not the episode.
            ModelRefusedError: a model refuses every request; ends the run, not the episode.
        """
        ...


_MASK = (1 << 64) - 1


def turn_seed(episode_seed: int, turn: int, seat: int) -> int:
    """Returns the seed a policy gets for one turn, from 0 to 2**63 - 1.

    The SplitMix64 finaliser (Steele, Lea and Flood, OOPSLA 2014) over ``episode_seed`` advanced by its golden-ratio
    increment once per turn and by a second odd constant once per seat: a few integer operations, and neighbouring
    turns, seats and episodes get unrelated seeds.
    """
    # The mask wraps products to 64 bits, as C's uint64_t does; the last shift makes the result fit into an int64.
    z = (episode_seed + (turn + 1) * 0x9E3779B97F4A7C15 + (seat + 1) * 0xD1B54A32D192ED03) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1


def policy_identity(policy: Configured) -> str:
    """Returns the name and the parameters of a policy as one JSON text; equal texts mean equal policies.

    Raises:
        InvalidValueError: the parameters are not JSON.
    """
    try:
        return canonical_json([policy.name, dict(policy.parameters)])
    except (TypeError, ValueError) as error:
        field = f"{policy.name}.parameters"
        raise InvalidValueError(f"they must be JSON values ({error})", field=field) from None
