"""Playback of recorded acts by this package's rules, so that imported episodes replay.

If one seat acts twice in a row, the other seats get a silent turn in between. If several seats act in one step, or the
seats follow no order, the steps become rounds in which all seats act at once. No limit ends an imported episode before
its last recorded act.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.outcomes import Move
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.dynamics import (
    DEFAULT_MAX_TURNS,
    EpisodeState,
    Rules,
    SilenceRule,
    StopReason,
    initial_state,
    transition,
)
from sotopia_env.world.episode import RecordedTurn
from sotopia_env.world.scenario import Task
from sotopia_env.world.turn_order import TurnOrder

# More turns than any file has. ``Rules`` treats ``None`` as the default limit, which would end long episodes early.
_ENDLESS = 1_000_000
_ACTIVE = frozenset(ActionType) - {ActionType.NONE}


class Act(NamedTuple):
    """An action and the index of the seat that took it."""

    seat: int
    action: Action


class Playback(NamedTuple):
    """The fields of an episode that result from playing its acts.

    ``inserted`` holds the indices of silent turns that the acts do not contain: another seat had acted twice in a row.
    """

    rules: Rules
    turns: tuple[RecordedTurn, ...]
    stop: StopReason | None
    inserted: frozenset[int] = frozenset()


def utterance(seat: int, text: str, move: Move | None = None) -> Act:
    """Returns the act of saying something, with or without a move."""
    return Act(seat, Action(ActionType.SPEAK, text, (), move))


def play_acts(task: Task, acts: Sequence[Act], end_when_settled: bool = True) -> Playback:
    """Plays acts one after the other, in round-robin order that begins with the seat of the first act.

    Args:
        task: the task of the episode.
        acts: the acts in order; several acts of one seat may follow each other.
        end_when_settled: whether an agreement ends the episode. If acts follow the agreement, they are played without
            this rule.

    Raises:
        DamagedRecordError: there are no acts, or a seat acts after it left or after the episode ended.
    """
    _check_some(acts)
    rules = Rules(
        max_turns=_ENDLESS,
        max_silent_turns=0,
        first_seat=acts[0].seat,
        end_when_settled=end_when_settled,
    )
    state = initial_state(task, rules, 0)
    inserted: set[int] = set()
    for number, (seat, action) in enumerate(acts, start=1):
        agent = task.agents[seat]
        # Reference logs hold "did nothing" for seats that have left; these get no turn here.
        if agent in state.left and action.action_type is ActionType.NONE:
            continue
        # The parties went on talking after they agreed, so the agreement cannot have ended their episode.
        if state.stop is StopReason.SETTLED:
            return play_acts(task, acts, end_when_settled=False)
        _check_present(state, agent, number)
        # Terminates: ``agent`` is present, and the round-robin reaches every present seat.
        while state.actor != agent:
            inserted.add(len(state.turns))
            state = transition(state, NO_ACTION)
        state = transition(state, action)
    return _ended(state, acts)._replace(inserted=frozenset(inserted))


def play_steps(task: Task, steps: Sequence[Sequence[Action]]) -> Playback:
    """Plays steps, each with one action per seat, as the reference code stores them.

    If only the seat whose turn it is acts in every step, the steps are turns in round-robin order; otherwise they are
    rounds in which all seats act at once.

    Args:
        task: the task of the episode.
        steps: the steps in order, each with the actions of all seats, in seat order.

    Raises:
        DamagedRecordError: as for :func:`play_acts`.
    """
    steps = _without_idle_end(steps, task)
    seats = len(task.agents)
    # The seat that began is not in the file: try each one as the first of the round-robin.
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
    """The steps up to the one after which at most one seat is left; idle steps after it cannot be played."""
    left: set[int] = set()
    for number, step in enumerate(steps, start=1):
        left |= {seat for seat, action in enumerate(step) if action.action_type is ActionType.LEAVE}
        if len(left) > len(task.agents) - 2:
            idle = all(action.action_type not in _ACTIVE for after in steps[number:] for action in after)
            # Steps with actions are not cut: playing them names the action that came too late.
            return steps[:number] if idle else steps
    return steps


def _check_some(acts: Sequence[object]) -> None:
    if not acts:
        raise DamagedRecordError(expected="at least one action", hint="an episode needs an action")


def _check_present(state: EpisodeState, agent: str, number: int) -> None:
    name = state.task.names[agent]
    if state.stop is not None:
        problem = f"{name} cannot act: the episode had ended ({state.stop.value})"
        raise DamagedRecordError(problem, field=f"action {number}", hint="remove this action")
    if agent in state.left:
        problem = f"{name} left earlier and cannot act"
        raise DamagedRecordError(problem, field=f"action {number}", hint="remove this action")


def _ended(state: EpisodeState, acts: Sequence[Act]) -> Playback:
    """The playback, with rules under which the episode ends after its last turn.

    The files do not record why an episode ended. The candidates are tried in order: silence, the end that the rules
    reached during play, and a limit on the number of turns.
    """
    turns = tuple(RecordedTurn(turn=turn) for turn in state.turns)
    silent = not turns[-1].turn.action.argument.strip() and state.stop is None and turns[-1].turn.action.move is None
    # Only turns in order are tried: in rounds (``acts`` is empty) the end of the file is recorded as a limit.
    for rule in SilenceRule if silent and acts else ():
        rules = replace(state.rules, max_turns=None, max_silent_turns=None, silence_rule=rule)
        rules = _limited(rules, len(turns))
        if _stop_of(state, rules) is StopReason.SILENCE:
            return Playback(rules, turns, StopReason.SILENCE)
    count = len(turns)
    if state.stop is None:
        # A turn limit ended the episode. ``None`` means the scenario's or the papers' limit, which makes imported
        # episodes comparable with those played here; any other length is recorded as a limit.
        own = None if count == (state.task.scenario.max_turns or DEFAULT_MAX_TURNS) else count
        return Playback(replace(state.rules, max_turns=own), turns, StopReason.TURN_LIMIT)
    return Playback(_limited(replace(state.rules, max_turns=None), count), turns, state.stop)


def _limited(rules: Rules, count: int) -> Rules:
    """The rules, with a limit of ``count`` turns if the episode is longer than the papers' limit."""
    return rules if count <= DEFAULT_MAX_TURNS else replace(rules, max_turns=count)


def _stop_of(state: EpisodeState, rules: Rules) -> StopReason | None:
    """The reason for which the same turns end under ``rules``; ``None`` if they end earlier or not at all."""
    other = initial_state(state.task, rules, state.seed)
    for turn in state.turns:
        if other.stop is not None:
            return None
        # A refused action must be attempted again: ``action`` is only what the environment made of it.
        other = transition(other, turn.attempted or turn.action)
    return other.stop
