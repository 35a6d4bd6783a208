"""A seat as SkyRL's environment, made by SkyRL's own registry."""

from __future__ import annotations

import asyncio
import json

import pytest

from sotopia_env import naming
from sotopia_env.adapters import rows
from sotopia_env.foundation.errors import UnknownNameError
from tests.adapters import beliefs, failing
from tests.adapters.libraries import need

need("skyrl_gym")

import skyrl_gym

ENTRY = "sotopia_env.adapters.skyrl:SeatTextEnv"
if "sotopia" not in skyrl_gym.envs.registration.registry:
    skyrl_gym.register(id="sotopia", entry_point=ENTRY)


def play(rewards: str) -> tuple[list[float], dict]:
    row = next(rows(naming.task_set("bargaining", 1, 5, "medium"), "conceder", seed=5))
    extras = {**row, "reward_spec": {"method": "rule"}, "max_turns": 20}
    env = skyrl_gym.make("sotopia", env_config={"rewards": rewards}, extras=extras)
    messages, _ = env.init([{"role": "user", "content": "replaced"}])
    assert [message["role"] for message in messages] == ["system", "user"]
    paid, output = [], {"done": False}
    while not output["done"]:
        offers = env.seat.table.observe("agent_0").moves.accept if paid[8:] else ()
        move = {"move": {"accept": offers[-1]}} if offers else {}
        output = env.step(json.dumps({"action_type": "speak", "argument": "Well?", **move}))
        assert output["done"] or output["observations"][-1]["role"] == "user"
        paid.append(output["reward"])
    assert env.get_metrics()["failed_turns"] == 0
    return paid, output["metadata"]


def test_steps_pay_the_episode_at_its_end_or_each_turn_its_own():
    whole, facts = play("episode")
    turns, _ = play("turn")
    assert facts["stop"] == "settled"
    assert whole[-1] > 0
    assert whole[-1] == pytest.approx(facts["scores"]["goal"] / 10)
    assert not any(whole[:-1])
    assert sum(turns) == pytest.approx(whole[-1])
    assert sum(value != 0 for value in turns) > 1


def test_an_unusable_answer_is_given_again_and_pays_nothing():
    env = skyrl_gym.make("sotopia", extras=next(rows(naming.task_set("bargaining", 1, 0, "easy"))))
    env.init([])
    output = env.step("no action")
    assert (output["reward"], output["done"]) == (0.0, False)
    assert output["observations"][0]["role"] == "user"


@pytest.mark.parametrize("rewards", ["episode", "turn"])
def test_a_failing_partner_is_survived_or_raised_and_a_step_can_be_repeated(rewards):
    def play(partner: str):
        row = next(rows(naming.task_set("bargaining", 1, failing.SEED, "medium"), partner, seed=failing.SEED))
        env = skyrl_gym.make("sotopia", env_config={"rewards": rewards}, extras=row)
        env.init([])
        paid = 0.0
        while not env.seat.done:
            text = failing.answer(env.seat.info["own_turns"], env.seat.table.observe("agent_0").moves.accept)
            output = failing.persistently(lambda env=env, text=text: env.step(text))
            if output is None:
                return None, None
            paid += output["reward"]
        return failing.turns_of(env.seat.episode()), round(paid, 9)

    failing.check_failing_partners(play, repeats=True)


@pytest.mark.parametrize(
    ("config", "column"), [({"reward": "turn"}, {}), ({"rewards": "turns"}, {}), ({}, {"partnr": "conceder"})]
)
def test_misspelt_settings_are_refused(config, column):
    row = next(rows(naming.task_set("bargaining", 1, 0, "easy")))
    if column:
        del row["partner"]
    with pytest.raises(UnknownNameError):
        skyrl_gym.make("sotopia", env_config=config, extras={**row, **column, "data_source": "sotopia"})


def test_steps_pay_for_what_the_others_believe():
    env = skyrl_gym.make("sotopia", env_config={"rewards": "turn"}, extras=dict(beliefs.row()))
    env.init([])
    paid, output = [], {"done": False}
    while not output["done"]:
        output = env.step(beliefs.statement(len(paid)))
        paid.append(output["reward"])
    assert paid == pytest.approx(asyncio.run(beliefs.expected()))
