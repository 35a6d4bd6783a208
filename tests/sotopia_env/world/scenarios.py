"""Small verified tasks for every protocol, and moves to play them with."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sotopia_env.outcomes import Move, MoveKind, OutcomeSpec
from sotopia_env.outcomes.facts import Facts
from sotopia_env.tasks.builtin import starter_tasks
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import EpisodeState, Rules, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Relationship, Task
from tests.sotopia_env.factories import FIRST_NAMES, character

KINDS = ("facts", "agreement", "latest", "quorum", "ballot", "secret ballot", "claims", "hidden claims")
"""Protocols under test; ``quorum`` has a veto, ``latest`` keeps the last offer open and no other, and with
``hidden claims`` the seats do not know the candidates. With ``facts`` a secret ballot has statements beside it; a
``discussion``, which is not listed because it settles nothing, has the same facts and no outcome."""
ISSUES = [
    {"name": "price", "kind": "number", "low": 0, "high": 20, "step": 1, "unit": "$"},
    {"name": "start", "kind": "choice", "options": ["June 1", "June 15"]},
]
OPTIONS = ["museum", "lake", "zoo"]
CANDIDATES = ["Ana Lee", "Ben Ross", "Cy Young"]


def outcome_spec(kind: str, seats: int) -> OutcomeSpec:
    """The outcome of a task with ``seats`` seats; even seats want a low price, odd ones a high one."""
    return OutcomeSpec.model_validate(_SPECS[kind](seats))


def _agreement(seats: int, **rules: Any) -> dict[str, Any]:
    worth = [
        {
            "constant": 2 if seat % 2 else 15,
            "issues": {
                "price": {"per_unit": 1 if seat % 2 else -1},
                "start": {"June 1": seat, "June 15": 3},
            },
            "no_agreement": 0,
        }
        for seat in range(seats)
    ]
    return {"protocol": {"kind": "agreement", **rules}, "issues": ISSUES, "worth": worth}


def _ballot(seats: int, **rules: Any) -> dict[str, Any]:
    worth = [
        {"options": {name: (seat + rank) % 3 for rank, name in enumerate(OPTIONS)}, "no_decision": -1}
        for seat in range(seats)
    ]
    return {"protocol": {"kind": "ballot", "options": OPTIONS, **rules}, "worth": worth}


def _claims(seats: int, **rules: Any) -> dict[str, Any]:
    protocol = {"kind": "claims", "candidates": CANDIDATES, "answer": "Ben Ross", "needs": "all", "tries": 3}
    return {"protocol": {**protocol, **rules}, "worth": [{"right": 10, "wrong": -2, "none": 0}] * seats}


def _quorum(seats: int) -> dict[str, Any]:
    return _agreement(seats, needs={"quorum": max(2, seats - 1), "veto": ["agent_0"]})


def _fact_ballot(seats: int) -> dict[str, Any]:
    # Worth the same to everybody, whoever has which role, so that reading it tells nothing.
    worth = {"facts": {role(seat): {"wolf": {OPTIONS[seat % 3]: 1}} for seat in range(seats)}}
    protocol = {"kind": "ballot", "options": OPTIONS, "secret": True, "ties": "lot", "opens": 1}
    return {"protocol": protocol, "worth": [worth] * seats}


def role(seat: int) -> str:
    """The variable that is the role of a seat."""
    return f"role of seat {seat}"


def facts(seats: int, roles: Sequence[str] = (), hour: str = "two", code: str = "red", votes: bool = True) -> Facts:
    """The facts of a task: roles that were dealt, a fact, a secret, and a choice.

    Args:
        seats: at least 2.
        roles: of the seats; by default the wolf, the seer who knows the wolf, and sheep.
        hour: known to seat 0, which seat 1 is to learn.
        code: known to the last seat, and for nobody but seat 0, in private if there are others.
        votes: whether there is a ballot to choose in.
    """
    roles = roles or ["wolf", "seer", *["sheep"] * (seats - 2)]
    last = f"agent_{seats - 1}"
    secret = {"may_know": ["agent_0"], "channel": "private"} if seats > 2 else {}
    variables = [
        {
            "name": role(seat),
            "options": ["wolf", "seer", "sheep"],
            "kind": "role",
            "of": f"agent_{seat}",
            "value": value,
        }
        for seat, value in enumerate(roles)
    ]
    variables += [
        {
            "name": "hour",
            "options": ["one", "two", "three"],
            "value": hour,
            "known_by": ["agent_0"],
            "wanted_by": [last],
        },
        {"name": "code", "options": ["red", "green"], "value": code, "known_by": [last], "evidence": False, **secret},
        *([{"name": "vote of seat 1", "options": OPTIONS, "kind": "choice", "of": "agent_1"}] if votes else []),
    ]
    deal = {"variables": [role(seat) for seat in range(seats)], "values": list(roles), "informs": {"seer": ["wolf"]}}
    return Facts.model_validate({"variables": variables, "deals": [deal], "norms": ["honesty"]})


_SPECS = {
    "facts": _fact_ballot,
    "agreement": _agreement,
    "latest": lambda seats: _agreement(seats, standing="latest"),
    "quorum": _quorum,
    "ballot": _ballot,
    "secret ballot": lambda seats: _ballot(seats, secret=True),
    "claims": lambda seats: _claims(seats, shown=True),
    "hidden claims": _claims,
}


@functools.cache
def verified_task(kind: str, seats: int = 2, private: bool = False) -> Task:
    """A starter scenario's situation with ``seats`` seats and the outcome that ``kind`` names; ``""`` has none.

    Args:
        kind: one of :data:`KINDS`, ``discussion``, or empty.
        seats: at least 2.
        private: whether private actions are possible.
    """
    base = starter_tasks()[0].scenario
    spec = outcome_spec(kind, seats) if kind in _SPECS else None
    scenario = base.model_copy(
        update={
            "id": f"{kind or 'talk'}-{seats}",
            "seats": (base.seats[0],) * seats,
            "private_messages": private,
            "constraints": type(base.constraints)(),
            "outcome": spec,
            "facts": facts(seats, votes=kind == "facts") if kind in ("facts", "discussion") else None,
        }
    )
    pairs = itertools.combinations(range(seats), 2)
    names = itertools.chain(FIRST_NAMES, (f"Guest {number}" for number in itertools.count()))
    return Task(
        id=scenario.id,
        scenario=scenario,
        characters=tuple(character(name) for name in itertools.islice(names, seats)),
        relationships=tuple(Relationship(seats=pair, kind="friend") for pair in pairs),
    )


def say(text: str = "Hm.", *to: str, **move: Any) -> Action:
    """What an agent says, privately to ``to``, with a move: ``say("Deal.", accept=1)``."""
    moves = [Move(MoveKind(kind), content) for kind, content in move.items()]
    return Action(ActionType.SPEAK, text, to, moves[0] if moves else None)


def offer(price: int, start: str = "June 1") -> dict[str, Any]:
    """Terms of an agreement."""
    return {"price": price, "start": start}


def random_action(state: EpisodeState, rng: random.Random, exit_share: float = 0.02) -> Action:
    """What the acting agent may do now, mostly with a move that is open to it."""
    assert state.actor is not None
    chance = rng.random()
    if chance < exit_share:
        return Action(ActionType.LEAVE)
    if chance < 0.1:
        return Action(ActionType.NONE)
    menu = observe(state, state.actor).moves
    move = menu.sample(rng) if menu is not None and chance < 0.8 else None
    others = [agent for agent in state.active if agent != state.actor]
    to = ()
    if state.task.scenario.private_messages and rng.random() < 0.3:
        to = tuple(rng.sample(others, rng.randint(1, len(others))))
    return Action(rng.choice(list(ActionType)[1:4]), rng.choice(["", "Well.", "I accept.", "Take it or go."]), to, move)


def random_states(task: Task, rules: Rules, seed: int, **chances: float) -> Iterator[EpisodeState]:
    """The states of one episode of random play, the first and the last included."""
    rng, state = random.Random(f"random play {seed}"), initial_state(task, rules, seed)
    yield state
    while state.stop is None:
        state = transition(state, random_action(state, rng, **chances))
        yield state


def play(task: Task, rules: Rules | Mapping[str, Any], *actions: Action, seed: int = 0) -> EpisodeState:
    """The state after ``actions``, one for each turn."""
    state = initial_state(task, rules if isinstance(rules, Rules) else Rules(**rules), seed)
    for action in actions:
        state = transition(state, action)
    return state
