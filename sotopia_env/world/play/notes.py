"""Notes from one episode to the next with the same people: who writes them, and the task that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from sotopia_env.world.answers import Configured
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Task


@runtime_checkable
class TakesNotes(Protocol):
    """A policy that writes notes for the next episode with the same people; optional for policies."""

    async def note(self, observation: Observation, most: int, seed: int) -> str:
        """Returns the notes, which replace the earlier ones; those are in the observation's briefing.

        Args:
            observation: the seat's observation after the end; the notes may be based on nothing else.
            most: the maximum number of characters; what is longer is cut.
            seed: the only source of randomness that a policy may use.

        Raises:
            PolicyError: no notes could be written.
        """
        ...


async def notes_of(policy: Configured, observation: Observation, most: int, seed: int) -> str:
    """Returns the notes of a policy; those that the seat had, if it takes none. Raises as :meth:`TakesNotes.note`."""
    return await policy.note(observation, most, seed) if isinstance(policy, TakesNotes) else observation.briefing.notes


def with_notes(task: Task, notes: Mapping[str, str]) -> Task:
    """Returns the task with these notes, by agent id, in place of its own."""
    # A new record, since a copy would share what was derived from the task without them.
    return Task(**{**{name: getattr(task, name) for name in Task.model_fields}, "notes": notes})
