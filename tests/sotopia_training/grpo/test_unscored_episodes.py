"""Episodes without a verdict: no rewards, counted, and the end when there is nothing else."""

from types import SimpleNamespace

import pytest
from sotopia_training.grpo import dev_episodes, multi_turn
from sotopia_training.grpo.dev_episodes import DevEpisodes
from sotopia_training.grpo.multi_turn import EpisodeRollout, episode_reward, prompt_rows
from sotopia_training.grpo.settings import DevSettings, RewardSettings
from sotopia_training.grpo.situations import SituationSettings, situations
from sotopia_training.grpo.token_episodes import TokenPlayer

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError
from sotopia_env.naming import make_evaluator as make_evaluator
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT as BRIEF

SITUATIONS = SituationSettings(
    families=("bargaining",), level="easy", count=4, partners=("linear:horizon=2",), max_turns=4
)
TRAINER = SimpleNamespace(use_vllm=False)
GOAL = RewardSettings()


class Moody:
    """An evaluator that cannot score every second episode, or none."""

    name = "moody"

    def __init__(self, every):
        self.parameters = {}
        self.judged, self.every, self.inner = 0, every, make_evaluator("verified")

    async def evaluate(self, episode):
        self.judged += 1
        if self.judged % self.every == 0:
            raise EvaluationError("no verdict today")
        return await self.inner.evaluate(episode)


def rollout_of(tokenizer, evaluator, monkeypatch, reward=GOAL, scalarisation="goal"):
    """A rollout in which the policy always says the same."""
    tokens = tokenizer.encode('{"action_type": "speak", "argument": "How about $70?"}')
    answer = [*tokens, tokenizer.eos_token_id]
    monkeypatch.setattr(multi_turn, "trainer_sample", lambda trainer: lambda prompts: ([answer] * len(prompts), None))
    monkeypatch.setattr(multi_turn, "largest_count", lambda count, trainer: count)
    situation_list = situations(SITUATIONS)
    prompts = [row["prompt"] for row in prompt_rows(situation_list)]
    return EpisodeRollout(TokenPlayer(tokenizer, BRIEF, evaluator, scalarisation), situation_list, reward), prompts


def test_an_episode_without_a_verdict_has_no_reward_and_training_continues(tokenizer, monkeypatch):
    """It is missing, not 0: TRL leaves a reward of None out of its group."""
    rollout, prompts = rollout_of(tokenizer, Moody(2), monkeypatch)
    output = rollout(prompts, TRAINER)
    missing = [reward is None for reward in output["episode_reward"]]
    assert 0 < sum(missing) < len(missing)
    assert [not scores for scores in output["scores"]] == missing
    assert [row["unscored"] for row in output["facts"]] == [float(value) for value in missing]
    log = []
    rewards = episode_reward(
        [""] * len(prompts), output["episode_reward"], output["scores"], output["facts"], lambda *pair: log.append(pair)
    )
    assert rewards == output["episode_reward"]
    assert sum(name == "scores/GOAL" for name, _ in log) == missing.count(False)


def test_an_evaluator_of_the_rewarded_dimensions_is_enough(tokenizer, tmp_path, monkeypatch):
    """What it does not score is missing in the log, not 0; a reward that needs it is refused before an episode."""
    verified = make_evaluator("verified")
    rollout, prompts = rollout_of(tokenizer, verified, monkeypatch)
    output = rollout(prompts, TRAINER)
    assert None not in output["episode_reward"]
    assert {tuple(scores) for scores in output["scores"]} == {("FIN", "GOAL")}
    rollout, prompts = rollout_of(tokenizer, verified, monkeypatch, scalarisation="overall")
    with raises(InvalidValueError, field="evaluator"):
        rollout(prompts, TRAINER)


def test_rewards_of_turns_are_missing_where_the_verdict_is(tokenizer, monkeypatch):
    rollout, prompts = rollout_of(tokenizer, Moody(2), monkeypatch, RewardSettings(turns="acts"))
    output = rollout(prompts, TRAINER)
    assert [not turns for turns in output["turn_rewards"]] == [reward is None for reward in output["episode_reward"]]


def test_training_ends_when_nothing_can_be_scored_any_more(tokenizer, monkeypatch):
    rollout, prompts = rollout_of(tokenizer, Moody(1), monkeypatch)
    rollout(prompts, TRAINER)
    with pytest.raises(EvaluationError, match=r"the last 64 episodes could not be scored; .*no verdict today"):
        rollout(prompts * 8, TRAINER)


def test_a_failing_partner_fails_only_its_own_episode(tokenizer, monkeypatch):
    """No server listens there: a partner that cannot answer is not a reward of 0 for the policy."""
    access = ModelOptions(api_base="http://127.0.0.1:9/v1", retries=0, patience=0)
    both = SituationSettings(**{**SITUATIONS.model_dump(), "partners": ("local/none", "linear:horizon=2")})
    situation_list = situations(both, models=ModelPool(access))
    rollout, prompts = rollout_of(tokenizer, make_evaluator("verified"), monkeypatch)
    rollout._situations = situation_list
    output = rollout(prompts, TRAINER)
    served = [item.partner not in {"linear"} for item in situation_list]
    assert [reward is None for reward in output["episode_reward"]] == served
    assert all(output["prompt_ids"])
    assert all(output["completion_ids"])


def test_dev_episodes_that_cannot_be_scored_are_counted_and_all_of_them_are_an_error(tokenizer, tmp_path, monkeypatch):
    settings = DevSettings(situations=SITUATIONS, every=1)
    monkeypatch.setattr(
        dev_episodes, "generator_sample", lambda *_, **__: lambda prompts: ([[5, 6]] * len(prompts), None)
    )
    for every in (2, 1):
        dev = DevEpisodes(settings, TokenPlayer(tokenizer, BRIEF, Moody(every), "goal"), tmp_path, (24, 1.0))
        if every == 1:
            with pytest.raises(EvaluationError, match="none of 8 episodes"):
                dev.look(None, tokenizer, 0)
            continue
        figures = dev.look(None, tokenizer, 0)
        assert figures["unscored"] == 0.5
        assert {"reward", "FIN", "GOAL", "agreement", "share"} <= set(figures)
