"""A seat as tinker-cookbook's environment of messages."""

from __future__ import annotations

import asyncio
import json

import pytest

from sotopia_env.adapters import Seat
from tests.adapters.libraries import need

need("tinker_cookbook")

from sotopia_env.adapters.tinker import SeatMessageEnv


@pytest.mark.parametrize("by_turn", [False, True])
def test_steps_pay_the_episode_at_its_end_or_each_turn_its_own(by_turn):
    async def play() -> tuple[list[float], Seat]:
        seat = Seat.against("bargaining", "conceder", seed=5)
        env = SeatMessageEnv(seat, by_turn=by_turn)
        messages = await env.initial_observation()
        paid: list[float] = []
        while not seat.done:
            offers = seat.table.observe("agent_0").moves.accept if paid[8:] else ()
            move = {"move": {"accept": offers[-1]}} if offers else {}
            text = json.dumps({"action_type": "speak", "argument": "Well?", **move})
            result = await env.step({"role": "assistant", "content": text})
            assert result.next_messages[: len(messages)] == messages
            assert result.episode_done == seat.done
            messages = result.next_messages
            paid.append(result.reward)
        assert result.metrics["goal"] == pytest.approx(10 * seat.reward)
        return paid, seat

    paid, seat = asyncio.run(play())
    assert sum(paid) == pytest.approx(seat.reward)
    assert any(paid[:-1]) == by_turn
