"""The rules of an episode as pure functions: the effects of actions and moves, and stop conditions.

The functions are ``initial_state`` and ``transition``; they neither render nor score, and use no global randomness.
The table of a verified task (offers, votes, claims) is folded once per turn by the task's protocol
(:mod:`sotopia_env.outcomes`); words never change it.
:mod:`~sotopia_env.world.turn_order` decides who acts next.
Sources: SOTOPIA (arXiv 2310.11667) §2.2 and appendix C.1; SOTOPIA-S4 §3 for simultaneous turns and private messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import ConfigDict, Field

from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, check_whole
from sotopia_env.outcomes import InvalidMoveError
from sotopia_env.outcomes.protocols.protocol import Effect
from sotopia_env.world.action import ACTION_TYPES, NO_ACTION, WORDLESS, Action, ActionType
from sotopia_env.world.scenario import Task
from sotopia_env.world.turn_order import Appointment, LastRound, NextRound, TurnOrder, next_round

DEFAULT_MAX_TURNS = 20
_EnumT = TypeVar("_EnumT", bound=StrEnum)


class SilenceRule(StrEnum):
    """How silent (``none``) turns are counted.

    * ``consecutive``: turns in a row, the same for every seat.
    * ``legacy``: as in the code of the SOTOPIA papers, which also stored a ``none`` for each seat whose turn it was
      not. With two seats, one silence of seat 1 after seat 0 spoke therefore counts as three and ends the episode,
      while one silence of seat 0 counts as two and does not.
    """

    CONSECUTIVE = "consecutive"
    LEGACY = "legacy"


class StopReason(StrEnum):
    """Why an episode ended."""

    SETTLED = "settled"  # terminated: the protocol is settled, nothing more can be agreed or claimed
    LEFT = "left"  # terminated: fewer than two agents remain
    SILENCE = "silence"  # terminated: too many silent turns in a row
    TURN_LIMIT = "turn limit"  # truncated: max_turns actions were taken, or max_rounds rounds played

    @property
    def truncated(self) -> bool:
        """Whether a limit, not the situation, ended the episode."""
        return self is StopReason.TURN_LIMIT


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything about an episode that is not the task.

    Attributes:
        turn_order: the order in which agents act.
        max_turns: limit on *actions* of all seats together (20 in the papers); ``None`` takes the scenario's limit or
            20. In simultaneous and reactive order the round in which the limit is reached is played to its end.
        max_rounds: limit on rounds, in reactive order on the clock's ticks; replaces the
            turn limit when given.
        max_silent_turns: this many silent turns in a row end the episode; ``None`` means seats + 1 (3 for two
            seats, as in the reference code), 0 switches the rule off. In reactive order, this also requires that no
            seat has something to read or has named a time.
        silence_rule: how silent turns are counted.
        first_seat: seat that begins in round-robin order.
        action_types: the types agents may use; ``none`` is always among them.
        end_when_settled: whether a settled protocol ends the episode; otherwise the conversation continues.
        worths: whether seats read what single values and open offers are worth to them, beside the rule for it.
        carry: the maximum number of characters of the notes that each seat takes to the next episode with the same
            people, in runs (:mod:`sotopia_env.runs.series`); 0 for none.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    turn_order: TurnOrder = TurnOrder.ROUND_ROBIN
    max_turns: int | None = None
    max_rounds: int | None = None
    max_silent_turns: int | None = None
    silence_rule: SilenceRule = SilenceRule.CONSECUTIVE
    first_seat: int = 0
    action_types: tuple[ActionType, ...] = ACTION_TYPES
    end_when_settled: bool = True
    worths: bool = True
    carry: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "turn_order", _member(TurnOrder, "turn_order", self.turn_order))
        object.__setattr__(self, "silence_rule", _member(SilenceRule, "silence_rule", self.silence_rule))
        if isinstance(self.action_types, str) or not isinstance(self.action_types, Iterable):
            raise InvalidValueError(field="action_types", expected="several action types", got=self.action_types)
        # ``none`` is always available, because it replaces every action that is not allowed.
        kinds = {_member(ActionType, "action_types", kind) for kind in self.action_types} | {ActionType.NONE}
        # In the order of the action space, whatever the order given, so that equal rules compare equal.
        object.__setattr__(self, "action_types", tuple(kind for kind in ACTION_TYPES if kind in kinds))
        for field, low in (
            ("max_turns", 1),
            ("max_rounds", 1),
            ("max_silent_turns", 0),
            ("first_seat", 0),
            ("carry", 0),
        ):
            value = getattr(self, field)
            if value is None and field not in ("first_seat", "carry"):
                continue
            check_whole(field, value, low)
        for field in ("end_when_settled", "worths"):
            if not isinstance(getattr(self, field), bool):
                raise InvalidValueError(field=field, expected="true or false", got=getattr(self, field))

    def turn_limit(self, task: Task) -> int | None:
        """The number of actions after which an episode of ``task`` is truncated; ``None`` when rounds are limited."""
        if self.max_rounds is not None:
            return None
        return self.max_turns or task.scenario.max_turns or DEFAULT_MAX_TURNS  # the caller's limit comes first

    def silence_limit(self, seats: int) -> int:
        """The number of silent turns in a row that ends an episode; 0 for never."""
        return seats + 1 if self.max_silent_turns is None else self.max_silent_turns


def _member(enum: type[_EnumT], field: str, value: object) -> _EnumT:
    try:
        return enum(value)  # type: ignore[arg-type]
    except ValueError:
        raise InvalidValueError(field=field, got=value, valid=[member.value for member in enum]) from None


@dataclass(frozen=True, slots=True)
class Turn:
    """One agent's action as it happened.

    Attributes:
        index: position in the episode, from 0.
        round: the round it belongs to, from 0; in reactive order, the time on the logical clock.
        actor: agent id.
        action: the action that took effect; a move that counted is in normal form.
        violation: the reason why the requested action was not allowed. ``action`` is then ``none``, or, if only the
            move was not open, the words without the move.
        veiled: whether the actor had not seen the other turns of this round (simultaneous and reactive order).
        attempted: the requested action, if it was not allowed.
        effect: the effect of the move, in the protocol's words.
        hidden: the effect as all other agents see it, if they see less.
        seen: the agents that witness it, in seat order, if the protocol restricts them.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    index: int
    round: int
    actor: str
    action: Action
    violation: str | None = None
    veiled: bool = False
    attempted: Action | None = None
    effect: str | None = None
    hidden: str | None = None
    seen: Annotated[tuple[str, ...] | None, Field(exclude_if=lambda value: value is None)] = None

    @property
    def audience(self) -> frozenset[str] | None:
        """The agents that witness it, its actor included; ``None`` for all."""
        to = (*self.action.to, self.actor) if self.action.to else None  # actors see their own private turns
        return frozenset(self.seen or to or ()) or None


class EpisodeState(NamedTuple):
    """The Dec-POMDP's state: the task and everything that has happened.

    A named tuple, because every turn builds one, in a fifth of the time of a frozen dataclass.

    Attributes:
        waiting: agents still to act in this round, the next one first; empty when the episode has ended.
        left: agents that left; they act no more.
        silent_run: silent turns in a row, as ``rules.silence_rule`` counts them.
        stop: why the episode ended, or ``None`` while it is running.
        table: the state of the task's protocol; ``None`` in a task without one.
        tables: for every turn, the table as its actor saw it; in a veiled order, the one at the round's beginning.
        round_table: the table at the beginning of the round.
        settled_after: turns until the protocol was settled; ``None`` while it is not.
        appointments: when each seat acts next, in reactive order; empty in the others.
    """

    task: Task
    rules: Rules
    seed: int
    turns: tuple[Turn, ...]
    round: int
    waiting: tuple[str, ...]
    left: frozenset[str]
    silent_run: int
    stop: StopReason | None
    table: Any = None
    tables: tuple[Any, ...] = ()
    round_table: Any = None
    settled_after: int | None = None
    appointments: tuple[Appointment, ...] = ()

    @property
    def actor(self) -> str | None:
        """The agent whose turn it is."""
        return self.waiting[0] if self.waiting else None

    @property
    def active(self) -> tuple[str, ...]:
        """The agents that have not left, in seat order."""
        return tuple(agent for agent in self.task.agents if agent not in self.left) if self.left else self.task.agents


# Looking a member up in its enum costs more than comparing it, and every turn compares several.
_CONSECUTIVE, _LEAVE = SilenceRule.CONSECUTIVE, ActionType.LEAVE


def initial_state(task: Task, rules: Rules, seed: int) -> EpisodeState:
    """Returns the state before the first action.

    Args:
        task: the task of the episode.
        rules: order and limits.
        seed: determines the random parts of the turn order; any non-negative integer.

    Raises:
        InvalidValueError: ``rules.first_seat`` is not a seat of the task, or ``seed`` is negative or not an integer.
    """
    if rules.first_seat >= len(task.agents):
        raise InvalidValueError(field="first_seat", expected=f"0 to {len(task.agents) - 1}", got=rules.first_seat)
    check_whole("seed", seed, 0)
    table = None if task.protocol is None else task.protocol.initial()
    before = EpisodeState(task, rules, seed, (), -1, (), frozenset(), 0, None, table, (), table)  # after a round -1
    first = _next_round(before)
    return before._replace(round=first.number, waiting=first.agents, appointments=first.appointments)


def transition(state: EpisodeState, action: Action) -> EpisodeState:
    """Returns the state after the agent whose turn it is has taken ``action``.

    A well-formed action that the rules do not allow (type not available, recipient gone, a private action where the
    scenario has none) becomes ``none`` with the reason in ``Turn.violation``. If only its move is not open, the words
    are heard and the move does not count.

    Raises:
        InvalidActionError: the episode has ended, or a recipient is not an agent of the task.
    """
    if state.stop is not None:
        raise InvalidActionError(f"the episode has ended ({state.stop.value})", field="action", got=action)
    actor = state.waiting[0]
    veiled = state.rules.turn_order.veiled
    basis = state.round_table if veiled else state.table  # what the actor saw: the table before a veiled round
    counted, table, violation, result = _carry_out(state, actor, action, basis)
    if state.table is not None and state.task.protocol is not None:
        table = state.task.protocol.advance(table, actor)
    attempted = None if violation is None else action
    effect, hidden = (None, None) if result is None else (result.text, result.hidden)
    index = len(state.turns)
    seen = _seen(state, actor, counted)
    turn = Turn(index, state.round, actor, counted, violation, veiled, attempted, effect, hidden, seen)
    left = state.left | {actor} if counted.action_type is _LEAVE else state.left
    settled = state.settled_after
    # Only a table that has changed can have become settled.
    if settled is None and table is not state.table and _settled(state.task, table):
        settled = index + 1
    # The table before the turn, as its actor saw it: chat messages show it again.
    tables = state.tables if state.table is None else (*state.tables, basis)
    after = state._replace(
        turns=(*state.turns, turn),
        waiting=state.waiting[1:],
        left=left,
        silent_run=_count_silence(state, actor, counted),
        table=table,
        tables=tables,
        settled_after=settled,
    )
    following = None if after.waiting else _next_round(after)  # computed at the end of a round only
    stop = _stop(after, following)
    if stop is not None:
        return after._replace(waiting=(), stop=stop)
    if following is None:
        return after
    # The table of this moment is what every seat sees for the whole of a veiled round.
    return after._replace(
        round=following.number, waiting=following.agents, round_table=table, appointments=following.appointments
    )


def _next_round(state: EpisodeState) -> NextRound:
    """Returns the round that follows ``state``'s finished round."""
    rules, task, turns = state.rules, state.task, _this_round(state)
    actions = {turn.actor: turn.action for turn in turns}
    due = None if task.protocol is None else task.protocol.due(state.table)
    last = LastRound(task, state.seed, rules.first_seat, state.round, actions, state.left, state.appointments, due)
    return next_round(rules.turn_order, last)


def _this_round(state: EpisodeState) -> Iterator[Turn]:
    """The turns of the round so far, the latest first."""
    return itertools.takewhile(lambda turn: turn.round == state.round, reversed(state.turns))


class _Consequence(NamedTuple):
    """The result of an action."""

    action: Action
    table: Any
    violation: str | None = None
    effect: Effect | None = None


def _carry_out(state: EpisodeState, actor: str, action: Action, basis: Any) -> _Consequence:
    if (violation := _violation(state, actor, action)) is not None:  # before the move, which must not count then
        return _Consequence(NO_ACTION, state.table, violation)
    if action.action_type in WORDLESS:
        return _Consequence(_wordless(action), _table_without(state, actor, action.action_type))
    if action.move is None:
        return _Consequence(action, state.table)
    protocol = state.task.protocol
    if protocol is None:
        reason = "move: there is nothing to agree on formally here; leave out the move"
        return _Consequence(_words(action), None, reason)
    # ``basis`` is the table that the actor saw, ``state.table`` the one that the move changes. They differ only in a
    # simultaneous round, where earlier seats' moves have changed the table since; the protocol needs both.
    try:
        seen = _seen(state, actor, action) or (frozenset((*action.to, actor)) if action.to else None)
        table, effect = protocol.apply(state.table, actor, action.move, seen, basis)
    except InvalidMoveError as error:
        return _Consequence(_words(action), state.table, str(error))
    # Recorded in normal form, so that the table can be folded again from the turns alone.
    counted = Action(action.action_type, action.argument, action.to, effect.move, action.wait)
    return _Consequence(counted, table, None, effect)


def _words(action: Action) -> Action:  # without its move
    return Action(action.action_type, action.argument, action.to, wait=action.wait)


def _wordless(action: Action) -> Action:
    """Doing nothing or leaving: recipients are dropped, and so is any text except public words of leave."""
    words = action.argument if action.action_type is _LEAVE and not action.to else ""
    is_plain = action.wait is None and not words.strip()
    return _WORDLESS[action.action_type] if is_plain else Action(action.action_type, words, wait=action.wait)


def _seen(state: EpisodeState, actor: str, action: Action) -> tuple[str, ...] | None:
    """The agents to whom the protocol restricts a turn of ``actor``; ``None`` for no restriction."""
    heard = None if state.task.protocol is None else state.task.protocol.audience(state.table, actor)
    to = {*(action.to or state.task.agents), actor}
    return None if heard is None else tuple([agent for agent in state.task.agents if agent in heard & to])


def _table_without(state: EpisodeState, actor: str, action_type: ActionType) -> Any:
    """The table after a wordless action: an agent that leaves takes its offers along."""
    if action_type is not _LEAVE or state.task.protocol is None:
        return state.table
    return state.task.protocol.leave(state.table, actor)


def _settled(task: Task, table: Any) -> bool:
    return task.protocol is not None and task.protocol.settled(table)


def move_problem(state: EpisodeState, actor: str, action: Action) -> str | None:
    """Returns why ``action``'s move would not count, as far as ``actor`` can know, or ``None``.

    In a veiled round the move is checked against the table at the round's beginning, so that the answer does not reveal
    what others have done since.
    """
    if state.rules.turn_order.veiled:
        state = state._replace(table=state.round_table)
    return _carry_out(state, actor, action, state.table).violation


_WORDLESS = {ActionType.NONE: NO_ACTION, _LEAVE: Action(_LEAVE)}


def _violation(state: EpisodeState, actor: str, action: Action) -> str | None:
    if action.action_type not in state.rules.action_types:
        allowed = ", ".join(kind.value for kind in state.rules.action_types)
        return f"action type {action.action_type.value!r} is not available here; available: {allowed}"
    if action.move is not None and action.action_type in WORDLESS:
        return f"move: comes with speak, non-verbal communication or action, not with {action.action_type.value!r}"
    if not action.to:
        return None
    check_recipients(state.task, action)  # raises: the caller's mistake, not the agent's
    if not state.task.scenario.private_messages:
        return "private actions are not possible in this scenario; address everybody"
    absent = _absent(state)
    for agent in action.to:
        if agent == actor:
            return "a private action cannot be addressed to oneself"
        if agent in absent:
            return f"{state.task.names[agent]} has left and can receive nothing"
        if agent not in (_seen(state, actor, NO_ACTION) or (agent,)):
            return f"{state.task.names[agent]} does not witness this phase"
    return None


def check_recipients(task: Task, action: Action) -> None:
    """Raises :class:`InvalidActionError` if a recipient of ``action`` is not an agent of the task."""
    for agent in action.to:
        if agent not in task.names:
            raise InvalidActionError(field="to", got=agent, valid=task.agents)


def _absent(state: EpisodeState) -> frozenset[str]:
    """The agents that the acting seat knows to have left: in a veiled round, those that left before the round."""
    if not state.left or not state.rules.turn_order.veiled:
        return state.left
    return state.left - {turn.actor for turn in _this_round(state)}  # leaving at the same time is not known yet


def _count_silence(state: EpisodeState, actor: str, action: Action) -> int:
    if state.rules.silence_rule is _CONSECUTIVE or state.rules.turn_order.veiled:
        return state.silent_run + 1 if action.silent else 0
    # The legacy log stores one entry per seat and step, in seat order, "none" for every seat but the actor's.
    seats = len(state.task.agents)
    return state.silent_run + seats if action.silent else seats - 1 - state.task.seat_of[actor]


def _stop(state: EpisodeState, following: NextRound | None) -> StopReason | None:
    """Why the episode ends after the latest turn; ``following`` is the next round, if this one is over."""
    rules, seats = state.rules, len(state.task.agents)
    if rules.turn_order.veiled and following is None:
        # A veiled round is one event: it is played to its end before it has consequences.
        return None
    # Tested before ``settled``: the last partner's leaving may itself settle that nothing can be agreed any more.
    if seats - len(state.left) < 2:
        return StopReason.LEFT
    if state.settled_after is not None and rules.end_when_settled:
        return StopReason.SETTLED
    silence_limit = rules.silence_limit(seats)
    if silence_limit and state.silent_run >= silence_limit and not _expecting(state, following):
        return StopReason.SILENCE
    if rules.max_rounds is not None:
        return StopReason.TURN_LIMIT if following is not None and following.number >= rules.max_rounds else None
    limit = rules.turn_limit(state.task)
    return StopReason.TURN_LIMIT if limit is not None and len(state.turns) >= limit else None


def _expecting(state: EpisodeState, following: NextRound | None) -> bool:
    """Whether a seat has something to read, has named the time at which it acts, or is called on by the protocol."""
    if state.task.phased and not _settled(state.task, state.table):
        return True
    if following is None or not following.appointments:
        return False
    return any(following.appointments[state.task.seat_of[agent]].fixed for agent in state.active)
