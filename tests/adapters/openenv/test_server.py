"""The server and its client over real sockets."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.libraries import need, run_page, serving

need("openenv")

import httpx
from openenv import GenericEnvClient

from sotopia_env.adapters import openenv_server
from sotopia_env.adapters.openenv_types import SotopiaAction, SotopiaClient
from sotopia_env.adapters.seat import TextSeat
from sotopia_env.foundation.json_text import decode_json
from tests.adapters import beliefs
from tests.test_docs import ROOT

EXAMPLE = ROOT / "examples" / "openenv"


@pytest.fixture(scope="module")
def address():
    with serving("-m", "uvicorn", "server.app:app", "--log-level", "warning", "--port", cwd=EXAMPLE) as address:
        yield address


def fields(messages, count):
    """A seat that listens for two turns, then accepts the latest offer."""
    offers = re.findall(r'\{"accept": \d+\}', messages[-1]["content"])
    return {
        "action_type": "speak",
        "argument": "Agreed." if offers and count > 1 else "What do you offer?",
        "move": decode_json(offers[-1]) if offers and count > 1 else None,
    }


async def in_process(seed):
    """The reward and the rewards of turns of the same episode without a server."""
    seat = TextSeat.against("bargaining", "conceder", seed=seed)
    messages, count = await seat.begin(), 0
    while not seat.done:
        messages, _ = await seat.say(fields(messages, count))
        count += 1
    return seat.reward, list(seat.turn_rewards)


async def remote(address, seed):
    async with SotopiaClient(base_url=address) as client:
        result, rewards = await client.reset(tasks="bargaining", seed=seed, partner="conceder"), []
        while not result.done:
            assert result.reward == 0.0
            result = await client.step(SotopiaAction(**fields(result.observation.messages, len(rewards))))
            rewards.append(result.observation.turn_reward)
        assert set(result.observation.scores) == {"goal", "financial_and_material_benefits"}
        assert result.observation.metadata["stop"] == "settled"
        return result.reward, rewards


def test_64_sessions_at_once_play_the_episodes_that_one_seat_plays(address):
    async def both():
        served = await asyncio.gather(*(remote(address, seed) for seed in range(64)))
        return served, [await in_process(seed) for seed in range(64)]

    served, expected = asyncio.run(both())
    assert served == expected
    assert len({reward for reward, _ in served}) > 10


def test_a_session_beyond_the_limit_is_refused_and_a_closed_one_makes_place(address):
    async def fill():
        clients = [SotopiaClient(base_url=address) for _ in range(64)]
        await asyncio.gather(*(client.reset() for client in clients))
        with pytest.raises(Exception, match="CAPACITY_REACHED"):
            await SotopiaClient(base_url=address).reset()
        await asyncio.gather(*(client.close() for client in clients))
        async with asyncio.timeout(60):
            while True:
                try:
                    return await remote(address, 1)
                except Exception:  # noqa: BLE001 - the server notices closed connections a moment later
                    await asyncio.sleep(0.1)

    assert asyncio.run(fill()) == asyncio.run(in_process(1))


def test_a_text_is_read_and_one_that_is_no_action_is_answered_with_the_reason(address):
    async def play():
        async with SotopiaClient(base_url=address) as client:
            await client.reset(tasks="bargaining", seed=2)
            refused = await client.step(SotopiaAction(text="I say nothing in JSON"))
            taken = await client.step(SotopiaAction(text='{"action_type": "speak", "argument": "Well?"}'))
            state = await client.state()
        return refused, taken, state

    refused, taken, state = asyncio.run(play())
    assert (refused.observation.metadata["own_turns"], refused.observation.turn_reward) == (0, None)
    assert (taken.observation.metadata["own_turns"], taken.observation.turn_reward) == (1, 0.0)
    assert state.step_count == 2


def test_fields_of_a_models_json_are_taken_as_they_are_and_mistakes_stay_in_the_episode(address):
    async def play():
        async with GenericEnvClient(base_url=address) as client:
            await client.reset(tasks="bargaining")
            wrong = await client.step({"action_type": "shout", "argument": "!"})
            right = await client.step({"action_type": "speak", "argument": "Hello", "move": None, "to": []})
            return wrong, right

    wrong, right = asyncio.run(play())
    assert "shout" in wrong.observation["messages"][0]["content"]
    assert right.observation["metadata"]["own_turns"] == 1


def test_plain_http_keeps_an_episode_under_its_id(address):
    post = httpx.Client(base_url=address).post
    body = post("/reset", json={"episode_id": "e", "seed": 5, "partner": "conceder"}).json()
    rewards = []
    while not body["done"]:
        action = fields(body["observation"]["messages"], len(rewards))
        body = post("/step", json={"episode_id": "e", "action": action}).json()
        rewards.append(body["observation"]["turn_reward"])
    assert (body["reward"], rewards) == asyncio.run(in_process(5))
    for episode in ("e", "never begun"):
        assert post("/step", json={"episode_id": episode, "action": {"text": "x"}}).status_code == 422


def test_of_too_many_episodes_one_that_has_ended_is_dropped_first(monkeypatch):
    monkeypatch.setattr(openenv_server, "MOST_EPISODES", 2)
    app = openenv_server.make_app()

    async def play():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://episodes") as client:

            async def post(path, episode, **form):
                return (await client.post(path, json={"episode_id": episode, **form})).status_code

            leave = {"action": {"action_type": "leave"}, "request_id": "0"}
            for episode in ("left", "ended"):
                await post("/reset", episode)
            assert [await post("/step", "ended", **leave) for _ in range(2)] == [200, 200]
            await post("/reset", "new")
            assert await post("/step", "ended", **leave) == 422
            await post("/reset", "newer")
            return [await post("/step", episode, **leave) for episode in ("left", "new", "newer")]

    assert asyncio.run(play()) == [422, 200, 200]


@pytest.mark.parametrize("body", [{"tasks": "/etc/passwd"}, {"partner": "openai/gpt-4o"}, {"focal": 7}])
def test_a_client_chooses_only_what_the_server_offers(address, body):
    answer = httpx.post(f"{address}/reset", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(next(iter(body)))


def test_openenvs_validator_accepts_the_example():
    command = [Path(sys.executable).parent / "openenv", "validate", EXAMPLE, "--level", "static"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_blocks_of_the_page_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page("openenv")


def test_observations_have_the_change_of_what_the_partners_believe(address):
    async def remote() -> list[float]:
        async with SotopiaClient(base_url=address) as client:
            options = {"tasks": "mini_mafia", "seed": 0, "partner": "bayesian"}
            result, rewards = await client.reset(**options, focal=beliefs.DETECTIVE, turn_rewards="belief"), []
            while not result.done:
                result = await client.step(SotopiaAction(text=beliefs.statement(len(rewards))))
                rewards.append(result.observation.turn_reward)
            return rewards

    first, second, third = asyncio.run(remote())
    assert second > 0 == first == third
