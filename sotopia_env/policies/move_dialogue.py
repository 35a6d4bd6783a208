"""The dialogue in which a person makes a move: a numbered menu, then the terms of an offer issue by issue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.quoting import escape
from sotopia_env.outcomes import (
    ChoiceIssue,
    InvalidMoveError,
    ItemsIssue,
    Menu,
    Move,
    MoveKind,
    NumberIssue,
    OutcomeSpace,
)
from sotopia_env.outcomes.issues import Issue
from sotopia_env.outcomes.move import read_move
from sotopia_env.outcomes.space import Terms
from sotopia_env.outcomes.table import TableView

_HEADING = {
    False: "Moves are binding, words alone are not. Open to you:",
    True: "Moves are binding, words and what you state, show or ask are not. Open to you:",
}


@dataclass(frozen=True, slots=True)
class MoveDialogue:
    """Asks a person to choose one of the open moves.

    Attributes:
        read: shows a prompt and returns a line; raises ``EOFError`` at the end of the input.
        write: shows a text.
    """

    read: Callable[[str], str]
    write: Callable[[str], None]

    def move(self, menu: Menu, table: TableView | None) -> Move | None:
        """Returns the move that the person chooses; ``None`` for none.

        Args:
            menu: the moves that are open.
            table: the table as the seat sees it; the terms of its newest offer are the defaults of a new offer.
        """
        choices = menu.choices()
        lines = [f"  {number} = {label}" for number, (label, _) in enumerate(choices, start=1)]
        self.write(escape("\n".join([_HEADING[bool(menu.statements.state)], *lines])))
        number = self._number("Which move? (Enter for none) ", len(choices))
        if number is None:
            return None
        _, move = choices[number - 1]
        if move is not None:
            return move
        # Two entries have no move yet: an offer, which needs terms and is always the first, and a claim's text.
        return self._offer(menu, table) if menu.propose and number == 1 else self._claim()

    def _number(self, prompt: str, most: int) -> int | None:
        """A number from 1 to ``most``; ``None`` for Enter."""
        while True:
            answer = self.read(prompt).strip()
            if not answer:
                return None
            if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= most:
                return int(answer)
            self.write(f"Expected a number from 1 to {most}, got {answer[:40]!r}.")

    def _claim(self) -> Move:
        while True:
            try:
                return read_move({MoveKind.CLAIM.value: self.read("What is the answer? ").strip()})
            except InvalidMoveError as error:
                self.write(escape(f"That cannot be claimed: {error}."))

    def _offer(self, menu: Menu, table: TableView | None) -> Move:
        assert menu.space is not None  # only protocols with an outcome space have proposals
        offers = [] if table is None else [entry.offer for entry in table.offers]
        newest: Terms = max(offers, key=lambda offer: offer.number).terms if offers else {}
        terms = {issue.name: self._value(issue, menu.space, newest.get(issue.name)) for issue in menu.space.issues}
        return Move(MoveKind.PROPOSE, terms)

    def _value(self, issue: Issue, space: OutcomeSpace, default: Any) -> Any:
        if isinstance(issue, ItemsIssue):
            return self._division(issue, space, default or {})
        names = space.names
        what = issue.range_text() if isinstance(issue, NumberIssue) else self._options(issue)
        enter = "" if default is None else f"; Enter for {issue.text(default, names)}"
        return self._valid(issue, f"{issue.name} ({what}{enter}): ", names, default)

    def _options(self, issue: ChoiceIssue) -> str:
        return ", ".join(f"{number} = {option}" for number, option in enumerate(issue.options, start=1))

    def _valid(self, issue: NumberIssue | ChoiceIssue, prompt: str, names: Mapping[str, str], default: Any) -> Any:
        """Asks until the answer is a value of the issue; the complaint about others names the nearest valid value."""
        while True:
            answer = self.read(escape(prompt)).strip()
            if not answer and default is not None:
                return default
            try:
                return issue.read(self._by_number(issue, answer), names)
            except InvalidMoveError as error:
                self.write(escape(f"That cannot be offered: {error}."))

    def _by_number(self, issue: NumberIssue | ChoiceIssue, answer: str) -> str:
        """Returns the option with the number that was typed, unless the answer is itself the name of an option."""
        if isinstance(issue, NumberIssue) or answer in issue.options or not (answer.isascii() and answer.isdigit()):
            return answer
        # Python refuses to convert very long texts to integers; nine digits exceed any list.
        position = int(answer[:9])
        return issue.options[position - 1] if 1 <= position <= len(issue.options) else answer

    def _division(self, issue: ItemsIssue, space: OutcomeSpace, default: Mapping[str, int]) -> dict[str, int]:
        """Asks for the pieces of every seat in turn; the last seat gets the rest."""
        rest, division = issue.count, dict.fromkeys(space.names, 0)
        *agents, last = space.names
        for agent in agents:
            if rest:
                division[agent] = self._pieces(issue, space.names[agent], rest, default.get(agent))
                rest -= division[agent]
        division[last] = rest
        self.write(escape(f"{issue.name}: {issue.text(division, space.names)}."))
        return division

    def _pieces(self, issue: ItemsIssue, name: str, rest: int, default: int | None) -> int:
        # The number of pieces is a number issue of its own, so that errors name the nearest valid number.
        part = NumberIssue.model_validate({"name": issue.name, "low": 0, "high": rest})
        default = None if default is None or default > rest else default
        enter = "" if default is None else f"; Enter for {default}"
        prompt = f"{issue.name}: how many of {rest} for {name}? (0 to {rest}{enter}) "
        return int(self._valid(part, prompt, {}, default))
