"""Recordings: each play of an episode once, however many runs share its record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sotopia_env.errors import InvalidValueError
from sotopia_env.world.episode import Episode

PlayKey = tuple[str, bytes]
"""Identifies one play of an episode: models may play the same plan twice, with other turns."""


class Recording(NamedTuple):
    """A record of one play of an episode.

    Attributes:
        play: the same for all records of one play.
        episode: the record as it was read.
        first: whether no earlier record was of this play.
        evaluators: names of those whose evaluation no earlier record of this play has.
    """

    play: PlayKey
    episode: Episode
    first: bool
    evaluators: frozenset[str]


def recordings(episodes: Iterable[Episode], one_play: bool = False) -> Iterator[Recording]:
    """Yields the records that say something new; no episode is held in memory.

    Runs may share episodes, such as a baseline's self-play. One that was evaluated differently in each has all of these
    evaluations, the first by every evaluator.

    Args:
        episodes: of one or several runs.
        one_play: whether there may be only one play of each episode, because its key has to identify it.

    Raises:
        InvalidValueError: there are two plays of one episode where there may be only one.
    """
    evaluators: dict[PlayKey, set[str]] = {}
    plays: dict[str, PlayKey] = {}
    for episode in episodes:
        play = play_key(episode)
        if plays.setdefault(episode.key, play) != play and one_play:
            raise InvalidValueError(
                "there are two plays with different turns",
                field="episode",
                got=episode.key,
                hint="name runs that do not play the same plan",
            )
        first = play not in evaluators
        known = evaluators.setdefault(play, set())
        new = frozenset(evaluation.evaluator for evaluation in episode.evaluations) - known
        known |= new
        if first or new:
            yield Recording(play, episode, first, new)


def play_key(episode: Episode) -> PlayKey:
    """Returns the identity of a play; equal records of one play may have other evaluations."""
    turns = "\n".join(item.model_dump_json(exclude={"generation"}) for item in episode.turns)
    return episode.key, hashlib.blake2b(turns.encode(), digest_size=16).digest()
