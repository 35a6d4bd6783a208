"""Observations: the knowledge of one seat at one moment, as fields, as text and as chat messages.

Four caches make a new observation cost only what is new: briefings (per task), lines of turns (shared by all seats),
the view of the table (while it stays the same) and the conversation (per seat). The disclosure table decides which
fields of a profile a seat reads, :mod:`~sotopia_env.world.perception.witness` which turns, and the protocol its view of
the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.outcomes import Menu
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from sotopia_env.outcomes.table import TableView
from sotopia_env.world.action import Action, ActionType, ParseFailure, parse_possible
from sotopia_env.world.dynamics import EpisodeState, Rules, Turn, move_problem
from sotopia_env.world.perception.briefing import DISCLOSURE, OWN_FIELDS, Briefing, Partner, briefing, describe
from sotopia_env.world.perception.conversation import (
    LEFT_OUT,
    NOTHING_NEW,
    NOTHING_YET,
    ChatMessage,
    Conversation,
    FunctionCall,
    OwnMessage,
    ToolCall,
)
from sotopia_env.world.perception.outlook import Outlook, Prospect
from sotopia_env.world.perception.rendering import extend_lines, render_action, render_turn
from sotopia_env.world.perception.witness import exit_of, is_public, moment, over, perspective, witnesses
from sotopia_env.world.scenario import Task
from sotopia_env.world.turn_order import TurnOrder

SO_FAR = "What has happened so far"
"""The heading of the turns in a prompt that is one text."""

__all__ = [
    "DISCLOSURE",
    "LEFT_OUT",
    "NOTHING_NEW",
    "NOTHING_YET",
    "OWN_FIELDS",
    "Briefing",
    "ChatMessage",
    "FunctionCall",
    "Observation",
    "Outlook",
    "OwnMessage",
    "Partner",
    "Prospect",
    "SeatView",
    "ToolCall",
    "briefing",
    "describe",
    "observe",
    "render_action",
    "render_turn",
]


@dataclass(frozen=True, slots=True)
class Observation:
    """The knowledge of one seat at one moment.

    Attributes:
        briefing: the part that does not change.
        turns: the turns that this seat has witnessed, in order.
        history: these turns as text, one line each; empty before the first turn.
        turn: number of the coming turn, from 1.
        acting: whether this seat is to act now.
        available: the action types it may use; only ``none`` when it is not to act.
        refusal: the reason why the seat's latest answer or move did not count, as a line; empty if it counted.
        own_turns: the number of turns that the seat has had.
        advice: what the seat's assistant suggests for this turn, as a line; empty without one.
    """

    briefing: Briefing
    turns: tuple[Turn, ...]
    history: str
    turn: int
    acting: bool
    available: tuple[ActionType, ...]
    refusal: str
    own_turns: int
    _conversation: Conversation = field(repr=False, compare=False)
    _state: EpisodeState = field(repr=False, compare=False)
    _outlook: Outlook | None = field(default=None, repr=False, compare=False)
    advice: str = ""

    @property
    def agent(self) -> str:
        """The seat's id."""
        return self.briefing.agent

    @property
    def unread(self) -> tuple[Turn, ...]:
        """The seat's queue: the others' turns that it has witnessed since it acted last."""
        # In veiled orders a moment is a round: the others' turns of the seat's own round are unread.
        own = max([moment(turn) for turn in self.turns if turn.actor == self.agent], default=-1)
        return tuple([turn for turn in self.turns if turn.actor != self.agent and moment(turn) >= own])

    @property
    def table(self) -> TableView | None:
        """The table, as far as this seat may know it; ``None`` in a task without a protocol."""
        return None if self._outlook is None else self._outlook.table

    @property
    def prospect(self) -> Prospect | None:
        """The seat's payoff if nothing more is done; ``None`` if it may not know it, or without a protocol."""
        return None if self._outlook is None else self._outlook.prospect

    @property
    def moves(self) -> Menu | None:
        """The moves that are open to the seat now; ``None`` without a protocol or when it is not to act."""
        return self._outlook.menu if self._outlook is not None and self.acting else None

    @property
    def table_text(self) -> str:
        """The table as lines; empty in a task without a protocol."""
        return "" if self._outlook is None else self._outlook.table_text

    @property
    def moves_text(self) -> str:
        """The open moves as lines, each with its JSON; empty without a protocol or when the seat is not to act."""
        return self._outlook.menu_text if self._outlook is not None and self.acting else ""

    @property
    def text(self) -> str:
        """Everything as one prompt: briefing, history, table and open moves, turn number, available actions."""
        return self._text(self.history or NOTHING_YET)

    def _text(self, history: str) -> str:
        tail = f"Turn #{self.turn} is yours.\n{self.briefing.answer}" if self.acting else "It is not your turn."
        return f"{self.briefing.head}\n{SO_FAR}\n{history}{self.refusal}\n{self._table_lines()}{tail}"

    def _table_lines(self) -> str:
        return self.advice if self._outlook is None else f"{self._outlook.text(self.acting)}{self.advice}"

    @property
    def turn_limit(self) -> int:
        """The maximum number of turns of all seats together; with a limit on rounds, assuming that no agent leaves."""
        rules, task = self._state.rules, self._state.task
        return rules.turn_limit(task) or (rules.max_rounds or 0) * len(task.agents)

    def own_turns_left(self, index: int | None = None) -> int:
        """Returns how many turns the seat has left from its turn ``index`` on, by default from the coming one.

        Assumes that no agent leaves and nothing is settled. In random order, where the last round may be cut short, it
        is a lower bound. In reactive order, where seats may act more or less often than others, it is the seat's even
        share of a limit on turns, and with a limit on rounds an upper bound. Where a protocol has phases, it is the
        number of turns of each actor of the phase.
        """
        return _own_turns_left(self._state, len(self._state.turns) if index is None else index)

    def answerable(self, index: int | None = None) -> tuple[int, ...]:
        """Returns the numbers of the offers the seat could accept in its turn ``index``, by default the coming one."""
        outlook = self._outlook_at(index)
        return () if outlook is None or (index is None and not self.acting) else outlook.menu.accept

    def offer_worths(self, index: int | None = None) -> Mapping[int, float]:
        """Returns what each open offer is worth to the seat, by number, at its turn ``index``, by default now.

        Empty under rules without ``worths``.
        """
        outlook = self._outlook_at(index)
        return {} if outlook is None else outlook.worths

    def offer_gains(self, index: int | None = None) -> Mapping[int, float]:
        """Returns what each open offer is worth to the seat less that of no agreement; see :meth:`offer_worths`."""
        worths, worth = self.offer_worths(index), self.briefing.worth
        # Offers that have a worth belong to an agreement, whose worths all say what none is worth.
        return {number: value - worth.disagreement for number, value in worths.items()} if worth is not None else {}

    def _outlook_at(self, index: int | None) -> Outlook | None:
        protocol = self._state.task.protocol
        if index is None or protocol is None:
            return self._outlook
        # An earlier turn had an earlier table, which the state keeps for every turn.
        return Outlook(protocol, self._state.tables[index], self.agent, self._state.rules.worths)

    def parse(self, text: str, finish_reason: str = "") -> Action | ParseFailure:
        """Reads an action that this seat could take now from a model's text; see :func:`.action.parse_possible`."""
        return parse_possible(text, self.available, self.briefing.recipients, finish_reason, self.others_words)

    @property
    def others_words(self) -> Iterator[str]:
        """The words of others in the turns that the seat has witnessed."""
        return (turn.action.argument for turn in self.turns if turn.actor != self.agent)

    def move_problem(self, action: Action) -> str | None:
        """Returns why the move of ``action`` would not count if it were taken now, or ``None`` where it would."""
        return None if action.move is None or not self.acting else move_problem(self._state, self.agent, action)

    def own_message(self, turn: Turn) -> OwnMessage:
        """Returns one of the seat's own turns as its policy wrote it; as JSON where it wrote none."""
        return self._conversation.own_message(turn)

    @property
    def messages(self) -> list[ChatMessage]:
        """Everything as a conversation for a chat model: the seat's own texts as assistant, all else as user.

        The messages of an acting seat extend those of its previous turn, so key-value caches hit.
        """
        conversation = self._conversation
        if conversation.length > len(self.turns):  # this observation is older than the latest one that was read
            conversation = conversation.anew()
        return conversation.messages(self.turns, self.turn, self.acting, self._table_lines())

    @property
    def system(self) -> str:
        """The first of :attr:`messages`: the briefing and the form of an answer, the same on every turn."""
        return self._conversation.system

    @property
    def news(self) -> str:
        """The last of :attr:`messages`: the turns since the seat's own last one, the table, and whose turn it is."""
        return self.messages[-1]["content"]

    def text_without(self, dropped: int) -> str:
        """Returns :attr:`text` with a marker in place of the ``dropped`` oldest turns; 0 drops none.

        Raises:
            InvalidValueError: ``dropped`` is negative or greater than the number of turns.
        """
        if not self._check_dropped(dropped):
            return self.text
        # Every turn is exactly one line, because line ends are escaped.
        return self._text(f"{LEFT_OUT.format(dropped)}{self.history.split(chr(10), dropped)[dropped]}")

    def messages_without(self, dropped: int) -> list[ChatMessage]:
        """Returns :attr:`messages` with a marker in place of the ``dropped`` oldest turns; 0 drops none.

        Raises:
            InvalidValueError: ``dropped`` is negative or greater than the number of turns.
        """
        if not self._check_dropped(dropped):
            return self.messages
        return self._conversation.anew(dropped).messages(self.turns, self.turn, self.acting, self._table_lines())

    def _check_dropped(self, dropped: int) -> int:
        if not 0 <= dropped <= len(self.turns):
            raise InvalidValueError(field="dropped", expected=f"0 to {len(self.turns)} turns", got=dropped)
        return dropped


def _own_turns_left(state: EpisodeState, index: int) -> int:
    """How often the seat that acts at ``index`` acts from then on; see :meth:`Observation.own_turns_left`."""
    rules, turns = state.rules, state.turns
    if state.task.phased and state.task.protocol is not None:
        due = state.task.protocol.due(state.tables[index] if index < len(turns) else state.table)
        return 0 if due is None else due.turns
    round_ = turns[index].round if index < len(turns) else state.round
    limit = rules.turn_limit(state.task)
    if limit is None:
        assert rules.max_rounds is not None
        return rules.max_rounds - round_
    # The turns of a veiled round count as one moment, and the round that reaches the limit is played to its end.
    veiled = rules.turn_order.veiled
    start = index - sum(turn.round == round_ for turn in turns[:index]) if veiled else index
    leaves = sum(turn.action.action_type is ActionType.LEAVE for turn in turns[:start])
    present = len(state.task.agents) - leaves
    # In a fixed order the seat acts first in every ``present`` turns from here on, so a partial last round includes it
    # and the quotient is rounded up (by negating twice). In random order the seat may come too late in that round.
    if rules.turn_order is TurnOrder.RANDOM:
        return max(1, (limit - start) // present)
    return -(-(limit - start) // present)


class _Outlooks:
    """One seat's outlooks: the latest one, and those before its own turns, for chat messages."""

    __slots__ = ("_agent", "_protocol", "_worths", "latest", "tables")

    def __init__(self, protocol: AnyProtocol | None, agent: str, worths: bool) -> None:
        self._protocol, self._agent, self._worths = protocol, agent, worths
        self.latest: Outlook | None = None
        self.tables: tuple[Any, ...] = ()  # by the index of turns, see EpisodeState.tables

    def at(self, table: Any) -> Outlook | None:
        """The outlook on ``table``, the same one while the table stays; ``None`` in a task without a protocol."""
        # By identity: a table that no move has changed is the same object.
        if self._protocol is not None and (self.latest is None or self.latest.state is not table):
            self.latest = Outlook(self._protocol, table, self._agent, self._worths)
        return self.latest

    def before(self, index: int) -> str:
        """The table and the open moves, as the seat read them before its own turn at ``index``."""
        if self._protocol is None:
            return ""
        table = self.tables[index]
        if self.latest is not None and self.latest.state is table:
            return self.latest.text(True)
        return Outlook(self._protocol, table, self._agent, self._worths).text(True)


class SeatView:
    """Builds the observations of one seat, rendering each turn once.

    It is a cache, not a source: :func:`observe` gives the same observation from the state, and from the texts that the
    seat wrote itself, which are only in its own messages. The views of one episode may share ``lines``, the turns'
    renderings by index (:func:`~sotopia_env.world.perception.rendering.extend_lines`).
    """

    __slots__ = (
        "_agent", "_briefing", "_by_round", "_conversation", "_history", "_lines", "_open", "_outlooks", "_own_turns",
        "_position", "_refusal", "_turns", "_veiled",
    )  # fmt: skip

    def __init__(
        self,
        task: Task,
        rules: Rules,
        agent: str,
        lines: list[str] | None = None,
        own: Mapping[int, OwnMessage] = MappingProxyType({}),
    ) -> None:
        """Creates the view of ``agent`` on an episode of ``task`` under ``rules``.

        Args:
            task: the task of the episode.
            rules: the rules of the episode.
            agent: the id of the agent whose view it is.
            lines: shared by the episode's views.
            own: the seat's own texts (:attr:`~sotopia_env.world.episode.Generation.message`), by the index of its
                turns; entries may be added later. It must not contain another seat's text.
        """
        if agent not in task.names:
            raise UnknownNameError(field="agent", got=agent, valid=task.agents)
        self._agent = agent
        self._briefing = briefing(task, agent, rules.action_types, rules.turn_order is TurnOrder.REACTIVE, rules.worths)
        self._veiled = rules.turn_order.veiled
        self._by_round = self._veiled or task.phased
        # While true, every seat has witnessed every turn, and all seats share one tuple of turns.
        self._open = not task.scenario.private_messages and not task.phased
        self._outlooks = _Outlooks(task.protocol, agent, rules.worths)
        self._conversation = Conversation(self._briefing, task.names, self._by_round, self._outlooks.before, own)
        self._lines: list[str] = [] if lines is None else lines
        self._turns: tuple[Turn, ...] = ()
        self._history = ""
        self._refusal, self._own_turns = "", 0
        self._position = 0  # index after the last turn that was read

    def observe(self, state: EpisodeState) -> Observation:
        """Returns the seat's observation of ``state``; states of the episode must be passed in order."""
        if self._position != len(state.turns):
            self._catch_up(state)
        agent, waiting = self._agent, state.waiting
        # In a veiled round all waiting agents act at once, elsewhere only the first one.
        acting = (agent in waiting) if self._veiled else (bool(waiting) and waiting[0] == agent)
        return Observation(
            self._briefing,
            self._turns,
            self._history,
            (state.round if self._by_round else len(state.turns)) + 1,
            acting,
            state.rules.action_types if acting else _NONE_ONLY,
            self._refusal,
            self._own_turns,
            self._conversation,
            state,
            self._outlooks.at(self._table(state)),
        )

    def _table(self, state: EpisodeState) -> Any:
        """The latest table the seat may see: none from after it left or from within a veiled round."""
        if self._agent not in state.left or not state.tables:
            # Once the episode has ended, the moves of its last round are no longer veiled.
            return state.round_table if self._veiled and state.stop is None else state.table
        leave = exit_of(state.turns, self._agent)
        assert leave is not None
        # ``tables[i]`` is the table before turn i. A seat sees what its own leaving changed, which is in the next
        # turn's table. In a veiled order it does not: that table could also show others' moves of the round.
        index = leave.index + (not self._veiled)
        return state.tables[index] if index < len(state.tables) else state.table

    def _catch_up(self, state: EpisodeState) -> None:
        lines, names, turns, start = self._lines, state.task.names, state.turns, self._position
        self._outlooks.tables = state.tables
        end = over(turns, state.round, state.stop)
        leave = exit_of(turns, self._agent) if self._agent in state.left else None
        # After leaving, the seat witnesses less than the others and cannot share their turns.
        self._open &= leave is None
        extend_lines(lines, turns[:end], names, self._by_round)
        for turn in turns[start:end]:
            # A turn with a hidden part differs from seat to seat.
            self._open &= is_public(turn)
            if turn.actor == self._agent:
                self._refusal, self._own_turns = self._conversation.refusal(turn), self._own_turns + 1
        if self._open:
            self._history += "".join(lines[start:end])
            self._turns = turns if end == len(turns) else turns[:end]
        else:
            news = [turn for turn in turns[start:end] if witnesses(self._agent, turn, leave)]
            self._history += "".join([self._line(turn, names) for turn in news])
            self._turns += tuple([perspective(self._agent, turn) for turn in news])
        self._position = end

    def _line(self, turn: Turn, names: Any) -> str:
        # The shared lines show a secret move as others see it; only its actor reads it in full.
        if turn.hidden is not None and turn.actor == self._agent:
            return render_turn(turn, names, self._by_round)
        return self._lines[turn.index]


_NONE_ONLY = (ActionType.NONE,)


def observe(state: EpisodeState, agent: str, own: Mapping[int, OwnMessage] = MappingProxyType({})) -> Observation:
    """Returns the observation of ``agent`` in ``state``.

    Args:
        state: the state of the episode.
        agent: the id of the observing agent.
        own: the agent's own texts; see :class:`SeatView`.

    Raises:
        UnknownNameError: the task has no such agent.
    """
    return SeatView(state.task, state.rules, agent, own=own).observe(state)
