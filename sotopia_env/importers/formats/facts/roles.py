"""Games of roles up to their first vote, as a ballot with facts: who is who is what they are about.

The roles are dealt as cards are, so that everybody knows which there are; a seat knows its own, and those that its role
knows. Roles can be stated and not shown. A hidden team gains by the vote against anybody else, all others by the vote
against one of it; what a seat reads about its own worth is true whoever is who. Each vote is a choice that can be
promised.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sotopia_env.importers.foreign import plain_name
from sotopia_env.importers.library import content_id
from sotopia_env.outcomes import BallotRules, OutcomeSpec
from sotopia_env.outcomes.facts import Deal, Facts, Variable
from sotopia_env.outcomes.worth import FactsWorth
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Seat, Task


@dataclass(frozen=True, slots=True)
class FirstVote:
    """A game of roles up to its first vote.

    Attributes:
        names: names of the players, in seat order.
        roles: their roles.
        hidden: the roles of the hidden team.
        talks: the number of turns of each seat before the vote.
        secret: whether nobody sees a vote before all have voted.
        ties: whether a tie is decided by lot, or nobody is voted out.
        informs: by role, the roles whose holders its holder knows.
    """

    names: Sequence[str]
    roles: Sequence[str]
    hidden: tuple[str, ...]
    talks: int
    secret: bool
    ties: Literal["lot", "none"] = "lot"
    informs: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def facts(self) -> Facts:
        """Returns the facts; raises :class:`InvalidValueError` or pydantic's error if they are not valid."""
        options = tuple(dict.fromkeys(map(plain_name, self.roles)))
        roles = [
            Variable(
                name=f"role of {name}",
                options=options,
                value=plain_name(role),
                kind="role",
                of=f"agent_{seat}",
                evidence=False,
            )
            for seat, (name, role) in enumerate(zip(self.names, self.roles, strict=True))
        ]
        votes = [
            Variable(name=f"vote of {name}", options=tuple(self.names), kind="choice", of=f"agent_{seat}")
            for seat, name in enumerate(self.names)
        ]
        informs = {plain_name(role): tuple(map(plain_name, roles)) for role, roles in self.informs.items()}
        values = tuple(map(plain_name, self.roles))
        deal = Deal(variables=tuple(variable.name for variable in roles), values=values, informs=informs)
        return Facts(variables=(*roles, *votes), deals=(deal,))

    def outcome(self) -> OutcomeSpec:
        """Returns the ballot with each seat's worth, from 0 to 1."""
        teams = {is_hidden: self._worth(is_hidden) for is_hidden in (True, False)}
        rules = BallotRules(options=tuple(self.names), secret=self.secret, ties=self.ties, opens=self.talks)
        return OutcomeSpec(protocol=rules, worth=tuple(teams[role in self.hidden] for role in self.roles))

    def _worth(self, is_hidden: bool) -> FactsWorth:
        """The worth for a team: 1 for each person of the other one, and for no decision if the team is hidden."""
        others = [role for role in dict.fromkeys(self.roles) if (role in self.hidden) is not is_hidden]
        gains = {f"role of {name}": {plain_name(role): {name: 1.0} for role in others} for name in self.names}
        # A lot decides whenever anybody votes, so only a tie that decides nothing is in the rules of the source.
        return FactsWorth(facts=gains, no_decision=float(is_hidden and self.ties == "none"))

    def task(self, format: str, context: str, seats: Sequence[Seat], people: Sequence[Character], source: str) -> Task:
        """Returns the task.

        Args:
            format: name of the format, for ids and tags.
            context: what everybody reads.
            seats: the seats, with goals and what only each of them knows.
            people: the characters; their names are :attr:`names`.
            source: name of the source.
        """
        name = f"{format}/{content_id(context, self)}"
        return Task(
            id=name,
            scenario=Scenario(
                id=name,
                context=context,
                seats=tuple(seats),
                max_turns=(self.talks + 1) * len(self.names),
                source=source,
                tags=(format,),
                outcome=self.outcome(),
                facts=self.facts(),
            ),
            characters=tuple(people),
            relationships=tuple(
                Relationship(seats=pair, kind=RelationshipKind.ACQUAINTANCE)
                for pair in itertools.combinations(range(len(self.names)), 2)
            ),
        )


def speeches(talks: int) -> str:
    """Returns how often each may speak before the vote, in words."""
    return {0: "nobody speaks", 1: "each may speak once"}.get(talks, f"each may speak {talks} times")
