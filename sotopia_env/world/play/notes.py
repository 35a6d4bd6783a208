"""Notes from one episode to the next with the same people: who writes them, and the task that shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Annotated, Protocol, runtime_checkable

from pydantic import AfterValidator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.quoting import escape
from sotopia_env.world.answers import Configured
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Policy, turn_seed
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task

NOTES = "notes"
DEFAULT_LENGTH, LONGEST = 600, 8_000
"""Characters of a seat's notes, about four for a token: by default and at most."""


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


def notes_length(carry: str) -> int:
    """Returns the maximum number of characters in ``notes`` or ``notes:N``.

    Raises:
        InvalidValueError: the text has another form.
    """
    kind, colon, number = carry.partition(":")
    length = number if colon else str(DEFAULT_LENGTH)
    if kind != NOTES or not (
        length.isascii() and length.isdecimal() and len(length) < 6 and 0 < int(length) <= LONGEST
    ):
        expected = f"'notes', or 'notes:N' with N from 1 to {LONGEST} characters"
        raise InvalidValueError(expected=expected, got=carry)
    return int(length)


def _checked(carry: str) -> str:
    notes_length(carry)
    return carry


CarriedNotes = Annotated[str, AfterValidator(_checked)]
"""A setting that :func:`notes_length` can read."""


def note_line(text: str, most: int) -> str:
    """Returns notes as one line, without risky characters; a longer text ends with its last whole word."""
    return textwrap.shorten(escape(text), most, placeholder="")


async def written_notes(table: Table, policies: Mapping[str, Policy], most: int) -> dict[str, str]:
    """Returns what every seat writes down after the end, by agent id, each from its own observation alone.

    A policy that takes no notes keeps those that it had.
    """
    notes = {}
    for agent, policy in policies.items():
        seed = turn_seed(table.state.seed, len(table.turns), table.task.seat_of[agent])
        text = await notes_of(policy, table.observe(agent), most, seed)
        if text := note_line(text, most):
            notes[agent] = text
    return notes


def following(task: Task, before: Episode) -> Task:
    """Returns the task with the notes that its people wrote after the episode before."""
    notes = {before.task.names[agent]: text for agent, text in before.notes.items()}
    return with_notes(task, {agent: notes[name] for agent, name in task.names.items() if name in notes})
