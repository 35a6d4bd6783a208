"""The rules of a game of hidden roles as data: roles, the phases of a cycle of days and nights, and who wins when.

Roles are variables of the task's facts, so the rules do not say who has which. A role belongs to a team, and the
outcome is the team that wins. A *cycle* is one pass through the phases, in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.records import Label, Name, Record
from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.issues import check_distinct

MOST_SEATS = 9


class RoleRules(Record):
    """One role.

    Attributes:
        team: the team that wins for it.
        seats: the number of seats that have it; ``None`` for any number, also none.
    """

    team: Label
    seats: Annotated[int, Field(ge=1, le=MOST_SEATS)] | None = None


class Phase(Record):
    """One phase of a cycle; a phase whose seats are all eliminated is skipped.

    Attributes:
        name: such as ``day`` or ``night``; several phases may share it.
        who: the roles that act, or ``all``; only seats that are not eliminated act.
        move: ``talk`` is words alone. In a ``vote`` the seat with the most votes is chosen, by ``target`` every actor
            chooses one seat for itself.
        sees: who witnesses the turns: ``all``, the ``team`` of the actor, or the ``actor`` alone.
        effect: what happens at the end of the phase to whoever is chosen. From ``kill``, ``protect`` saves, and from
            ``eliminate`` nothing does; ``inspect`` tells the actor, and nobody else, what ``reveal`` says.
        turns: the number of turns of each actor.
        order: the order of the actors: that of the ``seats``, or ``rotating``, which begins one seat later in each
            cycle.
        ballot: whether votes are shown at once (``open``), when the phase ends (``sealed``), or never (``secret``); to
            those who witness the turns.
        ties: whether a tie for the most votes hits ``none``, or a ``lot`` is drawn.
        targets: ``others``, only ``foes`` (seats of other teams), or ``all``, which includes the actor itself.
        repeat: whether an actor may choose the same seat in two cycles in a row.
        reveal: what is told about whoever is eliminated, to all, or inspected, to the actor: ``none``, the ``team`` or
            the ``role``.
        since: the first cycle in which the phase takes place, from 1.
    """

    name: Label
    who: Literal["all"] | tuple[Name, ...] = "all"
    move: Literal["talk", "vote", "target"] = "talk"
    sees: Literal["all", "team", "actor"] = "all"
    effect: Literal["", "eliminate", "kill", "protect", "inspect"] = ""
    turns: int = Field(default=1, ge=1, le=20)
    order: Literal["seats", "rotating"] = "seats"
    ballot: Literal["open", "sealed", "secret"] = "open"
    ties: Literal["none", "lot"] = "none"
    targets: Literal["others", "foes", "all"] = "others"
    repeat: bool = True
    reveal: Literal["none", "team", "role"] = "none"
    since: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.who:
            hint = "name its roles in 'who', or leave 'who' out for all"
            raise InvalidValueError("nobody can act in this phase", field="who", got=self.name, hint=hint)
        if (self.move == "talk") is not (self.effect == ""):
            expected = "none for talk" if self.effect else "what happens to whoever is chosen"
            raise InvalidValueError(field="effect", expected=expected, got=self.effect)
        if self.effect == "inspect" and (self.move == "vote" or self.reveal == "none"):
            expected = "'target' as the move, and a role or team to reveal, where a seat inspects another"
            raise InvalidValueError(field="effect", expected=expected, got=f"{self.move}, reveal {self.reveal}")
        return self

    def includes(self, role: str) -> bool:
        """Whether the seats of a role act in it."""
        return self.who == "all" or role in self.who


class Win(Record):
    """One condition under which a team wins; of several that are met at once, the first one counts.

    Attributes:
        winner: the team that wins.
        when: ``eliminated``: no seat of ``team`` is left; ``parity``: at least half of those who are left are of
            ``team``; ``chosen``: a seat of ``team`` was eliminated in a phase called ``phase``; ``cycles``: the last
            cycle is over.
        team: the team that the condition is about.
        phase: the name of a phase.
    """

    winner: Label
    when: Literal["eliminated", "parity", "chosen", "cycles"]
    team: str = ""
    phase: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for field, needs in (("team", self.when != "cycles"), ("phase", self.when == "chosen")):
            if bool(getattr(self, field)) is not needs:
                expected = f"a name for {self.when!r}" if needs else f"nothing for {self.when!r}"
                raise InvalidValueError(field=field, expected=expected, got=getattr(self, field))
        return self


class RolesRules(Record):
    """The rules of a game of hidden roles.

    Attributes:
        roles: the roles by name.
        phases: the phases of a cycle, in order.
        wins: the conditions under which the game ends, in order.
        cycles: the number of cycles after which the game ends in any case, with no winner unless ``wins`` names one.
        variant: see :class:`~sotopia_env.outcomes.specification.ProtocolRules`.
    """

    kind: Literal["roles"] = "roles"
    roles: dict[Name, RoleRules] = Field(min_length=2)
    phases: tuple[Phase, ...] = Field(min_length=1)
    wins: tuple[Win, ...] = Field(min_length=1)
    cycles: int = Field(default=10, ge=1, le=50)
    variant: Annotated[str, Field(max_length=100)] = ""
    _holders: dict[str, str] = PrivateAttr(default_factory=dict)
    _variables: dict[str, dict[str, frozenset[str]]] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        teams = {role.team for role in self.roles.values()}
        for index, phase in enumerate(self.phases):
            if strange := [role for role in phase.who if phase.who != "all" and role not in self.roles]:
                raise UnknownNameError(field=f"phases.{index}.who", got=strange[0], valid=self.roles)
            if phase.since > self.cycles:
                expected = f"at most {self.cycles}, the number of cycles"
                raise InvalidValueError(field=f"phases.{index}.since", expected=expected, got=phase.since)
        names = [phase.name for phase in self.phases]
        for index, win in enumerate(self.wins):
            fields = (("winner", win.winner, teams), ("team", win.team, teams), ("phase", win.phase, names))
            for field, value, valid in fields:
                if value and value not in valid:
                    raise UnknownNameError(field=f"wins.{index}.{field}", got=value, valid=sorted(set(valid)))
        if lost := [name for name, role in self.roles.items() if role.team not in self.options]:
            hint = f"add a condition whose winner is {self.roles[lost[0]].team!r} to 'wins'"
            raise InvalidValueError("a role without a win condition", field=f"roles.{lost[0]}", got=lost[0], hint=hint)
        return self

    @property
    def options(self) -> tuple[str, ...]:
        """The possible outcomes: the teams that can win, in the order of the conditions."""
        return tuple(dict.fromkeys(win.winner for win in self.wins))

    @property
    def holders(self) -> Mapping[str, str]:
        """Agent id to role, in rules that were resolved with a task's facts; otherwise empty."""
        return self._holders

    def resolved(self, facts: Facts) -> RolesRules:
        """Returns the rules with the roles of the seats; for the protocol and evaluators, never for a seat."""
        rules = self.model_copy()
        rules._variables = {}
        rules._holders = self._held(facts)
        roles = [v for v in facts.variables if v.kind == "role"]
        for agent in rules._holders:
            own = {v.name: self.roles.keys() >= set(v.options) for v in roles if v.of == agent}
            # A role tells the team, but not the other way round.
            rules._variables[agent] = {
                "none": frozenset(),
                "team": frozenset(name for name, is_role in own.items() if not is_role),
                "role": frozenset(own),
            }
        return rules

    def disclosed(self, agent: str, level: str) -> frozenset[str]:
        """Returns the variables that become known with the ``role`` or ``team`` of a seat, in resolved rules."""
        return self._variables[agent][level]

    def _held(self, facts: Facts) -> dict[str, str]:
        """Agent id to role. A variable whose options are teams is no role of a seat, but its team."""
        own = [v for v in facts.variables if v.kind == "role" and self.roles.keys() >= set(v.options)]
        check_distinct(tuple(variable.of for variable in own), "facts.variables")
        return {variable.of: variable.value for variable in own if variable.value is not None}

    def turns(self, seats: int) -> int:
        """Returns a number of turns that no game of so many seats exceeds."""
        return self.cycles * sum(phase.turns for phase in self.phases) * seats

    def check_facts(self, facts: Facts | None, seats: int) -> None:
        """Raises InvalidValueError unless the facts of a task give every seat a role, as the rules need them."""
        if not 2 <= seats <= MOST_SEATS:
            expected = f"2 to {MOST_SEATS} seats in a game of roles"
            raise InvalidValueError(field="outcome.worth", expected=expected, got=seats)
        holders = {} if facts is None else self._held(facts)
        for agent in (f"agent_{seat}" for seat in range(seats)):
            if holders.get(agent) not in self.roles:
                hint = "declare a variable of kind 'role' for every seat in 'facts'"
                problem = f"{agent} has no role of the game"
                raise InvalidValueError(problem, field="facts.variables", valid=self.roles, hint=hint)
        counts = Counter(holders.values())
        for name, role in self.roles.items():
            if role.seats is not None and counts[name] != role.seats:
                problem, hint = f"{counts[name]} seats have the role {name!r}", "deal another role, or change 'seats'"
                expected = f"{role.seats} as outcome.protocol.roles.{name}.seats"
                raise InvalidValueError(problem, field="facts.variables", expected=expected, hint=hint)
        for index, phase in enumerate(self.phases):
            if not any(phase.includes(role) for role in counts):
                field, hint = f"outcome.protocol.phases.{index}.who", "deal one of its roles, or leave the phase out"
                raise InvalidValueError("nobody can act in this phase", field=field, got=phase.name, hint=hint)
