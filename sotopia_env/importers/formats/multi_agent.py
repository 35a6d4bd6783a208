"""Importer of SOTOPIA's configurations for more than two agents: scenes with private messages, and social games.

A game's roles become goals and secrets. Its phases, votes and ends are code of the reference package, so a task of a
game is free talk about it; the note on the task says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Product,
    ProductKind,
    Text,
    check_distinct_names,
    converted,
    one_line,
)
from sotopia_env.importers.formats.profiles import AgentProfile, character_of, seat_of
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Seat, Task

_ROUND_ROBIN = "round-robin"
_SOURCE = "SOTOPIA"
_TEAM = "team"


class GroupMember(Foreign):
    """A participant of a scene, with the fields of a profile."""

    first_name: str
    last_name: Text = ""
    profile: dict[str, Any]
    goal: str


class GroupScene(Foreign):
    """A scene of several agents."""

    scenario: str
    agents: list[GroupMember] = Field(min_length=2)
    models: Any = None
    action_order: Text = _ROUND_ROBIN


class Player(Foreign):
    """A player of a game."""

    name: str
    role: str
    team: Text = ""


class GamePhase(Foreign):
    """A phase of a game: who acts in it, and who sees it."""

    acting_roles: list[str] = Field(default_factory=list)
    visibility: Text = ""


class SocialGame(Foreign):
    """A game of roles, such as Werewolves."""

    scenario: str
    description: str
    role_goals: dict[str, str]
    role_secrets: dict[str, str] = Field(default_factory=dict)
    agents: list[Player] = Field(min_length=2)
    state_properties: dict[str, GamePhase]
    initial_state: Any = None
    state_transition: Any = None
    end_conditions: Any = None

    def private_info(self, player: Player) -> str:
        """The player's role, with its fellows if they act unseen by the others."""
        fellows = [other.name for other in self.agents if other.team == player.team and other is not player]
        together = [
            phase
            for phase in self.state_properties.values()
            if phase.visibility == _TEAM and player.role in phase.acting_roles
        ]
        return f"Your role: {player.role}." + (f" In your team: {', '.join(fellows)}." if together and fellows else "")


def read_scene(scene: GroupScene, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a scene."""
    people = [_person(number, member) for number, member in enumerate(scene.agents)]
    seats = [seat_of(member.goal) for member in scene.agents]
    # The reference code's default relationship is that of strangers.
    task = _task(scene.scenario, seats, people, RelationshipKind.STRANGER)
    order = one_line(scene.action_order)
    note = f"action_order: {order!r} is a rule of play; set turn_order in the run"
    yield Product(ProductKind.TASK, task, (note,) if order != _ROUND_ROBIN else ())


def _person(number: int, member: GroupMember) -> Character:
    fields = {**member.profile, "first_name": member.first_name, "last_name": member.last_name}
    try:
        return character_of(AgentProfile.of({"occupation": "", **fields}))
    except DamagedRecordError as error:
        raise DamagedRecordError.of(error, within=f"agents.{number}.profile") from None


def read_game(game: SocialGame, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a game."""
    for number, player in enumerate(game.agents):
        if player.role not in game.role_goals:
            raise DamagedRecordError(field=f"agents.{number}.role", got=player.role, valid=game.role_goals)
    seats = [Seat(goals=(one_line(game.role_goals[p.role]),), private_info=game.private_info(p)) for p in game.agents]
    people = [
        converted(
            lambda player=player: Character(  # type: ignore[misc]
                first_name=player.name.partition(" ")[0],
                last_name=player.name.partition(" ")[2],
                gender="",
                pronouns="",
                occupation="",
                secret=one_line(game.role_secrets.get(player.role, "")),
            )
        )
        for player in game.agents
    ]
    # Not ``str.format``: a description from outside is a text and no template.
    context = game.description.replace("{agent_names}", ", ".join(player.name for player in game.agents))
    task = _task(context, seats, people, RelationshipKind.ACQUAINTANCE)
    phases = ", ".join(game.state_properties)
    yield Product(
        ProductKind.TASK, task, (f"state_properties: the phases ({phases}) are left out; the task is free talk",)
    )


def _task(context: str, seats: Sequence[Seat], people: Sequence[Character], kind: RelationshipKind) -> Task:
    check_distinct_names([person.name for person in people])
    key = content_id(context, *(person.name for person in people))
    pairs = itertools.combinations(range(len(people)), 2)
    return converted(
        lambda: Task(
            id=f"multi-agent/{key}",
            scenario=Scenario(
                id=f"multi-agent/{key}", context=context, seats=tuple(seats), private_messages=True, source=_SOURCE
            ),
            characters=tuple(people),
            relationships=tuple(Relationship(seats=pair, kind=kind) for pair in pairs),
        )
    )


MULTI_AGENT = (
    Format("sotopia-groups", "SOTOPIA scenes of several agents", ProductKind.TASK, GroupScene, read_scene),
    Format("sotopia-games", "SOTOPIA social games", ProductKind.TASK, SocialGame, read_game),
)
