"""Turn orders: the function that determines the next round and the agents that act in it.

A protocol with phases calls on the agents that may act (:class:`~sotopia_env.outcomes.protocols.protocol.Due`); the
order then applies to these alone.

A round is one tick of the episode's logical clock. In three orders every agent that has not left acts in each tick. In
``reactive`` order (SOTOPIA-S4 §3.2 and appendix B) each agent acts in the ticks of its own appointments. They depend on
the seed, on the actions that reached the agent and on the waits that it named itself, never on the time that a policy
takes to answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes.protocols.protocol import Due
from sotopia_env.world.action import Action
from sotopia_env.world.scenario import Task


class TurnOrder(StrEnum):
    """The order in which agents act.

    * ``round-robin``: seats in order, beginning with ``Rules.first_seat``.
    * ``random``: every round in an order of its own, drawn from the seed.
    * ``simultaneous``: within a round, no agent sees the others' actions of that round.
    * ``reactive``: every agent acts when it likes (``Action.wait``), by default some time after something reached it;
      agents that act at the same time do not see each other's actions.
    """

    ROUND_ROBIN = "round-robin"
    RANDOM = "random"
    SIMULTANEOUS = "simultaneous"
    REACTIVE = "reactive"

    @property
    def veiled(self) -> bool:
        """Whether a round is one moment: no agent sees the others' actions of the round before it is over."""
        return self is TurnOrder.SIMULTANEOUS or self is TurnOrder.REACTIVE


class Appointment(NamedTuple):
    """The time at which a seat acts next, in reactive order.

    Attributes:
        round: the tick of the clock.
        fixed: whether later events cannot change it, because the seat named it or has something to read then.
    """

    round: int
    fixed: bool


class LastRound(NamedTuple):
    """A finished round: the part of an episode's state that determines who acts next.

    Attributes:
        task: the task of the episode.
        seed: the seed of the episode.
        first_seat: the seat that begins in round-robin order.
        number: the number of the round; -1 before the first one.
        actions: the actions of the round, by agent.
        left: the agents that have left.
        appointments: see :class:`NextRound`.
        due: the agents that the task's protocol calls on; ``None`` if it leaves that to the order.
    """

    task: Task
    seed: int
    first_seat: int
    number: int
    actions: Mapping[str, Action]
    left: frozenset[str]
    appointments: tuple[Appointment, ...]
    due: Due | None = None

    @property
    def following(self) -> int:
        """The number of the next round."""
        return self.number + 1 if self.due is None else self.due.round

    @property
    def present(self) -> tuple[str, ...]:
        """The agents that have not left and may act, in seat order or in the protocol's."""
        agents = self.task.agents if self.due is None else self.due.agents
        return tuple([agent for agent in agents if agent not in self.left]) if self.left else agents


class NextRound(NamedTuple):
    """The agents that act next.

    Attributes:
        number: the number of the round, from 0; in reactive order, the clock's next tick in which an agent acts. The
            first one is 0 in every order.
        agents: the agents that act in it, the first one first.
        appointments: every seat's appointment, in reactive order; empty in the others.
    """

    number: int
    agents: tuple[str, ...]
    appointments: tuple[Appointment, ...] = ()


def next_round(order: TurnOrder, last: LastRound) -> NextRound:
    """Returns the round that follows ``last`` in ``order``.

    Raises:
        InvalidValueError: the order is reactive, and the protocol calls on the agents that act.
    """
    return _ORDERS[order](last)


def _round_robin(last: LastRound) -> NextRound:
    agents, first = last.present, last.first_seat
    if first:
        # Sorting is stable: the seats from the first one on, then those before it.
        agents = tuple(sorted(agents, key=lambda agent: last.task.seat_of[agent] < first))
    return NextRound(last.following, agents)


def _random(last: LastRound) -> NextRound:
    agents = list(last.present)
    _generator(last.seed, last.following).shuffle(agents)
    return NextRound(last.following, tuple(agents))


def _simultaneous(last: LastRound) -> NextRound:
    return NextRound(last.following, last.present)


def _reactive(last: LastRound) -> NextRound:
    if last.due is not None:
        expected = "another order than 'reactive' where the phases of the protocol say who acts"
        raise InvalidValueError(field="turn_order", expected=expected, got=TurnOrder.REACTIVE.value)
    generator = _generator(last.seed, last.number)
    # One draw per seat and tick, so that a seat's times do not depend on what happens out of its sight.
    appointments = {agent: _appointment(last, agent, generator.random()) for agent in last.task.agents}
    if last.number < 0:
        # The clock starts with the first action: a limit on rounds must leave a tick in which somebody acts.
        start = min(time.round for time in appointments.values())
        appointments = {agent: time._replace(round=time.round - start) for agent, time in appointments.items()}
    # The clock skips the ticks in which nobody acts.
    number = min([appointments[agent].round for agent in last.present], default=last.number + 1)
    agents = tuple([agent for agent in last.present if appointments[agent].round == number])
    return NextRound(number, agents, tuple(appointments.values()))


_ORDERS: Mapping[TurnOrder, Callable[[LastRound], NextRound]] = {
    TurnOrder.ROUND_ROBIN: _round_robin,
    TurnOrder.RANDOM: _random,
    TurnOrder.SIMULTANEOUS: _simultaneous,
    TurnOrder.REACTIVE: _reactive,
}


def _generator(seed: int, round_: int) -> random.Random:
    # A generator per round keeps the state small and the order a function of (seed, round) alone.
    return random.Random(f"turn order {seed} {round_}")


def _appointment(last: LastRound, agent: str, draw: float) -> Appointment:
    """The agent's appointment after the round; ``draw`` is from 0 to 1."""
    now, seats, own = last.number, len(last.task.agents), last.actions.get(agent)
    # A time that the seat named itself stays, whatever reaches it before.
    if own is not None and own.wait is not None:
        return Appointment(now + own.wait, True)
    # The situation itself, before the first round, reaches everybody.
    reached = now < 0 or any(_reaches(action, agent) for actor, action in last.actions.items() if actor != agent)
    earlier = last.appointments[last.task.seat_of[agent]] if own is None and now >= 0 else None
    if earlier is not None and (earlier.fixed or not reached):
        return earlier
    # A seat that nothing reaches speaks again by itself, on average after twice the time in which it would answer.
    time = now + 1 + int(draw * seats * (1 if reached else 2))
    # News can bring a seat's next turn forward, but never delay it.
    return Appointment(time if earlier is None else min(time, earlier.round), reached)


def _reaches(action: Action, agent: str) -> bool:
    # Silence reaches nobody, and a private action only its recipients.
    return not action.silent and (not action.to or agent in action.to)
