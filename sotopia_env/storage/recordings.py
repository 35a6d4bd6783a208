"""Deduplication of episodes that several runs share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.world.episode import Episode

PlayKey = tuple[str, bytes]
"""The identity of one play of an episode: a model may play the same plan twice, with different turns."""


class Recording(NamedTuple):
    """A record of one play of an episode.

    Attributes:
        play: the identity of the play.
        episode: the record as it was read.
        first: whether this is the first record of the play.
        evaluators: the names of evaluators whose evaluation no earlier record of the play has.
    """

    play: PlayKey
    episode: Episode
    first: bool
    evaluators: frozenset[str]


def recordings(episodes: Iterable[Episode], one_play: bool = False) -> Iterator[Recording]:
    """Yields the records with a new play or a new evaluation; no episode is kept in memory.

    Runs may share episodes, such as a baseline's self-play. If their evaluations differ, the first one by each
    evaluator counts.

    Args:
        episodes: the episodes of one or several runs.
        one_play: whether to refuse a second play of an episode, because the key must identify the play.

    Raises:
        InvalidValueError: ``one_play`` is set, and two plays of one episode occur.
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
        names = evaluators.setdefault(play, set())
        new = frozenset(evaluation.evaluator for evaluation in episode.evaluations) - names
        names |= new
        if first or new:
            yield Recording(play, episode, first, new)


def play_key(episode: Episode) -> PlayKey:
    """Returns the identity of a play, which does not depend on the evaluations in its record."""
    # A generation holds latencies and costs, which do not make another play.
    turns = "\n".join(item.model_dump_json(exclude={"generation"}) for item in episode.turns)
    return episode.key, hashlib.blake2b(turns.encode(), digest_size=16).digest()
