"""One game in which a seat tells what it knows, and is paid for what the others believe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sotopia_env.adapters import TextSeat, rows
from sotopia_env.tasks.families.registry import generate

GAME = generate("mini_mafia", 1, 0)[0]
EVALUATOR = "verified+facts:probe=turns,interviewee=(bayesian:doubt=0)"
DETECTIVE = next(
    number
    for number, seat in enumerate(GAME.scenario.seats)
    if seat.private_data["role"] == GAME.scenario.shared_data["roles"]["informed"]
)
ROLES = dict(GAME.scenario.facts.truth)


def row(turns: str = "belief") -> Mapping[str, Any]:
    """The row of the detective, among seats that state nothing."""
    return list(rows([GAME], "mute", evaluator=EVALUATOR, turns=turns))[DETECTIVE]


def statement(number: int) -> str:
    """The answer of the detective in its turn ``number``, from 0: it tells all in its second turn."""
    move = {"move": {"state": ROLES}} if number == 1 else {}
    return json.dumps({"action_type": "speak", "argument": "Well.", **move})


async def expected() -> list[float]:
    """The rewards of its turns after the end."""
    seat = TextSeat.of(row())
    await seat.begin()
    while not seat.done:
        await seat.say(statement(seat.info["own_turns"]))
    rewards = seat.turn_rewards
    assert rewards is not None
    assert rewards[1] > 0 == rewards[0] == rewards[2]
    return list(rewards)
