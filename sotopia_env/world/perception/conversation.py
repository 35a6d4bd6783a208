"""A seat's observations as chat messages, extended turn by turn and never rewritten.

A seat's own messages are its model's texts, even if a text is not an action: the next message says that it could not be
used, and why. Replacing it by our own JSON would make play differ from training, where the sampled tokens are the
sequence and cannot be replaced. An untrained model also tends to repeat such a placeholder, which is a valid action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NotRequired, TypedDict

from sotopia_env.world.action import to_json
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.perception.briefing import Briefing
from sotopia_env.world.perception.rendering import refusal, render_turn

NOTHING_YET = "(nobody has acted yet)\n"
NOTHING_NEW = "(nothing that you noticed)\n"
LEFT_OUT = "(oldest turns left out here, because not all fit: {})\n"
"""Replaces the oldest turns, and states their number."""

TableBefore = Callable[[int], str]
"""Returns the table as a seat knew it before the seat's own turn at an index, as whole lines."""


class FunctionCall(NamedTuple):
    """A function's name and its arguments as JSON text, as models write them."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """A :class:`FunctionCall` in an assistant's message, as OpenAI's protocol has it; ``type`` is ``function``."""

    id: str
    type: str
    function: Mapping[str, str]


class ChatMessage(TypedDict):
    """One message for a chat model.

    ``role`` is ``system``, ``user`` or ``assistant``; with function calls also ``tool``, whose content is the result
    of the call that ``tool_call_id`` names.
    """

    role: str
    content: str
    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]


class OwnMessage(NamedTuple):
    """One of a seat's own turns as a chat message.

    Attributes:
        text: the seat's text.
        failure: why the text was not an action; empty if it was one.
    """

    text: str
    failure: str = ""


class Conversation:
    """One seat's turns as chat messages, extended as turns come in.

    Attributes:
        length: the number of witnessed turns that are part of it.
    """

    __slots__ = ("_agent", "_briefing", "_by_round", "_messages", "_names", "_news", "_own", "_table_before", "length")

    def __init__(
        self,
        briefing: Briefing,
        names: Mapping[str, str],
        by_round: bool,
        table_before: TableBefore,
        own: Mapping[int, OwnMessage],
        dropped: int = 0,
    ) -> None:
        """Creates an empty conversation.

        Args:
            briefing: the seat's briefing.
            names: agent id to character name.
            by_round: whether turns are numbered by round.
            table_before: returns the table before each of the seat's own turns.
            own: the seat's own texts, by the index of its turns; entries may be added later.
            dropped: the number of oldest turns that are left out.
        """
        self._briefing = briefing
        self._agent = briefing.agent
        self._names = names
        self._by_round = by_round
        self._table_before = table_before
        self._own = own
        system = f"{briefing.head}\n{briefing.answer}"
        self._messages: list[ChatMessage] = [{"role": "system", "content": system}]
        self._news = LEFT_OUT.format(dropped) if dropped else ""
        self.length = dropped

    def anew(self, dropped: int = 0) -> Conversation:
        """Returns an empty conversation of the same seat, without its ``dropped`` oldest turns."""
        return Conversation(self._briefing, self._names, self._by_round, self._table_before, self._own, dropped)

    @property
    def system(self) -> str:
        """The content of the first message."""
        return self._messages[0]["content"]

    def messages(self, turns: Sequence[Turn], number: int, acting: bool, table: str) -> list[ChatMessage]:
        """Returns the messages of an observation.

        Args:
            turns: all turns that the seat has witnessed; those before :attr:`length` are not read.
            number: the number of the coming turn.
            acting: whether the coming turn is the seat's own.
            table: the current table, as whole lines; with the open moves if the seat is to act.
        """
        news = list(turns[self.length :])
        self.length = len(turns)
        # In a veiled order a seat learns of the others' actions of a round only after its own.
        if any(turn.veiled for turn in news):
            news.sort(key=lambda turn: (turn.round, turn.actor != self._agent))
        for turn in news:
            self._append(turn)
        # Copies, so that a caller who edits the messages does not change those of later turns.
        return [*[message.copy() for message in self._messages], self._cue(number, acting, table)]

    def own_message(self, turn: Turn) -> OwnMessage:
        """One of the seat's own turns in the seat's own text, or as JSON if it has no text."""
        own = self._own.get(turn.index)
        # What the seat tried, not what the rules made of it: the refusal after it is about the attempt.
        return OwnMessage(to_json(turn.attempted or turn.action, self._names)) if own is None else own

    def refusal(self, turn: Turn) -> str:
        """The line that tells the seat why one of its own turns did not count; empty where it did."""
        own = self._own.get(turn.index)
        return refusal(turn, "" if own is None else own.failure)

    def _append(self, turn: Turn) -> None:
        if turn.actor != self._agent:
            self._news += render_turn(turn, self._names, self._by_round)
            return
        number = (turn.round if self._by_round else turn.index) + 1
        answer: ChatMessage = {"role": "assistant", "content": self.own_message(turn).text}
        # The same user message as on the seat's turn: key-value caches hit only if the prefix is identical.
        self._messages += (self._cue(number, True, self._table_before(turn.index)), answer)
        # The next user message starts with the reason why this answer did not count, if there is one.
        self._news = self.refusal(turn)

    def _cue(self, number: int, acting: bool, table: str) -> ChatMessage:
        nothing = NOTHING_YET if len(self._messages) == 1 else NOTHING_NEW
        call = f"Turn #{number} is yours." if acting else "It is not your turn."
        return {"role": "user", "content": f"{self._news or nothing}{table}{call}"}
