"""Importer of the game configurations of Kaggle's Werewolf, as far as they are Mini-Mafia.

That is one Werewolf, one Seer and two or three Villagers: with so few, the first vote decides the game. As in
Mini-Mafia (arXiv 2509.23023), the night is fixed: the last Villager of the file was killed, and the Seer looked at the
Werewolf. What other configurations need and is not played is named in one sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from sotopia_env.foundation.errors import DamagedRecordError, Verbatim
from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Identity,
    Product,
    ProductKind,
    check_distinct_names,
    converted,
    plain_name,
)
from sotopia_env.importers.formats.facts.roles import FirstVote, speeches
from sotopia_env.importers.library import Library
from sotopia_env.importers.source import RawRecord
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.world.scenario import Character, Seat

WEREWOLF, SEER, VILLAGER = "Werewolf", "Seer", "Villager"
_TALK, _SEQUENTIAL, _SIMULTANEOUS = "RoundRobinDiscussion", "SequentialVoting", "SimultaneousMajority"
_GOALS = {
    WEREWOLF: "You are the Werewolf. See to it that somebody else is voted out.",
    SEER: "You are the Seer, and in the night you looked at the Werewolf. Get the Werewolf voted out.",
    VILLAGER: "You are a Villager. Find out who the Werewolf is, and vote the Werewolf out.",
}


class WerewolfAgent(Foreign):
    """A player; ``id`` is the name in the game."""

    role: str
    id: Identity


class WerewolfProtocol(Foreign):
    """A protocol of discussion or voting, with its parameters."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)


class WerewolfConfig(Foreign):
    """The configuration of a game; the parts that are left out here are about the night and the program."""

    agents: list[WerewolfAgent] = Field(min_length=2)
    # A protocol that is named without parameters has two rounds, and one that is not named has one.
    discussion_protocol: WerewolfProtocol = WerewolfProtocol(name=_TALK, params={"max_rounds": 1})
    day_voting_protocol: WerewolfProtocol = WerewolfProtocol(name=_SEQUENTIAL)

    def talks(self) -> int:
        """Returns the number of rounds of discussion."""
        rounds = self.discussion_protocol.params.get("max_rounds", 2)
        if not isinstance(rounds, int) or rounds < 0:
            field = "game_config.discussion_protocol.params.max_rounds"
            raise DamagedRecordError(field=field, expected="a whole number of rounds", got=rounds)
        return rounds

    def ties(self) -> Literal["lot", "none"]:
        """Returns what a tie decides."""
        rule = self.day_voting_protocol.params.get("tie_break", "random")
        if rule not in ("random", "no_elected"):
            field = "game_config.day_voting_protocol.params.tie_break"
            raise DamagedRecordError(field=field, got=rule, valid=("random", "no_elected"))
        return "lot" if rule == "random" else "none"


class WerewolfRecord(Foreign):
    """A file of settings."""

    game_config: WerewolfConfig
    # Declared so that for a game without ``game_config`` around it, the message says that it is missing.
    discussion_protocol: Any = None
    day_voting_protocol: Any = None


def _missing_rules(config: WerewolfConfig) -> Iterator[str]:
    """The rules of a game that are not played here."""
    counts = Counter(agent.role for agent in config.agents)
    if counts[WEREWOLF] > 1:
        yield f"nights of {counts[WEREWOLF]} werewolves"
    yield from (f"the role {role}" for role in counts if role not in _GOALS)
    yield from (f"a game without a {role}" for role in (WEREWOLF, SEER) if not counts[role])
    if counts[SEER] > 1:
        yield f"{counts[SEER]} seers"
    if counts[VILLAGER] < 2:
        yield f"a night that leaves no {VILLAGER}"
    # After a wrong or missing vote and another night, as many werewolves as others must be left.
    if sum(counts.values()) > (5 if config.ties() == "lot" else 4):
        yield "a second day"
    if config.discussion_protocol.name != _TALK:
        yield f"the discussion {config.discussion_protocol.name}"
    if config.day_voting_protocol.name not in (_SEQUENTIAL, _SIMULTANEOUS):
        yield f"the vote {config.day_voting_protocol.name}"


def read(record: WerewolfRecord, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a configuration."""
    config = record.game_config
    check_distinct_names([agent.id for agent in config.agents])
    if missing := list(_missing_rules(config)):
        raise DamagedRecordError(
            field="game_config",
            expected="a game of one Werewolf, one Seer and two or three Villagers that its first vote decides",
            got=Verbatim(f"one that needs {conjunction(missing)}"),
            hint="leave these out, or play mini_mafia",
        )
    victim = [agent for agent in config.agents if agent.role == VILLAGER][-1]
    players = [agent for agent in config.agents if agent is not victim]
    game = FirstVote(
        names=[plain_name(agent.id) for agent in players],
        roles=[agent.role for agent in players],
        hidden=(WEREWOLF,),
        talks=config.talks(),
        secret=config.day_voting_protocol.name == _SIMULTANEOUS,
        ties=config.ties(),
        informs={SEER: (WEREWOLF,)},
    )
    seats = [Seat(goals=(_GOALS[agent.role],)) for agent in players]
    people = converted(lambda: [_character(name) for name in game.names])
    task = converted(lambda: game.task(_NAME, _context(game, plain_name(victim.id)), seats, people, "Kaggle Werewolf"))
    note = f"night (fixed): the {VILLAGER} {victim.id!r} was killed, and the {SEER} looked at the {WEREWOLF}"
    yield Product(ProductKind.TASK, task, (note,))


def _character(name: str) -> Character:
    return Character(first_name=name, gender="", pronouns="", occupation="")


def _context(game: FirstVote, victim: str) -> str:
    villagers = "the other one is a Villager" if len(game.names) == 3 else "the others are Villagers"
    tie = "a tie is decided by lot" if game.ties == "lot" else "in a tie nobody is voted out, and the Werewolf escapes"
    return (
        f"In the night the Villager {victim} was killed by a Werewolf. Of {conjunction(game.names)}, who are left, one "
        f"is the Werewolf, one is the Seer, who looked at the Werewolf in the night, and {villagers}. "
        f"{speeches(game.talks).capitalize()}, then all vote: who gets the most votes is voted out, and {tie}."
    )


_NAME = "kaggle-werewolf"
WEREWOLF_GAMES = Format(_NAME, "Kaggle Werewolf games that one vote decides", ProductKind.TASK, WerewolfRecord, read)
