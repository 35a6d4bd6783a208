"""A policy for a person at the terminal, with a menu of the open moves."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError
from sotopia_env.foundation.quoting import escape
from sotopia_env.foundation.records import MOST_CHARACTERS
from sotopia_env.outcomes import Move
from sotopia_env.outcomes.amounts import fold
from sotopia_env.outcomes.facts import PublicVariable
from sotopia_env.policies.interviews import belief_question, question_text
from sotopia_env.policies.move_dialogue import MoveDialogue
from sotopia_env.world.action import WORDLESS, Action, ActionType
from sotopia_env.world.answers import PARTICIPANT, InterviewQuestion, InterviewReply
from sotopia_env.world.episode import Generation
from sotopia_env.world.observation import NOTHING_YET, SO_FAR, Observation
from sotopia_env.world.play.policy import Decision

_YES, _YES_OR_NO = ("y", "yes"), ("y", "yes", "n", "no")
_NO_ANSWER = InterviewReply(reason="the person gave no answer")
_FORM = (
    "the conversation is over; some last questions about what you believe now. Nobody in it sees your answers. "
    "Answer with the letter of one option; or with several, such as 'a 70 b 30'; or with Enter if you do not know. "
    "Ctrl-D skips the rest."
)
_TERMINAL = threading.Lock()
"""Held during a question: several seats played at one terminal are interviewed one after the other."""


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class HumanPolicy:
    """Shows the seat's observation, and asks for an action type, a text and, where possible, recipients and a move.

    The person chooses a type by its number or name and a move by its number, and enters the terms of an offer issue by
    issue. An invalid answer is explained and asked for again; the end of the input (Ctrl-D) leaves the conversation.
    Reading blocks a thread and not the event loop, so other episodes continue meanwhile.

    Attributes:
        read: shows a prompt and returns a line; raises ``EOFError`` at the end of the input.
        write: shows a text.
        name: the policy's name in records.
        participant: a code for the person in records, not a name, because records may be published; empty if unknown.

    Raises:
        InvalidValueError: ``participant`` is not a single line of at most 80 visible characters.
    """

    read: Callable[[str], str] = field(default=input, repr=False)
    write: Callable[[str], None] = field(default=_write, repr=False)
    name: str = "human"
    participant: str = ""

    def __post_init__(self) -> None:
        if self.participant and not (self.participant.isprintable() and len(self.participant) <= MOST_CHARACTERS):
            expected = f"a line of at most {MOST_CHARACTERS} visible characters"
            raise InvalidValueError(field="participant", expected=expected, got=self.participant)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The participant's code, if there is one; a person has no settings."""
        return {PARTICIPANT: self.participant} if self.participant else {}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the person's decision."""
        return await asyncio.to_thread(self._decide, observation)

    async def answer(self, observation: Observation, question: InterviewQuestion, seed: int) -> InterviewReply:
        """Returns the person's choice from a menu; no answer if the input ends or the line is empty."""
        return await asyncio.to_thread(self._choose, observation, question)

    async def note(self, observation: Observation, most: int, seed: int) -> str:
        """Returns the line that the person writes down; its earlier notes if that is empty."""
        return await asyncio.to_thread(self._note, observation, most)

    def _note(self, observation: Observation, most: int) -> str:
        with _TERMINAL:
            self.write(escape(f"\nIt is over.\n{observation.history}\n{observation.table_text}"))
            prompt = f"Your notes for the next time, up to {most} characters (Enter keeps those from before): "
            try:
                return self.read(prompt) or observation.briefing.notes
            except EOFError:
                return observation.briefing.notes

    async def lets(self, observation: Observation, question: str) -> bool:
        """Returns the person's answer to a question of yes or no about the turn; no if the input ends."""
        return await asyncio.to_thread(self._lets, observation, question)

    def _lets(self, observation: Observation, question: str) -> bool:
        self.write(escape(f"{_situation(observation)}\n{question}"))
        with suppress(EOFError):
            while (answer := self.read("(y = yes, n = no, in your own words) ").strip().casefold()) not in _YES_OR_NO:
                self.write(f"Expected y or n, got {answer!r}.")
            return answer in _YES
        return False

    def _choose(self, observation: Observation, question: InterviewQuestion) -> InterviewReply:
        with _TERMINAL:
            self.write(escape(f"\n{question_text(observation, question)}"))
            try:
                return self._choice(
                    f"As {observation.briefing.name}: {' / '.join(question.keys)}? (Enter for none) ", question
                )
            except EOFError:
                return _NO_ANSWER

    def _choice(self, prompt: str, question: InterviewQuestion) -> InterviewReply:
        keys = [key.casefold() for key in question.keys]
        while answer := self.read(prompt).strip().casefold():
            if answer in keys:
                return InterviewReply(keys.index(answer))
            self.write(f"Expected one of {', '.join(question.keys)}, got {answer!r}.")
        return _NO_ANSWER

    async def weigh(
        self, observation: Observation, questions: Sequence[PublicVariable]
    ) -> Mapping[str, Mapping[str, float] | None]:
        """Returns the person's answers to closed questions after the episode; the end of the input skips the rest.

        Args:
            observation: what the person saw at the end.
            questions: those on variables, and those on trust.

        Returns:
            By the name of a variable, the weight of each option; ``None`` for a question that the person skips.
        """
        return await asyncio.to_thread(self._weigh, observation, questions)

    def _weigh(
        self, observation: Observation, questions: Sequence[PublicVariable]
    ) -> dict[str, Mapping[str, float] | None]:
        answers: dict[str, Mapping[str, float] | None] = {}
        with _TERMINAL, suppress(EOFError):
            self.write(escape(f"\n{observation.briefing.name}: {_FORM}"))
            for variable in questions:
                question = belief_question(variable, variable.options)
                lines = [f"  {key} = {option}" for key, option in zip(question.keys, question.options, strict=True)]
                self.write(escape("\n".join([f"\n{question.text[:1].upper()}{question.text[1:]}?", *lines])))
                answers[variable.name] = self._weights(question)
        self.write("")  # what follows does not begin behind a prompt
        return answers

    def _weights(self, question: InterviewQuestion) -> dict[str, float] | None:
        """One letter, or letters with numbers between which the options share; ``None`` for an empty line."""
        keys = [key.casefold() for key in question.keys]
        while words := self.read("Your answer (Enter to skip): ").replace(",", " ").casefold().split():
            letters, numbers = words[::2], words[1::2] or ["1"]
            whole = len(letters) == len(numbers) == len(set(letters)) and all(map(str.isdecimal, numbers))
            if whole and set(letters) <= set(keys) and any(map(int, numbers)):
                shares = dict(zip(letters, map(float, numbers), strict=True))
                return {option: shares.get(key, 0.0) for key, option in zip(keys, question.options, strict=True)}
            expected = (
                f"one of {', '.join(question.keys)}, or several with numbers such as '{keys[0]} 70 {keys[-1]} 30'"
            )
            self.write(f"Expected {expected}, got {' '.join(words)!r}.")
        return None

    def _decide(self, observation: Observation) -> Decision:
        # Other seats' words could contain escape sequences that steer the person's terminal.
        self.write(escape(_situation(observation)))
        try:
            started = time.perf_counter()
            action = self._action(observation)
            return Decision(action, Generation(latency=time.perf_counter() - started))
        except EOFError:
            possible = ActionType.LEAVE in observation.available
            return Decision(Action(ActionType.LEAVE if possible else ActionType.NONE))

    def _action(self, observation: Observation) -> Action:
        while True:
            kind = self._action_type(observation.available)
            if kind in WORDLESS:
                return Action(kind)
            text = self._text(kind, optional=bool(observation.moves))
            recipients = self._recipients(observation.briefing.recipients)
            # The move is asked for last, so that an invalid text is refused before the terms of an offer are entered.
            try:
                action = Action(kind, text, recipients)
            except InvalidActionError as error:
                self.write(f"That is not possible: {error}.")
                continue
            action = self._with_move(action, observation)
            if action.argument or action.move is not None:
                return action
            self.write(f"{kind.value!r} needs a text or a move, got neither.")

    def _action_type(self, available: tuple[ActionType, ...]) -> ActionType:
        listed = ", ".join(f"{number} = {kind.value}" for number, kind in enumerate(available, start=1))
        while True:
            answer = self.read(f"What do you do? ({listed}) ").strip().casefold()
            if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(available):
                return available[int(answer) - 1]
            for kind in available:
                if answer == kind.value:
                    return kind
            self.write(f"Expected a number from 1 to {len(available)} or a name from the list, got {answer!r}.")

    def _text(self, kind: ActionType, optional: bool) -> str:
        prompt = "What do you say?" if kind is ActionType.SPEAK else "Describe it:"
        while True:
            text = self.read(f"{prompt} (Enter for a move without words) " if optional else f"{prompt} ").strip()
            if text or optional:
                return text
            self.write(f"{kind.value!r} needs a text, got none.")

    def _recipients(self, recipients: Mapping[str, str]) -> tuple[str, ...]:
        """Asks for names and returns agent ids; empty for everyone, or if private actions are not possible."""
        by_name = {fold(name): agent for name, agent in recipients.items()}
        while by_name:
            answer = self.read("To whom alone? (names with commas between; Enter for everybody) ")
            names = [fold(name) for name in answer.split(",") if name.strip()]
            unknown = [name for name in names if name not in by_name]
            if not unknown:
                return tuple(dict.fromkeys(by_name[name] for name in names))
            self.write(f"Expected names from {', '.join(recipients)}, got {unknown[0]!r}.")
        return ()

    def _with_move(self, action: Action, observation: Observation) -> Action:
        """Returns the action with the move that the person chooses; asks until it is an open one or no move."""
        dialogue = MoveDialogue(self.read, self.write)
        while observation.moves:
            move: Move | None = dialogue.move(observation.moves, observation.table)
            proposed = Action(action.action_type, action.argument, action.to, move)
            problem = observation.move_problem(proposed)
            if problem is None:
                return proposed
            self.write(escape(f"That move is not possible: {problem}."))
        return action


def _situation(observation: Observation) -> str:
    """The text of the observation without the instructions for models; a person gets menus instead."""
    history = observation.history or NOTHING_YET
    table = f"On the table:\n{observation.table_text}\n" if observation.table_text else ""
    turns = f"{SO_FAR}\n{history}{observation.refusal}"
    return f"{observation.briefing.head}\n{turns}\n{table}{observation.advice}Turn #{observation.turn} is yours."
