"""The server with partners that fail, misspelt arguments, and models' JSON that is not an action."""

import asyncio
import json
from contextlib import suppress

import pytest

from tests.adapters.libraries import need, serving

need("openenv")

import httpx
import yaml
from openenv import GenericEnvClient

from sotopia_env.adapters.openenv_server import SCALARISATIONS
from sotopia_env.adapters.openenv_types import SotopiaAction, SotopiaClient
from tests.adapters import failing
from tests.test_docs import PAGES, ROOT, blocks

EXAMPLE = ROOT / "examples" / "openenv"


@pytest.fixture(scope="module")
def address():
    app = ("-m", "uvicorn", "tests.adapters.openenv.failing_app:app", "--log-level", "critical", "--port")
    with serving(*app) as address:
        yield address


def test_a_failing_partner_is_survived_or_answered_with_an_error_and_no_reward(address):
    async def session(partner):
        async with SotopiaClient(base_url=address) as client:
            result = await client.reset(seed=failing.SEED, partner=partner)
            messages = result.observation.messages
            while not result.done:
                text = failing.answer_to(messages)
                result = await persistently(client, SotopiaAction(text=text))
                if result is None:
                    return None, None
                assert result.done or result.reward == 0
                messages = [*messages, {"role": "assistant", "content": text}, *result.observation.messages]
        return messages, result.reward

    async def persistently(client, action):
        for _ in range(3):
            with suppress(RuntimeError):  # OpenEnv's client has no other for an error of the server
                return await client.step(action)
        with pytest.raises(RuntimeError, match="the model is down"):
            await client.step(action)
        return None

    failing.check_failing_partners(lambda partner: asyncio.run(session(partner)), repeats=True)


def test_over_plain_http_a_failing_partner_is_a_503_and_the_step_can_be_sent_again(address):
    def play(partner):
        post = httpx.Client(base_url=address).post
        body = post("/reset", json={"episode_id": partner, "seed": failing.SEED, "partner": partner}).json()
        messages = body["observation"]["messages"]
        while not body["done"]:
            action = {"text": failing.answer_to(messages)}
            for _ in range(3):
                answer = post("/step", json={"episode_id": partner, "action": action})
                if answer.status_code == 200:
                    break
                assert (answer.status_code, answer.json()["detail"]) == (503, "the model is down")
            else:
                other = post("/step", json={"episode_id": partner, "action": {"text": "Something else."}})
                assert other.status_code == 422
                return None, None
            body = answer.json()
            messages = [*messages, {"role": "assistant", "content": action["text"]}, *body["observation"]["messages"]]
        return messages, body["reward"]

    failing.check_failing_partners(play, repeats=True)


def test_the_pages_seat_for_trl_offers_tools_and_has_no_reward_after_a_failure(address):
    (code,) = [
        block.code for block in blocks(PAGES["adapters/openenv.md"], "python") if "class RemoteSeat" in block.code
    ]
    names = {}
    exec(code.split("\nseat = ")[0].replace("http://localhost:8077", address), names)
    seat = names["RemoteSeat"]()

    def play(partner):
        opening = seat.reset(seed=failing.SEED, partner=partner, prompt="unused")
        assert "JSON" not in opening
        messages, own = [{"role": "user", "content": opening}], 0
        while own < 20 and messages[-1]["content"] != "The conversation is over.":
            action = json.loads(failing.answer_to(messages))
            messages += [{"role": "assistant", "content": action["argument"]}]
            messages += [{"role": "tool", "content": seat.speak(action["argument"], action.get("move"))}]
            own += 1
        reward = seat.get_reward()
        return None if reward is None else messages, reward

    failing.check_failing_partners(play, repeats=False)
    seat.reset(seed=failing.SEED)
    assert seat.get_reward() == 0, "the model stopped at once, and nothing was agreed"
    seat.client.close()


@pytest.mark.parametrize(("finish_reason", "turns"), [("length", 0), ("stop", 2), (None, 2)])
def test_nothing_is_taken_from_a_draft_in_a_text_that_was_cut_off(address, finish_reason, turns):
    async def session():
        async with SotopiaClient(base_url=address) as client:
            await client.reset(seed=failing.SEED)
            text = 'I could say {"action_type": "speak", "argument": "Well?"}'
            return (await client.step(SotopiaAction(text=text, finish_reason=finish_reason))).observation

    observation = asyncio.run(session())
    assert observation.metadata["turns"] == turns
    assert ("max_tokens" in observation.messages[0]["content"]) == (not turns)


def test_a_time_limit_of_a_step_is_kept_and_the_step_can_be_sent_again(address):
    post = httpx.Client(base_url=address).post
    post("/reset", json={"episode_id": "slow", "seed": failing.SEED, "partner": failing.named(failing.Slow)})
    step = {"episode_id": "slow", "action": {"text": failing.answer(0)}}
    late = post("/step", json={**step, "timeout_s": 0.05})
    assert late.status_code == 503
    assert "0.05 s" in late.json()["detail"]
    assert post("/step", json=step).json()["observation"]["metadata"]["turns"] == 2


class LossyClient:
    """Repeats a step with the same id when its answer does not arrive, as the first one of every step does not."""

    def __init__(self, address, episode):
        self.post, self.episode, self.steps = httpx.Client(base_url=address).post, episode, 0

    def step(self, action, **options):
        self.steps += 1
        form = {"episode_id": self.episode, "request_id": f"step {self.steps}", "action": action}
        with suppress(httpx.ReadTimeout):
            self.post("/step", json=form, **options)
        return self.post("/step", json=form)


def test_over_plain_http_a_step_whose_answer_was_lost_is_answered_again_and_not_played_twice(address):
    start = {"episode_id": "lost", "seed": failing.SEED, "partner": "conceder"}

    def play(step):
        body = httpx.post(f"{address}/reset", json=start).json()
        messages = body["observation"]["messages"]
        while not body["done"]:
            action = {"text": failing.answer_to(messages)}
            body = step(action).json()
            messages = [*messages, {"role": "assistant", "content": action["text"]}, *body["observation"]["messages"]]
        return messages, body

    def once(action):
        return httpx.post(f"{address}/step", json={"episode_id": "lost", "action": action})

    messages, end = play(once)
    assert end["reward"] > 0
    client = LossyClient(address, "lost")
    assert play(client.step) == (messages, end)
    assert client.steps == sum(message["role"] == "assistant" for message in messages)


def test_a_step_that_is_repeated_while_the_first_is_played_waits_for_it(address):
    httpx.post(f"{address}/reset", json={"episode_id": "waits", "partner": failing.named(failing.Slow)})
    client = LossyClient(address, "waits")
    answer = client.step({"text": failing.answer(0)}, timeout=0.1)
    assert answer.status_code == 200
    assert answer.json()["observation"]["metadata"]["turns"] == 2


def test_the_id_of_a_step_is_not_that_of_another_action_and_a_new_episode_begins_without_answers(address):
    post = httpx.Client(base_url=address).post
    reset = {"episode_id": "again", "seed": failing.SEED}
    step = {"episode_id": "again", "request_id": "0", "action": {"text": failing.answer(0)}}
    post("/reset", json=reset)
    first = post("/step", json=step).json()
    other = post("/step", json={**step, "action": {"text": "Something else."}})
    assert other.status_code == 422
    assert "request_id" in other.json()["detail"]
    assert post("/step", json={**step, "request_id": "1"}).json()["observation"]["metadata"]["turns"] == 4
    assert post("/step", json=step).json() == first
    post("/reset", json=reset)
    assert post("/step", json={**step, "action": {"action_type": "leave"}}).json()["done"]


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [("sead", 3, "seed"), ("patner", "boulware", "partner"), ("turns", 4, "max_turns"), ("seed", -1, None)],
)
def test_misspelt_and_wrong_arguments_of_reset_are_named(address, name, value, nearest):
    async def reset():
        async with GenericEnvClient(base_url=address) as client:
            await client.reset(**{name: value})

    with pytest.raises(RuntimeError, match=f'"{name}"' if nearest else name) as caught:
        asyncio.run(reset())
    answer = httpx.post(f"{address}/reset", json={name: value})
    assert answer.status_code == 422
    assert nearest is None or nearest in str(caught.value)
    assert nearest is None or nearest in answer.json()["detail"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"thought": "I'd rather wait.", "action_type": "shout", "argument": "!"},
        {"action_type": ["speak"], "argument": "!"},
        {"action_type": "speak", "argument": 98, "move": [1]},
        {"action_type": "speak", "argument": ["98"]},
        {"action_type": "speak", "argument": "!", "to": 5},
        {"action_type": "speak", "argument": "98?", "move": 98},
        {"text": ["not", "a", "text"]},
        {"name": "propose"},
        {"metadata": "mine", "answer": {"argument": "!"}},
    ],
)
def test_whatever_a_models_json_has_is_answered_within_the_episode(address, wrong):
    async def play():
        async with GenericEnvClient(base_url=address) as client:
            await client.reset()
            return await client.step(wrong), await client.step({"action_type": "speak", "argument": "Hello"})

    first, second = asyncio.run(play())
    (message,) = first.observation["messages"]
    own = first.observation["metadata"]["own_turns"]
    assert own in (0, 1)
    assert own or message["content"].startswith("That is not an action: ")
    assert second.observation["metadata"]["own_turns"] == own + 1


def test_a_text_is_read_as_the_same_json_in_fields(address):
    async def play(form):
        async with GenericEnvClient(base_url=address) as client:
            await client.reset(seed=2)
            return (await client.step(form)).observation

    for fields in ({"action_type": "speak", "argument": "Hm", "why": "x"}, {"argument": 5}, {"action_type": "leave"}):
        assert asyncio.run(play(fields)) == asyncio.run(play({"text": json.dumps(fields)}))


def test_the_first_observation_has_the_briefing_without_the_form_of_an_answer(address):
    async def play():
        async with SotopiaClient(base_url=address) as client:
            first = (await client.reset(seed=2)).observation
            second = (await client.step(SotopiaAction(action_type="speak", argument="Hello."))).observation
            return first, second

    first, second = asyncio.run(play())
    assert first.briefing
    assert first.briefing in first.messages[0]["content"]
    assert "JSON" in first.messages[0]["content"]
    assert "JSON" not in first.briefing
    assert second.briefing == ""


def test_the_example_pays_the_rewards_that_its_file_promises():
    low, high = yaml.safe_load((EXAMPLE / "openenv.yaml").read_text(encoding="utf-8"))["validation"]["reward"]["range"]
    with serving("-m", "uvicorn", "server.app:app", "--log-level", "warning", "--port", cwd=EXAMPLE) as address:

        async def play(seed, listens):
            """Accepts at once whatever it can, also what is worse than no deal; or listens first."""
            async with SotopiaClient(base_url=address) as client:
                result = await client.reset(seed=seed, partner="conceder", focal=seed % 2)
                turn = 0 if listens else failing.LISTENS
                while not result.done:
                    text = result.observation.messages[-1]["content"]
                    offers = [int(part.split("}")[0]) for part in text.split('{"accept": ')[1:]]
                    result = await client.step(SotopiaAction(text=failing.answer(turn, tuple(offers))))
                    turn += 1
                return result.reward

        rewards = [asyncio.run(play(seed, listens)) for seed in range(6) for listens in (True, False)]
        refused = {
            name: httpx.post(f"{address}/reset", json={"scalarisation": name}).status_code for name in SCALARISATIONS
        }
    assert all(low <= reward <= high for reward in rewards)
    assert len(set(rewards)) > 2
    assert set(refused.values()) == {422}, "share and single dimensions have other ranges"
