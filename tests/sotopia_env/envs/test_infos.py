"""Infos for tools that make one array of each: the same flags in every info."""

import itertools

import numpy as np
import pytest

from sotopia_env import sotopia_v0
from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from tests.sotopia_env.envs.env_doubles import FixedEvaluator, Partner, options, say

FLAGS = ["acting", "has_left", "violation", "unscored"]


def played(seats=2, **more):
    """The infos of every step, of the first to the last."""
    env = sotopia_v0.raw_env(infos="flags", **options(seats, **more))
    env.reset(seed=0)
    yield env.infos
    for text, to in itertools.cycle([("Hello.", ()), ("psst", ("agent_0",))]):
        env.step(say(text, *to))
        yield env.infos
        if env.episode_state.stop is not None:
            return


def test_flags_are_the_same_keys_from_the_first_info_to_the_last():
    infos = list(played(max_turns=5))
    assert len(infos) == 6
    for info in itertools.chain.from_iterable(step.values() for step in infos):
        assert list(info) == FLAGS
        assert {type(value) for value in info.values()} == {np.bool_}
    assert [info["agent_0"]["acting"] for info in infos] == [True, False, True, False, True, False]
    # Private actions are not possible here.
    assert [info["agent_1"]["violation"] for info in infos] == [False, False, True, True, True, True]
    assert not any(info["agent_0"]["unscored"] for info in infos)


@pytest.mark.parametrize("unscored", [False, True])
def test_a_zero_in_place_of_a_missing_reward_is_flagged(unscored):
    evaluator = FixedEvaluator(error="ill" if unscored else None)
    *earlier, last = played(max_turns=2, evaluator=evaluator, on_unscored="zero")
    assert [info["unscored"] for info in last.values()] == [unscored] * 2
    assert not any(info["unscored"] for step in earlier for info in step.values())


def test_the_parallel_and_the_single_agent_form_have_flags_too():
    parallel = sotopia_v0.parallel_env(infos="flags", **options(max_turns=2))
    single = SotopiaSingleAgentEnv(partner=Partner(), infos="flags", **options(max_turns=2))
    infos = [parallel.reset(seed=0)[1]["agent_1"], single.reset(seed=0)[1]]
    infos += [parallel.step({agent: say() for agent in parallel.agents})[-1]["agent_1"], single.step(say())[-1]]
    assert [list(info) for info in infos] == [FLAGS] * 4
    assert single.episode().stop is not None
