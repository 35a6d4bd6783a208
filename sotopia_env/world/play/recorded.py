"""Recorded episodes, turn by turn: the states and what a seat observed in them."""

from __future__ import annotations

from collections.abc import Iterator

from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.table import Table


def states(episode: Episode) -> Iterator[Table]:
    """Yields one table in the state before each turn and after the last one.

    It is the same table each time, so a caller reads it before it asks for the next state.
    """
    table = Table(episode.task, episode.rules, episode.seed)
    for item in episode.turns:
        yield table
        turn = item.turn
        table.answer(turn.actor, turn.attempted or turn.action, item.generation)  # the rules refuse an attempt again
    yield table


def observations(episode: Episode, seat: str) -> Iterator[tuple[Observation, int]]:
    """Yields what ``seat`` observed before each of its turns in a recorded episode, with the index of the turn."""
    for item, table in zip(episode.turns, states(episode), strict=False):  # the last state has no turn
        if item.turn.actor == seat:
            yield table.observe(seat), item.turn.index
