"""Seats, TRL's tools and the environments with partners that fail: the table of :mod:`tests.adapters.failing`."""

from __future__ import annotations

import asyncio
import json
import pickle

import gymnasium
import numpy as np
import pytest

from sotopia_env import naming
from sotopia_env.adapters import TextSeat
from sotopia_env.adapters.seat_reward import SeatReward
from sotopia_env.adapters.trl_tools import SeatTools
from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from sotopia_env.envs.moves import FIRST_OFFER
from sotopia_env.envs.pettingzoo_env import SotopiaEnv
from sotopia_env.foundation.errors import EvaluationError, InvalidActionError, ModelRefusedError, PolicyError
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world import Dimension
from tests.adapters import failing


@pytest.mark.parametrize("again", ["the same answer", "an empty answer", "a copy"])
def test_a_seat_with_a_failing_partner_goes_on_or_has_no_reward(again):
    def play(partner: str):
        seat = TextSeat.against("bargaining", partner, seed=failing.SEED)
        asyncio.run(seat.begin())
        while not seat.done:
            offers = seat.table.observe("agent_0").moves.accept
            text = failing.answer(seat.info["own_turns"], offers)
            try:
                news = asyncio.run(seat.say(text))
            except PolicyError:
                with pytest.raises(InvalidActionError, match="a partner failed: PolicyError: the model is down"):
                    asyncio.run(seat.say("another answer"))
                if again == "a copy":
                    partners = seat.seats.partners
                    seat = pickle.loads(pickle.dumps(seat))
                    seat.seats.partners = partners  # one that fails for good still does
                repeated = "" if again == "an empty answer" else text
                news = failing.persistently(lambda seat=seat, repeated=repeated: asyncio.run(seat.say(repeated)))
            if news is None:
                asyncio.run(seat.end())
                assert seat.result == SeatReward(unscored="a partner failed: PolicyError: the model is down")
                assert (seat.reward, seat.vector, seat.scores) == (None, None, {})
                return None, None
        assert seat.info["failures"] == seat.seats.partners["agent_1"].failures
        return failing.turns_of(seat.episode()), seat.result.paid()

    failing.check_failing_partners(play, repeats=True)


def test_tools_of_trl_with_a_failing_partner_go_on_or_have_no_reward():
    def play(partner: str):
        tools = SeatTools()
        row = {"task": "bargaining", "partner": partner, "focal": 0, "seed": failing.SEED}
        tools.reset(**row)
        for turn in range(20):
            action = json.loads(failing.answer(turn, tools._seat.table.observe("agent_0").moves.accept))
            news = tools.speak(action["argument"], action.get("move"))
            if news == "The conversation is over.":
                break
        assert tools.speak("And now?") == news
        reward = tools.get_reward()
        return None if reward is None else failing.turns_of(tools._seat.episode()), reward

    failing.check_failing_partners(play, repeats=False)


@pytest.mark.parametrize("again", ["Well?", ""])
def test_a_failing_evaluator_is_asked_again_and_say_can_be_repeated(again):
    class Judge(FixedEvaluator):
        calls = 0

        async def evaluate(self, episode):
            type(self).calls += 1
            if self.calls <= 2:
                raise EvaluationError("busy")
            return await super().evaluate(episode)

    async def whole() -> None:
        judge = Judge({Dimension.GOAL: 8})
        seat = TextSeat.against("bargaining", "leaver", evaluator=judge, scalarisation="goal")
        await seat.begin()
        text = failing.answer(0)
        with pytest.raises(EvaluationError, match="busy"):
            await seat.say(text)
        assert seat.done
        assert seat.result.unscored == "the evaluator failed: EvaluationError: busy"
        with pytest.raises(EvaluationError, match="no reward: the evaluator failed"):
            seat.step_reward(by_turn=False)
        assert await seat.say(again and text) == ([], True)
        assert seat.step_reward(by_turn=False) == seat.result.paid() == 8
        assert (seat.info["turns"], seat.info["failures"]) == (2, 2)

    asyncio.run(whole())


def test_a_repeated_call_does_not_let_partners_act_twice():
    """A client that stops waiting and sends its request again, while the first one still runs."""

    async def play() -> TextSeat:
        seat = TextSeat.against("bargaining", failing.named(failing.Slow), seed=failing.SEED)
        await seat.begin()
        text = failing.answer(0)
        first = asyncio.ensure_future(seat.say(text))
        await asyncio.sleep(0.01)
        for repeated in (text, ""):
            with pytest.raises(InvalidActionError, match="still running"):
                await seat.say(repeated)
        await first
        return seat

    seat = asyncio.run(play())
    assert [item.turn.actor for item in seat.table.turns] == ["agent_0", "agent_1"]
    assert not seat.table.pending


def test_a_cancelled_call_can_be_repeated():
    async def play() -> TextSeat:
        seat = TextSeat.against("bargaining", failing.named(failing.Slow), seed=failing.SEED)
        await seat.begin()
        text = failing.answer(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(seat.say(text), 0.01)
        assert seat.result == SeatReward(unscored="a partner has not finished")
        await seat.say(text)
        return seat

    assert [item.turn.actor for item in asyncio.run(play()).table.turns] == ["agent_0", "agent_1"]


@pytest.mark.parametrize(
    "call", [(5, None), ("98?", ["price", 98]), (["Well?"], {"propose": 98}), (None, {"accept": "1"})]
)
def test_tools_take_whatever_a_models_call_holds(call):
    tools = SeatTools()
    tools.reset(task="bargaining", partner="conceder", focal=0, seed=0)
    news = tools.speak(*call)
    own = tools._seat.info["own_turns"]
    assert own or news.startswith("That is not an action: ")
    tools.speak("Hello.")
    assert tools._seat.info["own_turns"] == own + 1


class Refusing(failing.Partner):
    """A partner whose model refuses every request, which ends a run."""

    async def act(self, observation, seed):
        raise ModelRefusedError("the key is not accepted", kind="auth")


def test_tools_of_trl_raise_what_is_not_of_one_episode():
    tools = SeatTools()
    tools.reset(task="bargaining", partner=Refusing(), focal=0, seed=0)
    for call in (lambda: tools.speak("Well?"), tools.get_reward):  # TRL goes on after the first
        with pytest.raises(ModelRefusedError):
            call()


def test_tools_of_trl_have_no_reward_without_an_evaluation():
    tools = SeatTools()
    tools.reset(task="bargaining", partner="leaver")
    tools._seat = TextSeat.against("bargaining", "leaver", evaluator=FixedEvaluator(unscored="the judge is down"))
    asyncio.run(tools._seat.begin())
    assert tools.speak("Well?") == "The conversation is over."
    assert tools.get_reward() is None
    assert "the judge is down" in tools._seat.result.unscored


def test_gymnasium_with_a_failing_partner_raises_and_plays_the_same_after_a_reset():
    def play(partner: str):
        env = SotopiaSingleAgentEnv(task="bargaining", partner=partner)

        def episode():
            env.reset(seed=failing.SEED)
            terminated = truncated = False
            while not terminated and not truncated:
                observation = env.observation()
                text = failing.answer(observation.own_turns, observation.moves.accept)
                _, reward, terminated, truncated, _ = env.step(text)
                assert reward == 0 or terminated
            return failing.turns_of(env.episode()), reward

        return failing.persistently(episode) or (None, None)

    failing.check_failing_partners(play, repeats=True)


def test_vector_environments_with_a_failing_partner_raise_and_play_the_same_after_a_reset():
    def play(partner: str):
        envs = gymnasium.make_vec("sotopia_env/Sotopia-v0", num_envs=2, task="bargaining", partner=partner)

        def episodes():
            envs.reset(seed=[failing.SEED, failing.SEED])
            over = np.zeros(2, dtype=bool)
            while not over.any():
                observations = envs.call("observation")
                texts = [failing.answer(each.own_turns, each.moves.accept) for each in observations]
                _, rewards, terminated, truncated, _ = envs.step(texts)
                over = terminated | truncated
                assert over.all() or not rewards.any()
            return [failing.turns_of(episode) for episode in envs.call("episode")], float(rewards.sum())

        result = failing.persistently(episodes)
        if result is None:
            with pytest.raises(InvalidActionError):  # a failed episode is not stepped on, and pays nothing
                envs.step([failing.answer(0)] * 2)
        envs.close()
        return result or (None, None)

    failing.check_failing_partners(play, repeats=True)


@pytest.mark.parametrize("kind", [failing.Once, failing.ForGood])
def test_numbers_with_a_failing_partner_raise_and_play_the_same_after_a_reset(kind):
    def play(partner):
        env = gymnasium.make("sotopia_env/SotopiaMoves-v0", task="bargaining", partner=partner)

        def episode():
            env.reset(seed=failing.SEED)
            over = False
            while not over:
                own = env.unwrapped.game.observation().own_turns
                _, reward, over, _, info = env.step(FIRST_OFFER + min(own, 9))
            return failing.turns_of(env.unwrapped.episode()), reward, info["stop_reason"]

        return failing.persistently(episode)

    expected = None if kind is failing.ForGood else play(failing.Partner())
    assert play(kind()) == expected


def test_pettingzoo_with_a_failing_partner_raises_and_goes_on_when_play_is_called_again():
    def play(partner: str):
        env = SotopiaEnv(task="bargaining")
        env.reset(seed=failing.SEED)
        partners = {"agent_1": naming.make_policy(partner)}
        while env.table.stop is None:
            observation = env.observation("agent_0")
            if env.agent_selection == "agent_0":
                env.take(failing.answer(observation.own_turns, observation.moves.accept))
            if failing.persistently(lambda: [asyncio.run(env.play(partners))]) is None:
                assert not any(env.rewards.values())
                assert not any(env.terminations.values())
                return None, None
        return failing.turns_of(env.episode()), env.rewards["agent_0"]

    failing.check_failing_partners(play, repeats=True)


def test_an_evaluation_before_a_failure_is_not_a_reward_after_it():
    async def play() -> TextSeat:
        seat = TextSeat.against("bargaining", failing.named(failing.ForGood), 1, seed=failing.SEED)
        seat.seats.partners["agent_0"].calls = 2
        await seat.end()
        assert seat.reward == 0
        with pytest.raises(PolicyError):
            await seat.begin()
        return seat

    assert asyncio.run(play()).reward is None
