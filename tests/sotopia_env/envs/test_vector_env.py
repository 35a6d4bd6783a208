"""Many single-agent environments in one, whose partners are awaited together."""

import asyncio
import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from sotopia_env.envs.vector_env import SotopiaVectorEnv
from sotopia_env.foundation.errors import (
    EvaluationError,
    InvalidActionError,
    InvalidValueError,
    PolicyError,
    UnknownKeywordError,
)
from tests.errors import raises
from tests.sotopia_env.envs.env_doubles import Crowd, FixedEvaluator, Partner, options

MODES = tuple(AutoresetMode)


def vector(num_envs=3, **more):
    return SotopiaVectorEnv(num_envs, **{"partner": Partner(), **options(max_turns=4, first_seat=1), **more})


def speak(num_envs, text="Hello."):
    """The same words from every focal agent, in the form that the batched action space has."""
    return {
        "action_type": np.ones(num_envs, np.int64),
        "argument": (text,) * num_envs,
        "to": np.zeros((num_envs, 2), np.int8),
        "move": ("",) * num_envs,
    }


def test_all_partners_are_awaited_at_once():
    crowd = Crowd(wait=0.05)
    envs = gymnasium.make_vec(
        "sotopia_env/Sotopia-v0",
        num_envs=16,
        vectorization_mode="vector_entry_point",
        partner=crowd,
        **options(max_turns=4, first_seat=1),
    )
    peaks = []
    envs.reset(seed=0)
    for _ in range(4):  # two steps, of which the second ends on the focal agents' turn, a reset, a step
        peaks.append(crowd.peak)
        crowd.peak = 0
        envs.step(speak(16))
    assert peaks == [16, 16, 0, 16]
    assert crowd.calls == 16 * 4
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_it_plays_as_gymnasium_s_own(mode):
    """Step for step, over several episodes of different length, the same as a vector that waits for one at a time."""
    more = {"partner": "random", **options(max_turns=6, first_seat=1)}
    ours = SotopiaVectorEnv(4, autoreset_mode=mode, **more)
    theirs = SyncVectorEnv([functools.partial(SotopiaSingleAgentEnv, **more)] * 4, autoreset_mode=mode)
    assert ours.observation_space == theirs.observation_space
    assert ours.metadata == theirs.metadata
    assert data_equivalence(ours.reset(seed=3), theirs.reset(seed=3))
    ours.action_space.seed(5)
    endings = np.zeros(4, int)
    for _ in range(30):
        actions = ours.action_space.sample()
        results = ours.step(actions)
        assert data_equivalence(results, theirs.step(actions))
        over = results[2] | results[3]
        endings += over
        if mode is AutoresetMode.DISABLED and over.any():
            resets = [envs.reset(options={"reset_mask": over.copy()}) for envs in (ours, theirs)]
            assert data_equivalence(*resets)
    assert endings.min() >= 3
    assert len(set(endings)) > 1


@pytest.mark.parametrize("seed", [None, 7, [4, None, 2]])
def test_seeds_and_options_reach_every_environment(seed):
    envs = vector()
    envs.reset(seed=seed, options={"focal_seat": 1})
    assert envs.get_attr("focal") == ("agent_1",) * 3
    seeds = [envs.envs[number].episode().seed for number in range(3)]
    assert len(set(seeds)) == 3
    envs.reset(seed=seed)
    assert envs.get_attr("focal") == ("agent_0",) * 3
    repeated = [env.episode().seed == before for env, before in zip(envs.envs, seeds, strict=True)]
    assert repeated == [seed is not None, seed is not None and seed != [4, None, 2], seed is not None]


def test_a_mask_resets_some_and_leaves_the_callers_options_alone():
    envs = vector()
    envs.reset(seed=0)
    envs.step(speak(3))
    mask = {"reset_mask": np.array([False, True, False])}
    observations, _ = envs.reset(seed=1, options=mask)
    assert observations["turn"].tolist() == [4, 2, 4]
    assert list(mask) == ["reset_mask"]


WRONG_RESETS = [
    ({"seed": [1, 2]}, {"field": "seed"}),
    ({"seed": -1}, {"field": "seed"}),
    ({"options": {"reset_mask": [True] * 3}}, {"field": "options['reset_mask']"}),
    ({"options": {"reset_mask": np.ones(2, bool)}}, {"field": "options['reset_mask']"}),
    ({"options": {"reset_mask": np.ones(3)}}, {"field": "options['reset_mask']"}),
    ({"options": {"reset_mask": np.zeros(3, bool)}}, {"field": "options['reset_mask']"}),
    ({"options": {"tsak": 1}}, {"field": "options", "nearest": "task"}),
    ({"options": "task"}, {"field": "options"}),
]


@pytest.mark.parametrize(("wrong", "fields"), WRONG_RESETS)
def test_wrong_resets_are_answered_in_one_sentence_and_change_nothing(wrong, fields):
    envs = vector()
    envs.reset(seed=0)
    before = envs.call("episode")
    with raises(InvalidValueError, **fields):
        envs.reset(**wrong)
    assert envs.call("episode") == before


@pytest.mark.parametrize("num_envs", [0, -1, True, 2.0, "2"])
def test_a_number_of_environments_is_one_of_at_least_one(num_envs):
    with raises(InvalidValueError, field="num_envs"):
        vector(num_envs)


def test_wrong_arguments_are_answered_in_one_sentence():
    with pytest.raises(UnknownKeywordError):
        vector(partnr="silent")
    with raises(InvalidValueError, field="autoreset_mode", got="Never"):
        vector(autoreset_mode="Never")


def test_tasks_evaluator_and_partner_are_made_once():
    envs = vector(8, partner="boulware", task="bargaining", evaluator="verified", first_seat=0)
    inner = [env.unwrapped._aec.options for env in envs.envs]
    assert len({id(options.tasks) for options in inner}) == len({id(options.evaluator) for options in inner}) == 1
    envs.reset(seed=0)
    assert len({episode.seed for episode in envs.call("episode")}) == 8


def test_a_failing_partner_is_an_error_and_the_next_reset_mends_it():
    envs = vector(partner=Crowd(wait=0, fails_at=5))
    envs.reset(seed=0)
    with pytest.raises(PolicyError, match="the model is down"):
        envs.step(speak(3))
    with pytest.raises(InvalidActionError):
        envs.step(speak(3))
    observations, _ = envs.reset(seed=0)
    assert observations["turn"].tolist() == [2, 2, 2]
    _, rewards, _, truncated, _ = (envs.step(speak(3)), envs.step(speak(3)))[1]
    assert truncated.all()
    assert rewards.tolist() == pytest.approx([24 / 7] * 3)


def test_a_failing_evaluator_is_an_error():
    envs = vector(evaluator=FixedEvaluator(error="ill"))
    envs.reset(seed=0)
    envs.step(speak(3))
    with pytest.raises(EvaluationError, match="ill"):
        envs.step(speak(3))


def test_inside_a_running_loop_the_answer_is_the_same():
    def played():
        crowd = Crowd()
        envs = vector(partner=crowd)
        steps = [envs.reset(seed=0), envs.step(speak(3)), envs.step(speak(3))]
        envs.close()
        return steps, crowd.peak

    async def notebook():
        return played()

    (inside, peak), (outside, _) = asyncio.run(notebook()), played()
    assert peak == 3
    assert data_equivalence(inside, outside)


def test_the_default_of_make_vec_is_the_vector_of_ours():
    envs = gymnasium.make_vec("sotopia_env/Sotopia-v0", num_envs=2, task="bargaining")
    assert isinstance(envs, SotopiaVectorEnv)
    assert envs.spec.kwargs["num_envs"] == 2
    envs.close()
