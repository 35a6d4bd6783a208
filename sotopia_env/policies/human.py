"""A person at the terminal as a policy."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.errors import InvalidActionError
from sotopia_env.policies.policy import Decision
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.observation import Observation
from sotopia_env.world.quoting import printable

_WITHOUT_TEXT = (ActionType.NONE, ActionType.LEAVE)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class HumanPolicy:
    """Shows the seat's observation and asks for an action type, a text and, where possible, recipients.

    The type may be given as its number or by name. What cannot be read is asked for again; the end of the input
    (Ctrl-D) leaves the conversation. Waiting happens in a thread, so other episodes go on.

    Attributes:
        read: asks with a prompt and returns a line; raises ``EOFError`` at the end of the input.
        write: shows a text.
    """

    read: Callable[[str], str] = field(default=input, repr=False)
    write: Callable[[str], None] = field(default=_write, repr=False)
    name: str = "human"

    @property
    def parameters(self) -> Mapping[str, Any]:
        """None: a person has no settings."""
        return {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns what the person decides."""
        return await asyncio.to_thread(self._decide, observation)

    def _decide(self, observation: Observation) -> Decision:
        self.write(printable(observation.text))  # what others said must not steer the person's terminal
        try:
            return Decision(self._ask(observation))
        except EOFError:
            possible = ActionType.LEAVE in observation.available
            return Decision(Action(ActionType.LEAVE if possible else ActionType.NONE))

    def _ask(self, observation: Observation) -> Action:
        while True:
            kind = self._ask_type(observation.available)
            if kind in _WITHOUT_TEXT:
                return Action(kind)
            text = self._ask_text(kind)
            recipients = self._ask_recipients(observation.briefing.recipients)
            try:
                return Action(kind, text, recipients)
            except InvalidActionError as error:
                self.write(f"That is not possible: {error}.")

    def _ask_type(self, available: tuple[ActionType, ...]) -> ActionType:
        listed = ", ".join(f"{number} = {kind.value}" for number, kind in enumerate(available, start=1))
        while True:
            answer = self.read(f"What do you do? ({listed}) ").strip().casefold()
            if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(available):
                return available[int(answer) - 1]
            for kind in available:
                if answer == kind.value:
                    return kind
            self.write(f"Expected a number from 1 to {len(available)} or a name from the list, got {answer!r}.")

    def _ask_text(self, kind: ActionType) -> str:
        while True:
            text = self.read("What do you say? " if kind is ActionType.SPEAK else "Describe it: ").strip()
            if text:
                return text
            self.write(f"{kind.value!r} needs a text, got none.")

    def _ask_recipients(self, recipients: Mapping[str, str]) -> tuple[str, ...]:
        """Names to agent ids; an empty answer means everybody. Not asked where private actions are not possible."""
        by_name = {name.casefold(): agent for name, agent in recipients.items()}
        while by_name:
            answer = self.read("To whom alone? (names with commas between; Enter for everybody) ")
            names = [name.strip().casefold() for name in answer.split(",") if name.strip()]
            unknown = [name for name in names if name not in by_name]
            if not unknown:
                return tuple(dict.fromkeys(by_name[name] for name in names))
            self.write(f"Expected names from {', '.join(recipients)}, got {unknown[0]!r}.")
        return ()
