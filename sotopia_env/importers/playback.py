"""Recorded acts played by our rules: an imported episode is one that replays.

What the original's dynamics did not ask of a seat is a silent turn of ours: where one seat acts twice in a row, the
others are silent in between. Where several seats act in one step, or the seats follow no order, the steps are rounds
in which all act at once. Nothing ends an imported episode but its own end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sotopia_env.errors import DamagedRecordError
from sotopia_env.outcomes import Move
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.dynamics import (
    DEFAULT_MAX_TURNS,
    EpisodeState,
    Rules,
    SilenceRule,
    StopReason,
    TurnOrder,
    initial_state,
    transition,
)
from sotopia_env.world.episode import RecordedTurn
from sotopia_env.world.scenario import Task

_ENDLESS = 1_000_000
_ACTIVE = frozenset(ActionType) - {ActionType.NONE}


class Act(NamedTuple):
    """What a seat did, by number of the seat."""

    seat: int
    action: Action


class Playback(NamedTuple):
    """The fields of an episode that follow from its acts."""

    rules: Rules
    turns: tuple[RecordedTurn, ...]
    stop: StopReason | None


def spoken(seat: int, text: str, move: Move | None = None) -> Act:
    """Returns the act of saying something, with or without a move."""
    return Act(seat, Action(ActionType.SPEAK, text, (), move))


def play_acts(task: Task, acts: Sequence[Act], end_when_settled: bool = True) -> Playback:
    """Plays acts one after the other, in round-robin order that begins with the first.

    Raises:
        DamagedRecordError: nothing was done, or somebody acts after having left or after the end.
    """
    _check_some(acts)
    rules = Rules(
        max_turns=_ENDLESS,
        max_silent_turns=0,
        first_seat=acts[0].seat,
        end_when_settled=end_when_settled,
    )
    state = initial_state(task, rules, 0)
    for number, (seat, action) in enumerate(acts, start=1):
        agent = task.agents[seat]
        if agent in state.left and action.action_type is ActionType.NONE:
            continue
        if state.stop is StopReason.SETTLED:  # they went on talking
            return play_acts(task, acts, end_when_settled=False)
        _check_present(state, agent, number)
        while state.actor != agent:
            state = transition(state, NO_ACTION)
        state = transition(state, action)
    return _ended(state, acts)


def play_steps(task: Task, steps: Sequence[Sequence[Action]]) -> Playback:
    """Plays steps with an action of every seat each, as the reference code keeps them.

    Steps in which only the seat whose turn it would be acts are turns in round-robin order; others are rounds in which
    all act at once.

    Raises:
        DamagedRecordError: as :func:`play_acts`.
    """
    steps = _without_idle_end(steps, task)
    seats = len(task.agents)
    for first in range(seats):
        if all(_only(step, (first + number) % seats) for number, step in enumerate(steps)):
            acts = [Act((first + number) % seats, step[(first + number) % seats]) for number, step in enumerate(steps)]
            return play_acts(task, acts)
    _check_some(steps)
    rules = Rules(turn_order=TurnOrder.SIMULTANEOUS, max_turns=_ENDLESS, max_silent_turns=0)
    state = initial_state(task, rules, 0)
    for number, step in enumerate(steps, start=1):
        for agent, action in zip(task.agents, step, strict=True):
            if agent in state.left and action.action_type is ActionType.NONE:
                continue
            _check_present(state, agent, number)
            state = transition(state, action)
    return _ended(state, ())


def _only(step: Sequence[Action], seat: int) -> bool:
    return all(other == seat or action.action_type not in _ACTIVE for other, action in enumerate(step))


def _without_idle_end(steps: Sequence[Sequence[Action]], task: Task) -> Sequence[Sequence[Action]]:
    """The steps up to the one in which all but one have left: after it nothing can happen."""
    left: set[int] = set()
    for number, step in enumerate(steps, start=1):
        left |= {seat for seat, action in enumerate(step) if action.action_type is ActionType.LEAVE}
        if len(left) > len(task.agents) - 2:
            idle = all(action.action_type not in _ACTIVE for after in steps[number:] for action in after)
            return steps[:number] if idle else steps
    return steps


def _check_some(acts: Sequence[object]) -> None:
    if not acts:
        raise DamagedRecordError(expected="at least one action", hint="an episode needs an action")


def _check_present(state: EpisodeState, agent: str, number: int) -> None:
    name = state.task.names[agent]
    if state.stop is not None:
        problem = f"{name} cannot act, the episode ended before ({state.stop.value})"
        raise DamagedRecordError(problem, field=f"action {number}", hint="remove this action")
    if agent in state.left:
        problem = f"{name} left earlier and cannot act"
        raise DamagedRecordError(problem, field=f"action {number}", hint="remove this action")


def _ended(state: EpisodeState, acts: Sequence[Act]) -> Playback:
    """The playback with the rules under which it ends where it does, for the reason for which it does."""
    turns = tuple(RecordedTurn(turn=turn) for turn in state.turns)
    silent = not turns[-1].turn.action.argument.strip() and state.stop is None and turns[-1].turn.action.move is None
    for rule in SilenceRule if silent and acts else ():
        rules = replace(state.rules, max_turns=None, max_silent_turns=None, silence_rule=rule)
        rules = _limited(rules, len(turns))
        if _stop_of(state, rules) is StopReason.SILENCE:
            return Playback(rules, turns, StopReason.SILENCE)
    count = len(turns)
    if state.stop is None:  # a limit ended it: that of the papers, where it is that one
        own = None if count == (state.task.scenario.max_turns or DEFAULT_MAX_TURNS) else count
        return Playback(replace(state.rules, max_turns=own), turns, StopReason.TURN_LIMIT)
    return Playback(_limited(replace(state.rules, max_turns=None), count), turns, state.stop)


def _limited(rules: Rules, count: int) -> Rules:
    """The rules with a limit of turns only where the episode is longer than that of the papers."""
    return rules if count <= DEFAULT_MAX_TURNS else replace(rules, max_turns=count)


def _stop_of(state: EpisodeState, rules: Rules) -> StopReason | None:
    """Why the same turns would end under ``rules``, if they end with the last turn and not before."""
    other = initial_state(state.task, rules, state.seed)
    for turn in state.turns:
        if other.stop is not None:
            return None
        other = transition(other, turn.attempted or turn.action)
    return other.stop
