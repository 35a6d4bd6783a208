"""The spaces: what they contain and sample, and what Gymnasium's tools read of them."""

import functools
import pickle

import pytest
from gymnasium.spaces import Text, unflatten
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import FlattenObservation
from hypothesis import given
from hypothesis import strategies as st

from sotopia_env.envs.gymnasium_env import SotopiaSingleAgentEnv
from sotopia_env.envs.pettingzoo_env import SotopiaEnv
from sotopia_env.envs.spaces import MoveSpace, UtteranceSpace, action_space, observation_space, state_space
from sotopia_env.foundation.errors import InvalidActionError
from sotopia_env.world.action import MAX_ARGUMENT_LENGTH, Action, ActionType
from tests.sotopia_env.envs.env_doubles import Partner, options, say

TEXT_SPACES = {
    **{f"action {key}": action_space(2, lambda: None)[key] for key in ("argument", "move")},
    **{f"observation {key}": observation_space()[key] for key in ("text", "history", "table", "moves")},
    **{f"state {key}": state_space()[key] for key in ("task", "history", "table")},
}


@pytest.mark.parametrize("name", TEXT_SPACES)
def test_every_text_has_a_space_that_tools_know(name):
    space = TEXT_SPACES[name]
    assert isinstance(space, Text)
    assert (space.min_length, space.contains("")) == (0, True)
    assert MAX_ARGUMENT_LENGTH <= space.max_length <= 2**20
    assert pickle.loads(pickle.dumps(space)) == space != Text(space.max_length)
    assert not space.is_np_flattenable


def test_moves_and_utterances_are_different_spaces():
    assert MoveSpace() != UtteranceSpace() != MoveSpace()
    assert MoveSpace().contains('{"accept": 1}')
    assert not MoveSpace().contains("I accept.")


def test_an_episode_of_the_longest_utterances_is_in_the_spaces():
    env = SotopiaEnv(**options(2, max_turns=20))
    env.reset(seed=0)
    while env.episode_state.stop is None:
        env.step(say('"' * MAX_ARGUMENT_LENGTH))
    for agent in env.possible_agents:
        assert env.observation_space(agent).contains(env.observe(agent))
    assert env.state_space.contains(env.state())


def test_flattening_leaves_texts_as_they_are():
    env = FlattenObservation(SotopiaSingleAgentEnv(partner=Partner(), **options()))
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    original = unflatten(env.unwrapped.observation_space, observation)
    assert env.unwrapped.observation_space.contains(original)
    assert original["text"] == env.unwrapped.observation().text


def test_shared_memory_is_refused_with_the_mend():
    """A text of any length and alphabet has no place of a fixed size."""
    maker = functools.partial(SotopiaSingleAgentEnv, partner=Partner(), **options())
    with pytest.raises(ValueError, match="shared_memory=False"):
        AsyncVectorEnv([maker])


@given(st.text(max_size=40))
def test_the_utterance_space_contains_every_text_that_an_action_may_carry(text):
    try:
        Action(ActionType.SPEAK, text)
    except InvalidActionError:
        assert not UtteranceSpace().contains(text)
    else:
        assert UtteranceSpace().contains(text)


def test_the_utterance_space_is_bounded_seeded_and_comparable():
    space = UtteranceSpace(10, seed=3)
    samples = [space.sample() for _ in range(50)]
    space.seed(3)
    assert samples == [space.sample() for _ in range(50)]
    assert all(space.contains(sample) for sample in samples)
    assert len(set(samples)) > 20
    assert not space.contains("x" * 11)
    assert not space.contains(7)
    assert space == UtteranceSpace(10)
    assert space != UtteranceSpace(11)
