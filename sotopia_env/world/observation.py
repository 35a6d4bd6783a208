r"""What a seat may know, and how it is shown: as fields, as text, as chat messages.

Who may know what of whom is one table (:data:`DISCLOSURE`) and one rule for turns: a seat witnesses its own, those
addressed to it or to everybody, and a simultaneous round once it is over. The text holds the information of
SOTOPIA-π's prompt (arXiv 2403.08715, appendix B.3) in our own words.

Other agents' text is data. Wherever it is shown, it stands inside a JSON string literal on a single line, with the
characters that end lines, reorder text or open a chat template's control tokens written as ``\uXXXX``. So no
argument can begin a line, close its quotes or pose as a turn, and ``json.loads`` of the literal gives back
exactly what was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.prompts import fill, load
from sotopia_env.world.action import Action, ActionType, to_json
from sotopia_env.world.dynamics import EpisodeState, Rules, Turn, TurnOrder
from sotopia_env.world.quoting import disarm, quote
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Task

_ACQUAINTANCE = ("age", "gender", "occupation", "pronouns", "public_info", "public_attributes")
_CLOSE = (
    *_ACQUAINTANCE,
    "personality",
    "big_five",
    "moral_foundations",
    "schwartz_values",
    "decision_style",
)
DISCLOSURE: Mapping[RelationshipKind, tuple[str, ...]] = {
    RelationshipKind.STRANGER: (),
    RelationshipKind.KNOW_BY_NAME: (),
    RelationshipKind.ACQUAINTANCE: _ACQUAINTANCE,
    RelationshipKind.FRIEND: _CLOSE,
    RelationshipKind.ROMANTIC: _CLOSE,
    RelationshipKind.FAMILY: _CLOSE,
}
"""Which fields of a partner's profile each relationship reveals (SOTOPIA §2.1; ``know-by-name`` as in the reference
code). The *name* is not in the table: it is how participants are addressed and is shown to all, strangers included, as
in the papers' prompts. ``secret`` and ``private_attributes`` are revealed by none."""

OWN_FIELDS = (*_CLOSE, "private_attributes", "secret")


NOTHING_YET = "(nobody has acted yet)\n"
NOTHING_NEW = "(nothing that you noticed)\n"
LEFT_OUT = "(oldest turns left out here, because not all fit: {})\n"
"""Stands where the oldest turns would, with their number."""


class ChatMessage(TypedDict):
    """One message for a chat model; ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Partner:
    """What a seat knows of another one; ``text`` is all of it in words."""

    agent: str
    name: str
    kind: RelationshipKind
    backstory: str
    profile: str
    text: str


@dataclass(frozen=True, slots=True)
class Briefing:
    """The part of a seat's observation that never changes during an episode.

    Attributes:
        agent: the seat's id.
        name: the name of the character it enacts.
        context: the scenario as everybody reads it.
        shared_data: the context's numbers, for programs.
        profile: the own profile in words, secret included.
        partners: the others in seat order, as far as the relationship reveals them.
        goals: own goals.
        hints: own hints.
        private_info: own private information.
        private_data: its numbers, for programs.
        recipients: every name that may stand in an action's ``to``, with the agent id it means; empty where private
            actions are not possible.
        head: the text of all this.
        answer: how to answer, with the action types at hand.
    """

    agent: str
    name: str
    context: str
    shared_data: Mapping[str, object]
    profile: str
    partners: tuple[Partner, ...]
    goals: tuple[str, ...]
    hints: tuple[str, ...]
    private_info: str
    private_data: Mapping[str, object]
    recipients: Mapping[str, str]
    head: str
    answer: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What one seat may know at one moment.

    Attributes:
        briefing: the part that does not change.
        turns: the turns this seat has witnessed, in order.
        history: these turns as text, one line each; empty before the first.
        turn: number of the coming turn, from 1.
        acting: whether this seat is to act now.
        available: the action types it may use; only ``none`` when it is not to act.
    """

    briefing: Briefing
    turns: tuple[Turn, ...]
    history: str
    turn: int
    acting: bool
    available: tuple[ActionType, ...]
    _conversation: _Conversation

    @property
    def agent(self) -> str:
        """The seat's id."""
        return self.briefing.agent

    @property
    def text(self) -> str:
        """Everything as one prompt: briefing, history, turn number, available actions."""
        return self._text(self.history or NOTHING_YET)

    def _text(self, history: str) -> str:
        briefing = self.briefing
        tail = f"Turn #{self.turn} is yours.\n{briefing.answer}" if self.acting else "It is not your turn."
        return f"{briefing.head}\n{history}\n{tail}"

    @property
    def messages(self) -> list[ChatMessage]:
        """Everything as a conversation for a chat model: own actions are the assistant's, all else is the user's.

        The messages of an acting seat extend those of its previous turn, so key-value caches hit.
        """
        conversation = self._conversation
        if conversation.told > len(self.turns):  # this observation is older than the latest one that was read
            conversation = conversation.from_the_beginning()
        return conversation.messages(self)

    def text_without(self, dropped: int) -> str:
        """Returns :attr:`text` with a marker in place of the ``dropped`` oldest turns; 0 drops none.

        Raises:
            InvalidValueError: there are not so many turns.
        """
        if not self._check_dropped(dropped):
            return self.text
        return self._text(f"{LEFT_OUT.format(dropped)}{self.history.split(chr(10), dropped)[dropped]}")

    def messages_without(self, dropped: int) -> list[ChatMessage]:
        """Returns :attr:`messages` with a marker in place of the ``dropped`` oldest turns; 0 drops none.

        Raises:
            InvalidValueError: there are not so many turns.
        """
        if not self._check_dropped(dropped):
            return self.messages
        return self._conversation.from_the_beginning(dropped).messages(self)

    def _check_dropped(self, dropped: int) -> int:
        if not 0 <= dropped <= len(self.turns):
            raise InvalidValueError(f"dropped: expected 0 to {len(self.turns)} turns, got {dropped!r}")
        return dropped


class _Conversation:
    """One seat's turns as chat messages, extended as turns come in; read by observations that want messages."""

    __slots__ = ("_agent", "_briefing", "_by_round", "_committed", "_names", "_news", "told")

    def __init__(self, briefing: Briefing, names: Mapping[str, str], by_round: bool, dropped: int = 0) -> None:
        self._briefing = briefing
        self._agent = briefing.agent
        self._names = names
        self._by_round = by_round
        system = f"{briefing.head} is told to you turn by turn.\n\n{briefing.answer}"
        self._committed: list[ChatMessage] = [{"role": "system", "content": system}]
        self._news = LEFT_OUT.format(dropped) if dropped else ""
        self.told = dropped

    def from_the_beginning(self, dropped: int = 0) -> _Conversation:
        return _Conversation(self._briefing, self._names, self._by_round, dropped)

    def messages(self, observation: Observation) -> list[ChatMessage]:
        new = list(observation.turns[self.told :])
        self.told = len(observation.turns)
        if self._by_round:  # the others' actions of a round become known only after one's own
            new.sort(key=lambda turn: (turn.round, turn.actor != self._agent))
        for turn in new:
            self._tell(turn)
        told = [message.copy() for message in self._committed]
        told.append(self._cue(observation.turn, observation.acting))
        return told

    def _tell(self, turn: Turn) -> None:
        if turn.actor != self._agent:
            self._news += render_turn(turn, self._names, self._by_round)
            return
        number = (turn.round if self._by_round else turn.index) + 1
        own: ChatMessage = {"role": "assistant", "content": to_json(turn.action, self._names)}
        self._committed += (self._cue(number, True), own)
        self._news = f"Your action was not possible: {quote(turn.violation)}\n" if turn.violation else ""

    def _cue(self, number: int, acting: bool) -> ChatMessage:
        nothing = NOTHING_YET if len(self._committed) == 1 else NOTHING_NEW
        call = f"Turn #{number} is yours." if acting else "It is not your turn."
        return {"role": "user", "content": f"{self._news or nothing}{call}"}


class SeatView:
    """Builds the observations of one seat, rendering each turn once.

    It is a cache, not a source: :func:`observe` gives the same observation from the state alone. The views of one
    episode may share ``lines``, the turns' renderings by index.
    """

    __slots__ = ("_agent", "_briefing", "_conversation", "_history", "_lines", "_open", "_read", "_turns", "_veiled")

    def __init__(self, task: Task, rules: Rules, agent: str, lines: list[str] | None = None) -> None:
        """Creates the view of ``agent`` on an episode of ``task`` under ``rules``."""
        if agent not in task.names:
            raise UnknownNameError(f"agent: {name_hint(agent, task.agents)}")
        self._agent = agent
        self._briefing = briefing(task, agent, rules.action_types)
        self._veiled = rules.turn_order is TurnOrder.SIMULTANEOUS
        # While true, everybody has witnessed everything, and all seats share one tuple of turns.
        self._open = not task.scenario.private_messages
        self._conversation = _Conversation(self._briefing, task.names, self._veiled)
        self._lines: list[str] = [] if lines is None else lines
        self._turns: tuple[Turn, ...] = ()
        self._history = ""
        self._read = 0

    def observe(self, state: EpisodeState) -> Observation:
        """Returns the seat's observation of ``state``, a later state of the same episode than any seen before."""
        if self._read != len(state.turns):
            self._catch_up(state)
        agent, waiting = self._agent, state.waiting
        acting = (agent in waiting) if self._veiled else (bool(waiting) and waiting[0] == agent)
        return Observation(
            self._briefing,
            self._turns,
            self._history,
            (state.round if self._veiled else len(state.turns)) + 1,
            acting,
            state.rules.action_types if acting else _NONE_ONLY,
            self._conversation,
        )

    def _catch_up(self, state: EpisodeState) -> None:
        lines, names, turns = self._lines, state.task.names, state.turns
        end = self._end_of_witnessed(state)
        for turn in turns[len(lines) : end]:
            lines.append(render_turn(turn, names, self._veiled))
        for turn in turns[self._read : end]:
            if turn.violation is not None:
                self._open = False
        if self._open:
            self._history += "".join(lines[self._read : end])
            self._turns = turns if end == len(turns) else turns[:end]
        else:
            new = [self._seen(turn) for turn in turns[self._read : end] if self._witnesses(turn)]
            self._history += "".join(lines[turn.index] for turn in new)
            self._turns += tuple(new)
        self._read = end

    def _end_of_witnessed(self, state: EpisodeState) -> int:
        """Index after the last turn this seat may have witnessed: not after it left, not in a veiled round."""
        turns = state.turns
        if self._agent in state.left:
            exit_ = next(turn for turn in reversed(turns) if turn.actor == self._agent)
            if not self._veiled:
                return exit_.index + 1
            return next(turn.index for turn in turns if turn.round == exit_.round)  # the others acted unseen
        if not self._veiled or state.stop is not None:
            return len(turns)
        end = self._read
        while end < len(turns) and turns[end].round < state.round:
            end += 1
        return end

    def _witnesses(self, turn: Turn) -> bool:
        return not turn.action.to or turn.actor == self._agent or self._agent in turn.action.to

    def _seen(self, turn: Turn) -> Turn:
        """The turn as this seat knows it: what another one tried in vain is not its business."""
        if turn.violation is None or turn.actor == self._agent:
            return turn
        return Turn(turn.index, turn.round, turn.actor, turn.action, veiled=turn.veiled)


_NONE_ONLY = (ActionType.NONE,)


def observe(state: EpisodeState, agent: str) -> Observation:
    """Returns what ``agent`` may know in ``state``.

    Raises:
        UnknownNameError: the task has no such agent.
    """
    return SeatView(state.task, state.rules, agent).observe(state)


def render_turn(turn: Turn, names: Mapping[str, str], by_round: bool = False) -> str:
    """Returns one turn as one line: number, who, privately to whom, what; ``by_round`` numbers by round."""
    number = (turn.round if by_round else turn.index) + 1
    return f"Turn #{number} | {render_action(turn.actor, turn.action, names)}\n"


def render_action(actor: str, action: Action, names: Mapping[str, str]) -> str:
    """Returns who did what, without the turn's number; the argument stands quoted (:func:`quote`)."""
    kind, name = action.action_type, names[actor]
    aside = f" [privately to {', '.join(names[agent] for agent in action.to)}]" if action.to else ""
    if kind is ActionType.SPEAK:
        return f"{name}{aside} said: {quote(action.argument)}"
    if kind is ActionType.NONE:
        return f"{name}{aside} did nothing"
    if kind is ActionType.LEAVE:
        return f"{name}{aside} left"
    return f"{name}{aside} [{kind.value}]: {quote(action.argument)}"


def briefing(task: Task, agent: str, action_types: tuple[ActionType, ...]) -> Briefing:
    """Returns the unchanging part of ``agent``'s observations in ``task``; built once per task."""
    key = ("briefing", agent, action_types)
    if key not in task.memo:
        task.memo[key] = _brief(task, agent, action_types)
    found: Briefing = task.memo[key]
    return found


def _brief(task: Task, agent: str, action_types: tuple[ActionType, ...]) -> Briefing:
    seat = task.agents.index(agent)
    own, side, scenario = task.characters[seat], task.scenario.seats[seat], task.scenario
    partners = tuple(_partner(task, seat, other) for other in range(len(task.agents)) if other != seat)
    recipients = {}
    if scenario.private_messages:
        recipients = {key: p.agent for p in partners for key in (p.agent, p.name)}
    profile = describe(own, OWN_FIELDS)
    wishes = [f"{number}. {goal}" for number, goal in enumerate(side.goals, start=1)]
    wishes += [f"Hint: {hint}" for hint in side.hints]
    wishes += [f"Only you know: {side.private_info}"] if side.private_info else []
    filled = fill(
        load("briefing"),
        context=_indent(scenario.context),
        participants=", ".join(task.names.values()),
        name=own.name,
        profile=f"  {profile}",
        others="\n".join(f"  {partner.text}" for partner in partners),
        goals="\n".join(f"  {wish}" for wish in wishes),
    )
    head = disarm(filled)  # authors' text, too, may hold control tokens of chat templates
    answer = fill(
        load("answer"),
        types=", ".join(f'"{kind.value}"' for kind in action_types),
        name=own.name,
        private=load("private") if recipients else "",
    )
    return Briefing(
        agent,
        own.name,
        scenario.context,
        scenario.shared_data,
        profile,
        partners,
        side.goals,
        side.hints,
        side.private_info,
        side.private_data,
        recipients,
        head,
        answer,
    )


def _indent(text: str) -> str:
    """Author's text may have lines of its own; none of them may begin where ours do."""
    return "\n  ".join(text.splitlines())


def _partner(task: Task, seat: int, other: int) -> Partner:
    relationship = task.relationship(seat, other)
    key = ("partner", other, relationship.kind, relationship.backstory)  # the same for all who stand so to it
    found: Partner | None = task.memo.get(key)
    if found is None:
        found = task.memo[key] = _get_to_know(task, other, relationship)
    return found


def _get_to_know(task: Task, other: int, relationship: Relationship) -> Partner:
    character, kind = task.characters[other], relationship.kind
    profile = describe(character, DISCLOSURE[kind])
    shared = f" You two: {relationship.backstory}" if relationship.backstory else ""
    text = f"{character.name}: {_KIND_WORDS[kind]}.{' ' if profile else ''}{profile}{shared}"
    return Partner(task.agents[other], character.name, kind, relationship.backstory, profile, text)


_KIND_WORDS: Mapping[RelationshipKind, str] = {
    RelationshipKind.FAMILY: "family",
    RelationshipKind.FRIEND: "a friend",
    RelationshipKind.ROMANTIC: "your romantic partner",
    RelationshipKind.ACQUAINTANCE: "an acquaintance",
    RelationshipKind.KNOW_BY_NAME: "known to you by name only",
    RelationshipKind.STRANGER: "a stranger",
}


def describe(character: Character, fields: tuple[str, ...]) -> str:
    """Returns the named fields of a profile in words, in a fixed order, and nothing of the other fields."""
    return " ".join(part for part in (_describe_field(character, field) for field in fields) if part)


def _describe_field(character: Character, field: str) -> str:
    value = getattr(character, field)
    if not value and value != 0:
        return ""
    match field:
        case "public_info" | "personality":
            return str(value)
        case "secret":
            return f"Secret: {value}"
        case "big_five":
            return "Traits: " + ", ".join(f"{level} {trait}" for trait, level in value) + "."
        case "public_attributes" | "private_attributes":
            return " ".join(f"{key}: {text}." for key, text in value.items())
        case "moral_foundations" | "schwartz_values":
            return f"{field.replace('_', ' ').capitalize()}: {', '.join(value)}."
        case _:
            return f"{field.replace('_', ' ').capitalize()}: {value}."
