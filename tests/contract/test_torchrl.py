"""TorchRL's wrappers drive the environments through several episodes, as docs/environments.md says."""

import gymnasium
import pytest
import torch
from gymnasium.spaces import Discrete
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper
from torchrl.data import NonTensor
from torchrl.envs import GymEnv, GymWrapper, PettingZooWrapper, register_gym_spec_conversion
from torchrl.envs.utils import check_env_specs

from sotopia_env import sotopia_v0
from sotopia_env.envs.spaces import MoveSpace
from tests.sotopia_env.envs.env_doubles import options

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # it names another release of PettingZoo

STEPS = 40
FIXED = "sotopia_env.testing:FixedEvaluator"
ID = "sotopia_env/Sotopia-v0"
PHRASES = ({"action_type": "none"}, {"action_type": "speak", "argument": "Hello."}, {"action_type": "leave"})


class ParallelPhrases(BaseParallelWrapper):
    """The wrapper of TorchRL takes no texts as actions: its agents choose among phrases."""

    def action_space(self, agent):
        return Discrete(len(PHRASES))

    def step(self, actions):
        return super().step({agent: PHRASES[int(index)] for agent, index in actions.items()})


class Phrases(BaseWrapper):
    def action_space(self, agent):
        return Discrete(len(PHRASES))

    def step(self, action):
        super().step(None if action is None else PHRASES[int(action)])


@register_gym_spec_conversion(MoveSpace)
def no_move(spec, device=None, **_):
    """TorchRL's example of a text, which its random policy plays, is not a move."""
    return NonTensor((), device=device, example_data="")


def played(env):
    """A checked rollout of 40 steps over several episodes."""
    torch.manual_seed(0)
    check_env_specs(env)
    rollout = env.rollout(STEPS, break_when_any_done=False)
    assert rollout.batch_size == (STEPS,)
    assert rollout["next", "done"].sum() >= 2
    return rollout


@pytest.mark.parametrize("order", ["simultaneous", "random", "reactive"])
@pytest.mark.parametrize("seats", [2, 3])
def test_pettingzoo_parallel(seats, order):
    env = sotopia_v0.parallel_env(infos="flags", **options(seats, turn_order=order, max_turns=6))
    rollout = played(PettingZooWrapper(ParallelPhrases(env), return_state=True))
    rewards, done = rollout["next", "agent", "reward"], rollout["next", "agent", "done"]
    assert rewards.shape == (STEPS, seats, 1)
    assert (rewards[done][::seats] - 24 / 7).abs().max() < 1e-6
    assert not rewards[~done].any()
    assert rollout["next", "agent", "info", "has_left"].any()
    assert not rollout["next", "agent", "info", "unscored"].any()


def test_pettingzoo_one_agent_at_a_time():
    env = sotopia_v0.env(infos="flags", **options(max_turns=6))
    rollout = played(PettingZooWrapper(Phrases(env), use_mask=True))
    for number in (0, 1):
        acting = rollout[f"agent_{number}", "info", "acting"].bool()
        assert torch.equal(acting, rollout[f"agent_{number}", "mask"])
        assert 0 < acting.sum() < STEPS


@pytest.mark.parametrize("infos", ["full", "flags"])
@pytest.mark.parametrize("task", ["starter", "bargaining"])
def test_gymnasium_with_texts(task, infos):
    env = GymWrapper(gymnasium.make(ID, task=task, seats=2, infos=infos, max_turns=8, evaluator=FIXED))
    rollout = played(env)
    assert all(isinstance(text, str) and text.startswith("Situation: ") for text in rollout["next", "text"])
    assert any('"a string"' in text for text in rollout["next", "history"])
    assert all(bool(text) == (task == "bargaining") for text in rollout["next", "table"])


def test_gymnasium_with_flags_as_entries_of_the_rollout():
    env = GymWrapper(gymnasium.make(ID, infos="flags", partner="silent", **options(max_turns=8)))
    rollout = played(env.auto_register_info_dict())
    assert torch.equal(rollout["next", "acting"].bool(), ~rollout["next", "done"].any(-1))


def test_gymnasium_by_id():
    """TorchRL passes ``frameskip`` first, and leaves it out when it reads that there is no such keyword."""
    assert played(GymEnv(ID, max_turns=8, evaluator=FIXED))["next", "reward"].any()
