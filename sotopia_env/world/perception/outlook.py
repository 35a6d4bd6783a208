"""A seat's view of the table: the part that it may see, the moves open to it, and its current payoff."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from sotopia_env.outcomes import Menu
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from sotopia_env.outcomes.table import HIDDEN, TableView
from sotopia_env.world.perception.rendering import indented

_indented_menu = lru_cache(maxsize=4_096)(indented)
"""Menus as text, cached because they recur: they name offers by number and contain no terms."""


class Prospect(NamedTuple):
    """A seat's payoff if the episode ended now.

    Attributes:
        decided: whether something is agreed, decided or rightly claimed.
        surplus: the seat's payoff less its payoff without an outcome; the cost of turns is left out.
    """

    decided: bool
    surplus: float


class Outlook:
    """One seat's view of the table, and the moves open to the seat; computed when they are read."""

    __slots__ = ("_agent", "_menu", "_menu_text", "_protocol", "_table", "_table_text", "_worths", "state")

    def __init__(self, protocol: AnyProtocol, state: Any, agent: str, worths: bool = True) -> None:
        """Creates the view of ``agent`` on ``state``, a state of ``protocol``, with or without the worths of offers."""
        self._protocol, self._agent, self._worths = protocol, agent, worths
        self.state = state
        self._table: TableView | None = None
        self._menu: Menu | None = None
        self._table_text = self._menu_text = ""

    @property
    def table(self) -> TableView:
        """The table, as far as the seat may know it."""
        if self._table is None:
            self._table = self._protocol.table(self.state, self._agent)
        return self._table

    @property
    def menu(self) -> Menu:
        """The moves that are open to the seat, if it is its turn."""
        if self._menu is None:
            self._menu = self._protocol.menu(self.state, self._agent)
        return self._menu

    @property
    def worths(self) -> dict[int, float]:
        """What every open offer that the seat sees is worth to it, by number; empty where the rules switch this off."""
        protocol = self._protocol
        # What a contract about choices is worth depends on choices still to be made.
        if not self._worths or protocol.kind != "agreement" or not self.table.offers:
            return {}
        worth = protocol.valuations[protocol.agents.index(self._agent)]
        offers = (standing.offer for standing in self.table.offers)
        return {offer.number: worth.exact(protocol.space, offer.terms) / worth.scale for offer in offers}

    @property
    def table_text(self) -> str:
        """The table as indented lines."""
        if not self._table_text:
            worths = ", ".join(f"#{number} {value:.15g}" for number, value in self.worths.items())
            self._table_text = indented(self.table.text + (f"\nWorth to you: {worths}" if worths else ""))
        return self._table_text

    @property
    def menu_text(self) -> str:
        """The open moves as indented lines."""
        if not self._menu_text:
            self._menu_text = _indented_menu(self.menu.text)
        return self._menu_text

    @property
    def prospect(self) -> Prospect | None:
        """The seat's payoff if nothing more is done; ``None`` if the seat may not know it."""
        outcome, table = self._protocol.outcome(self.state), self.table
        # The payoff would reveal the tally of secret votes, or the terms of an agreement that others made in private.
        # So would a payoff reveal the facts on which it depends.
        hidden = table.knowledge is not None or (table.votes is not None and HIDDEN in table.votes.cast)
        if hidden or (table.settled and table.result != outcome.reason):
            return None
        seat = self._protocol.agents.index(self._agent)
        worth = self._protocol.valuations[seat]
        # Zero turns: what the turns so far cost is spent whatever the seat does next.
        return Prospect(outcome.decided, self._protocol.payoffs(self.state)[seat] - worth.disagreement / worth.scale)

    def text(self, acting: bool) -> str:
        """The table and, if the seat is to act, the moves open to it, as whole lines."""
        moves = f"Moves open to you:\n{self.menu_text}\n" if acting and self.menu else ""
        return f"On the table:\n{self.table_text}\n{moves}"
