"""The columns of turns: who acted, the words and the move, the seconds, and the advice that a person had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.people.tables.columns import Cell, Column
from sotopia_env.people.tables.seats import MOVES, RECORD, RULES, SERVER, advice_of, policy_name, seconds_of
from sotopia_env.world.action import Advice
from sotopia_env.world.answers import participant_of
from sotopia_env.world.episode import Episode, RecordedTurn


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn of an episode.

    Attributes:
        name: the identity of the episode.
        episode: the episode.
        item: the turn.
    """

    name: str
    episode: Episode
    item: RecordedTurn

    @property
    def person(self) -> str:
        """The code of the person in the seat; empty for a program."""
        actor = self.item.turn.actor
        return next((participant_of(policy) for policy in self.episode.policies if policy.agent == actor), "")


def _move(played: PlayedTurn) -> dict[str, Any]:
    move = played.item.turn.action.move
    return {} if move is None else move.to_json()


def _tokens(played: PlayedTurn) -> Cell:
    generation = played.item.generation
    return None if generation is None else generation.usage.tokens


def _advice(read: Callable[[Advice], Cell]) -> Callable[[PlayedTurn], Cell]:
    def cell(played: PlayedTurn) -> Cell:
        advice = advice_of(played.item)
        return None if advice is None else read(advice)

    return cell


def _advised(advice: Advice) -> Cell:
    move = advice.action.move
    return None if move is None else canonical_json(move.to_json())


ADVISER = "an assistant of the person"
TURN: tuple[Column[PlayedTurn], ...] = (
    Column("episode", "id of the conversation", "text", lambda t: t.name, source=RECORD),
    Column("turn", "number of the turn", "number", lambda t: t.item.turn.index + 1, "from 1", RECORD),
    Column("round", "number of the round", "number", lambda t: t.item.turn.round + 1, "from 1", RECORD),
    Column("agent", "the seat that acted", "text", lambda t: t.item.turn.actor, "agent_0, agent_1, …", RECORD),
    Column("character", "its character", "text", lambda t: t.episode.task.names[t.item.turn.actor], source=RULES),
    Column("participant", "code of the person who acted; empty for a program", "text", lambda t: t.person or None),
    Column(
        "policy",
        "the policy that acted",
        "text",
        lambda t: policy_name(t.episode, t.item.turn.actor),
        "human: a person",
        RECORD,
    ),
    Column(
        "action",
        "kind of the action",
        "choice",
        lambda t: t.item.turn.action.action_type.value,
        "none, speak, non-verbal communication, action, leave",
        RECORD,
    ),
    Column("words", "the speech, gesture or deed", "text", lambda t: t.item.turn.action.argument, source=RECORD),
    Column(
        "to",
        "seats that a private action was addressed to; empty for everybody",
        "text",
        lambda t: ", ".join(t.item.turn.action.to) or None,
        source=RECORD,
    ),
    Column(
        "move",
        "kinds of the move and of the statements",
        "text",
        lambda t: ", ".join(_move(t)) or None,
        "propose, accept, reject, withdraw, vote, claim, state, show, ask",
        MOVES,
    ),
    Column(
        "content",
        "the move with its terms, as it counted",
        "JSON",
        lambda t: canonical_json(_move(t)) if _move(t) else None,
        source=MOVES,
    ),
    Column("effect", "effect of the move", "text", lambda t: t.item.turn.effect, source=MOVES),
    Column(
        "refused", "why the action or its move did not count", "text", lambda t: t.item.turn.violation, source=MOVES
    ),
    Column(
        "seconds", "time from the observation to the action", "number", lambda t: seconds_of(t.item), "seconds", SERVER
    ),
    Column(
        "tokens",
        "tokens of a language model's prompt and answer",
        "number",
        _tokens,
        "from 0; empty if unknown",
        RECORD,
    ),
    Column(
        "advice.mode",
        "assistance of the person in this turn",
        "choice",
        _advice(lambda a: a.mode),
        "propose, advise, act",
        ADVISER,
    ),
    Column("advice.policy", "the policy that advised", "text", _advice(lambda a: a.policy), source=ADVISER),
    Column("advice.words", "the words that it proposed", "text", _advice(lambda a: a.action.argument), source=ADVISER),
    Column("advice.content", "the move that it proposed, with its terms", "JSON", _advice(_advised), source=ADVISER),
    Column("advice.problem", "why it proposed nothing", "text", _advice(lambda a: a.problem or None), source=ADVISER),
    Column(
        "advice.copied",
        "whether the person copied the proposal into the form",
        "yes/no",
        _advice(lambda a: a.is_copied),
        source=SERVER,
    ),
    Column(
        "advice.response",
        "what the person did",
        "choice",
        _advice(lambda a: a.response or None),
        "played: the assistant acted; same; move: the same move in other words; other",
        RECORD,
    ),
    Column("advice.seconds", "time that the assistant took", "number", _advice(lambda a: a.seconds), "seconds", SERVER),
)
"""Columns of a turn."""


def played_turns(episodes: Iterable[tuple[str, Episode]]) -> Iterator[PlayedTurn]:
    """Yields the turns of episodes, each given with the name by which tables identify it."""
    for name, episode in episodes:
        for item in episode.turns:
            yield PlayedTurn(name, episode, item)
