"""Importer of SOTOPIA's configurations for more than two agents: scenes with private messages, and social games.

A game's roles become goals and secrets. If it has a vote of everybody and a team that others must vote out, a task is
the game up to its first vote (:mod:`~sotopia_env.importers.formats.facts.roles`), without the phases of single roles.
Otherwise it is free talk about the game. Notes say what is left out.
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
from sotopia_env.importers.formats.facts.roles import FirstVote, speeches
from sotopia_env.importers.formats.profiles import AgentProfile, character_of, seat_of
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Seat, Task

_ROUND_ROBIN, _SIMULTANEOUS = "round-robin", "simultaneous"
_SOURCE = "SOTOPIA"
_TEAM, _SPEAK, _ACTION, _ELIMINATED = "team", "speak", "action", "team_eliminated"
_GAMES = "sotopia-games"


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
    """A phase of a game: who acts in it and how, and who sees it."""

    acting_roles: list[str] = Field(default_factory=list)
    actions: list[str] = Field(default_factory=list)
    visibility: Text = ""
    action_order: Text = ""

    @property
    def is_talk(self) -> bool:
        """Whether everybody speaks in it."""
        return not self.acting_roles and _SPEAK in self.actions

    @property
    def is_vote(self) -> bool:
        """Whether everybody acts in it without words, which the reference code reads as votes."""
        return not self.acting_roles and self.actions == [_ACTION]


class GameEnd(Foreign):
    """A condition that ends a game."""

    type: Text = ""
    team: Text = ""
    winner: Text = ""


class SocialGame(Foreign):
    """A game of roles, such as Werewolves."""

    scenario: str
    description: str
    role_goals: dict[str, str]
    role_secrets: dict[str, str] = Field(default_factory=dict)
    agents: list[Player] = Field(min_length=2)
    state_properties: dict[str, GamePhase]
    initial_state: Text = ""
    state_transition: dict[str, str] = Field(default_factory=dict)
    end_conditions: list[GameEnd] = Field(default_factory=list)

    def private_info(self, player: Player) -> str:
        """The player's role, with its fellows if they act unseen by the others."""
        fellows = [other.name for other in self.agents if other.team == player.team and other is not player]
        together = f" In your team: {', '.join(fellows)}." if player.role in self.together and fellows else ""
        return f"Your role: {player.role}.{together}"

    @property
    def together(self) -> set[str]:
        """The roles that act together, unseen by other teams."""
        phases = [phase for phase in self.state_properties.values() if phase.visibility == _TEAM]
        return {role for phase in phases for role in phase.acting_roles}

    @property
    def first_day(self) -> list[str]:
        """The names of the phases up to the first vote, in their order; empty if none is reached."""
        phases: list[str] = []
        state = self.initial_state
        while state in self.state_properties and state not in phases:
            phases.append(state)
            if self.state_properties[state].is_vote:
                return phases
            state = self.state_transition.get(state, "")
        return []

    @property
    def hidden(self) -> set[str]:
        """The roles of the team without which another one wins; empty if there is none, or a role is in both."""
        teams = [end.team for end in self.end_conditions if end.type == _ELIMINATED and end.winner != end.team]
        roles = {player.role for player in self.agents if player.team in teams[:1]}
        return roles - {player.role for player in self.agents if player.team not in teams[:1]}

    def informs(self) -> dict[str, list[str]]:
        """Returns, for each role that acts with its team, the roles of that team."""
        teams = {player.role: player.team for player in self.agents}
        return {
            role: [other for other in teams if teams[other] == teams[role]] for role in teams if role in self.together
        }


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
    check_distinct_names([person.name for person in people])
    if game.first_day and game.hidden:
        vote = _first_vote(game, [person.name for person in people])
        text = f"{context}\n{_played(vote)}"
        task = converted(lambda: vote.task(_GAMES, text, seats, people, _SOURCE))
        yield Product(ProductKind.TASK, task, tuple(_left_out(game)))
        return
    lacks = "vote of everybody" if not game.first_day else "team of its own that another has to vote out"
    phases = ", ".join(game.state_properties)
    note = f"state_properties: no {lacks}, so the phases ({phases}) are left out; the task is free talk"
    yield Product(ProductKind.TASK, _task(context, seats, people, RelationshipKind.ACQUAINTANCE), (note,))


def _first_vote(game: SocialGame, names: Sequence[str]) -> FirstVote:
    *phases, vote = [game.state_properties[name] for name in game.first_day]
    return FirstVote(
        names=names,
        roles=[player.role for player in game.agents],
        hidden=tuple(sorted(game.hidden)),
        talks=sum(phase.is_talk for phase in phases),
        secret=vote.action_order == _SIMULTANEOUS,
        informs=game.informs(),
    )


def _played(vote: FirstVote) -> str:
    return f"Only the first day is played here: {speeches(vote.talks)}, then all vote once. Roles do not act otherwise."


def _left_out(game: SocialGame) -> Iterator[str]:
    """A sentence for everything that is left out, with the rule before the colon."""
    for name, phase in game.state_properties.items():
        if phase.acting_roles:
            yield f"state_properties (roles): {name!r}, in which {', '.join(phase.acting_roles)} act, is left out"
    if game.state_transition.get(game.first_day[-1]):
        yield "state_transition (first vote): what comes after the first vote is left out"
    for end in game.end_conditions:
        if end.type != _ELIMINATED:
            yield f"end_conditions (first vote): {end.type!r} is left out; the first vote ends the game"
    if (members := sum(player.role in game.hidden for player in game.agents)) > 1:
        yield f"end_conditions (first vote): the vote against one of {members} hidden players wins the game"


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
    Format(_GAMES, "SOTOPIA social games", ProductKind.TASK, SocialGame, read_game),
)
