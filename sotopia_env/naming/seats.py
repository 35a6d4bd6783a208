"""Names for the seats of a task, by which each can get a policy: agents, roles, allies and opponents.

A seat has several names, from the most to the least specific: its agent id (``agent_1``); its role, as the people of
the task call it (``smuggler``) and as all tasks of the family do (``hidden``); what it is to the seat that is played
(``ally``, ``opponent`` or ``bystander``); and ``other``, which every seat but that one is. A policy is for the most
specific of them.

An ally is a seat with the same worth for every outcome, such as another member of a team. A bystander has nothing to
gain. Everybody else is an opponent, also in the games of choices, in which each seat has payoffs of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Verbatim, check_whole
from sotopia_env.outcomes.games.payoffs import GameWorth
from sotopia_env.world import Task
from sotopia_env.world.outcome import references
from sotopia_env.world.play.policy import Policy

T = TypeVar("T")
PolicySpec = Policy | str
RELATIONS = ("ally", "opponent", "bystander")
OTHER = "other"
SELF = "self"
"""In place of a policy: the seat is played by whoever plays the first one."""


def role_of(task: Task, agent: str) -> str:
    """Returns the name of a seat's role that all tasks of its family share; the agent id of a seat without a role."""
    label = _label(task, agent)
    shared = task.scenario.shared_data.get("roles")
    names = shared.items() if isinstance(shared, Mapping) else ()
    return next((str(name) for name, text in names if text == label), label or agent)


def _label(task: Task, agent: str) -> str:
    """What the people of the task call the role of a seat; empty without one."""
    # Families without facts have the name in the seat's data.
    named = task.scenario.seats[task.seat_of[agent]].private_data.get("role")
    return task.scenario.role_of(agent) or str(named or "")


def relation(task: Task, agent: str, other: str) -> str:
    """Returns what another seat is to ``agent``: ``ally``, ``opponent`` or ``bystander``; empty without an outcome."""
    outcome = task.scenario.resolved_outcome
    if outcome is None:
        return ""
    own, theirs = (outcome.worth[task.seat_of[seat]] for seat in (agent, other))
    # The payoffs of games are a table of own and other choices: equal tables are not equal interests.
    if own == theirs and not isinstance(own, GameWorth):
        return "ally"
    points, seat = references(task), task.seat_of[other]
    return "opponent" if points.best[seat] > points.disagreement[seat] else "bystander"


def sides(task: Task) -> list[tuple[str, ...]]:
    """Returns the seats in groups of allies; a seat without allies is a group of its own."""
    groups: dict[str, list[str]] = {}
    for agent in task.agents:
        first = next((other for other in groups if relation(task, agent, other) == "ally"), agent)
        groups.setdefault(first, []).append(agent)
    return [tuple(group) for group in groups.values()]


def own_names(task: Task, agent: str) -> tuple[str, ...]:
    """Returns the agent id of a seat and the names of its role, the most specific first."""
    return tuple(dict.fromkeys((agent, _label(task, agent) or agent, role_of(task, agent))))


def names_of(task: Task, agent: str, other: str) -> Iterator[str]:
    """Yields the names of the seat ``other`` for ``agent``, the most specific first."""
    yield from own_names(task, other)
    # After the others, because it may have to count all outcomes.
    yield from filter(None, [relation(task, agent, other)])
    yield OTHER


def partners_of(task: Task, agent: str, by_name: Mapping[str, T]) -> dict[str, T]:
    """Returns what each seat but ``agent`` gets, by agent id.

    Args:
        task: the task.
        agent: the seat that is played.
        by_name: a value, such as a policy, by a name of seats.

    Raises:
        InvalidValueError: a seat has none of the names.
    """
    if by_name.keys() == {OTHER}:
        return {other: by_name[OTHER] for other in task.agents if other != agent}
    result = {}
    for other in task.agents:
        if other != agent:
            name = next((name for name in names_of(task, agent, other) if name in by_name), None)
            if name is None:
                raise InvalidValueError(
                    field="partners",
                    expected=f"a policy for {other} of {task.id!r}, as {', '.join(names_of(task, agent, other))}",
                    got=Verbatim(", ".join(by_name) or "none"),
                    hint=f"{OTHER!r} is for all seats that are not named",
                )
            result[other] = by_name[name]
    return result


def seated(
    task: Task, focal: Iterable[int], partner: PolicySpec | Mapping[int, PolicySpec] | Mapping[str, PolicySpec]
) -> dict[str, PolicySpec]:
    """Returns the policy of every seat that has one, by agent id.

    Args:
        task: the task.
        focal: the numbers of the seats without a policy, from 0.
        partner: one policy for all other seats, one for each by number, or by names of seats as the first focal seat
            sees them; a seat whose policy is :data:`SELF` has none.

    Raises:
        InvalidValueError: a number is not one of a seat, or a seat has no policy.
        UnknownNameError: no seat of the task has a name.
    """
    own = sorted({*focal})
    for number in own:
        check_whole("focal", number, 0, len(task.agents) - 1)
    others = [number for number in range(len(task.agents)) if number not in own]
    by_name: Mapping[Any, PolicySpec] = partner if isinstance(partner, Mapping) else {OTHER: partner}
    if any(isinstance(name, int) for name in by_name):
        if {*by_name} != {*others}:
            raise InvalidValueError(field="partner", expected=f"one for each of the seats {others}", got=[*by_name])
        return {task.agents[number]: policy for number, policy in by_name.items()}
    check_seat_names([task], by_name, "partner")
    first = task.agents[own[0] if own else 0]
    by_agent = partners_of(task, first, by_name)
    return {task.agents[n]: by_agent[task.agents[n]] for n in others if by_agent[task.agents[n]] != SELF}


def seats_named(task: Task, names: Iterable[str]) -> list[str]:
    """Returns the agent ids of the seats with one of these names, which are agent ids or roles; all for no name."""
    chosen = {*names}
    return [agent for agent in task.agents if not chosen or chosen.intersection(own_names(task, agent))]


def check_seat_names(tasks: Iterable[Task], names: Iterable[str], field: str, relative: bool = True) -> None:
    """Checks that every name is one of a seat of the tasks.

    Args:
        tasks: the tasks, of which one is enough.
        names: the names.
        field: the setting that contains them.
        relative: whether the names that a seat has for another one are valid, beside agent ids and roles.

    Raises:
        UnknownNameError: a name is not one.
    """
    own = dict.fromkeys(name for task in tasks for agent in task.agents for name in own_names(task, agent))
    valid = [*own, *((*RELATIONS, OTHER) if relative else ())]
    for name in names:
        if name not in valid:
            raise UnknownNameError(field=field, got=name, valid=valid)
