"""Counterfactual turn rewards in GRPO: a game whose values are known, states that are shared, what is refused."""

import itertools
from types import SimpleNamespace

import pytest
from sotopia_training.grpo import multi_turn
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.multi_turn import EpisodeRollout
from sotopia_training.grpo.settings import RewardSettings
from sotopia_training.grpo.situations import Situation, situations
from sotopia_training.grpo.token_episodes import TokenPlayer
from sotopia_training.grpo.turn_rewards import MeasuredTurns
from sotopia_training.models.tokenizers import answer_ids

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError, PolicyError
from sotopia_env.naming import make_evaluator
from sotopia_env.world.play.policy import Decision
from tests.errors import raises
from tests.sotopia_training.attribution.test_counterfactual import Coin
from tests.sotopia_training.conftest import BRIEF
from tests.sotopia_training.grpo.grpo_settings import SITUATIONS, multi_turn_settings
from tests.sotopia_training.played import haggling, offer

SELLER = "agent_1"
WAIT = '{"action_type": "speak", "argument": "Well..."}'
LEAVE = '{"action_type": "leave"}'
DEAL = '{"action_type": "speak", "argument": "Agreed.", "move": {"accept": 1}}'
"""The buyer offers 62 at once; assent is worth GOAL 4 to the seller, leaving 0."""


class Answers:
    """Returns its answers in turn and counts the prompts."""

    def __init__(self, tokenizer, *texts):
        self.prompts = []
        self._tokenizer, self._texts = tokenizer, itertools.cycle(texts)

    def __call__(self, prompts):
        self.prompts += prompts
        return [answer_ids(self._tokenizer, next(self._texts)) for _ in prompts], None


class Mute(Coin):
    """Offers once and fails after that."""

    async def act(self, observation, seed):
        if observation.turns:
            raise PolicyError("the model is gone")
        return await Coin.act(self, observation, seed)


class Cheap(Coin):
    """Offers 40 to a seller whose walk-away price is 50."""

    async def act(self, observation, seed):
        return Decision(offer(40))


@pytest.fixture
def player(tokenizer):
    return TokenPlayer(tokenizer, BRIEF, make_evaluator("verified"), "goal")


def selling(partner=None):
    return Situation(haggling(), SELLER, {next(a for a in haggling().agents if a != SELLER): partner or Coin()})


def test_rewards_are_those_of_the_closed_form(player, tokenizer):
    """A policy that assents and leaves by turns may expect 2: assent gains 2, leaving loses 2."""
    game = selling()
    episodes = player.play([game] * 4, Answers(tokenizer, DEAL, LEAVE))
    sample = Answers(tokenizer, DEAL, LEAVE)
    rewards, tokens = MeasuredTurns(player, 4, -1.0).rewards(episodes, sample)
    assert rewards == [{1: 2.0}, {1: -2.0}, {1: 2.0}, {1: -2.0}]
    assert len(sample.prompts) == 4  # the state that all four share was played from once
    assert tokens == sum(len(answer_ids(tokenizer, text)) for text in (DEAL, LEAVE, DEAL, LEAVE))


def test_each_turn_has_its_own_change(player, tokenizer):
    """To wait and then assent: before, the policy leaves in half of the games; after waiting, in three of four."""
    (episode,) = player.play([selling()], Answers(tokenizer, WAIT, DEAL))
    assert [turn.turn for turn in episode.focal] == [1, 3]
    state = episode.before(1)
    assert len(state.logprobs) == len(state.mask) == len(state.completion) == episode.focal[1].start
    sample = Answers(tokenizer, DEAL, DEAL, LEAVE, LEAVE, DEAL, LEAVE, LEAVE, LEAVE)
    rewards, _ = MeasuredTurns(player, 4, -1.0).rewards([episode], sample)
    assert rewards == [{1: 1.0 - 2.0, 3: 4.0 - 1.0}]
    prompts = [[*episode.prompt, *episode.completion[: turn.start]] for turn in episode.focal]
    assert sample.prompts == [prompts[0]] * 4 + [prompts[1]] * 4  # exactly what the episode was asked


def test_an_invalid_answer_gets_its_penalty_and_the_outcome(player, tokenizer):
    """In place of its reward the penalty would be a prize: a refused move that lost the game would beat a bad one."""
    (episode,) = player.play([selling()], Answers(tokenizer, "hm", DEAL))
    rewards, _ = MeasuredTurns(player, 2, -0.5).rewards([episode], Answers(tokenizer, DEAL, DEAL, LEAVE, LEAVE))
    assert rewards == [{1: -4.5, 3: 4.0}]


def test_a_losing_deal_is_worth_less_than_none_as_a_share(tokenizer):
    """In GOAL both are 0, so that assent to a loss would cost nothing."""
    player = TokenPlayer(tokenizer, BRIEF, make_evaluator("verified"), "share")
    game = selling(Cheap())
    episodes = player.play([game] * 2, Answers(tokenizer, DEAL, LEAVE))
    assert [episode.scores["GOAL"] for episode in episodes] == [0, 0]
    assert [episode.reward for episode in episodes] == pytest.approx([-10 / 30, 0])
    rewards, _ = MeasuredTurns(player, 2, -1.0).rewards(episodes, Answers(tokenizer, DEAL, LEAVE))
    assert [row[1] for row in rewards] == pytest.approx([-5 / 30, 5 / 30])


def test_an_episode_without_a_score_has_no_rewards(player, tokenizer):
    broken = player.play([selling(Mute())], Answers(tokenizer, WAIT))
    assert broken[0].failure
    sample = Answers(tokenizer, DEAL)
    assert MeasuredTurns(player, 2, -1.0).rewards(broken, sample) == ([{}], 0)
    assert not sample.prompts


def test_the_rollout_gives_rewards_to_the_tokens_of_turns(player, tokenizer, monkeypatch):
    monkeypatch.setattr(multi_turn, "trainer_sample", lambda trainer: Answers(tokenizer, DEAL, LEAVE))
    monkeypatch.setattr(multi_turn, "largest_count", lambda count, trainer: count)
    rollout = EpisodeRollout(player, [selling()], RewardSettings(turns="counterfactual", samples=2))
    output = rollout([[{"role": "user", "content": "", multi_turn.KEY: "0"}]] * 2, SimpleNamespace(use_vllm=False))
    lengths = [len(answer_ids(tokenizer, text)) for text in (DEAL, LEAVE)]
    assert output[multi_turn.TURN_REWARDS] == [[(0, lengths[0], 2.0)], [(0, lengths[1], -2.0)]]
    assert [facts["continuation_tokens"] for facts in output["facts"]] == [sum(lengths) / 2] * 2


# --- before a model is loaded ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scalarisation", "task", "got"),
    [("REL", None, "relationship"), ("goal", tasks.starter_tasks()[0], "which has no outcome")],
)
def test_rewards_that_cannot_be_verified_are_refused(player, scalarisation, task, got):
    situation_list = situations(SITUATIONS)
    situation_list += [Situation(task, SELLER, Coin())] if task is not None else []
    with raises(InvalidValueError, field="reward.turns") as caught:
        EpisodeRollout(player, situation_list, RewardSettings(scalarisation=scalarisation, turns="counterfactual"))
    assert caught.value.got.endswith(got)


def test_the_stage_refuses_counterfactuals_of_unverified_scores_before_loading(cloned, tmp_path, monkeypatch):
    monkeypatch.setattr(grpo, "load_for_training", lambda *_, **__: pytest.fail("a model was loaded"))
    reward = RewardSettings(scalarisation="REL", turns="counterfactual", evaluator="sotopia_env.testing:FixedEvaluator")
    with raises(InvalidValueError, field="reward.turns"):
        grpo.run(multi_turn_settings(start_from=str(cloned), output=str(tmp_path / "out"), reward=reward))


def test_a_stage_trains_on_measured_rewards(cloned, tmp_path):
    reward = RewardSettings(turns="counterfactual", samples=1)
    grpo.run(multi_turn_settings(start_from=str(cloned), output=str(tmp_path / "out"), reward=reward))
    assert (tmp_path / "out" / "done.json").is_file()
