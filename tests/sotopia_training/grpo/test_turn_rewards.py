"""Turns with rewards of their own: losses fall on what brought them about, and the advantages reach TRL's loss."""

import pytest
import torch
from datasets import Dataset
from pydantic import ValidationError
from sotopia_training.attribution.by_outcome import make_attributor
from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting import behavior_cloning
from sotopia_training.grpo import multi_turn
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.multi_turn import EpisodeRollout, episode_reward, prompt_rows, trainer_class
from sotopia_training.grpo.settings import RewardSettings, trainer_arguments
from sotopia_training.grpo.situations import situations
from sotopia_training.grpo.token_episodes import TokenPlayer
from sotopia_training.grpo.token_seat import FocalTurn, TokenFormat, TokenSeat
from sotopia_training.grpo.turn_rewards import AttributedTurns, make_turn_rewarder
from sotopia_training.models.loading import find_model, load_causal_lm
from sotopia_training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
from sotopia_training.models.tokenizers import answer_ids
from sotopia_training.stage.settings import ModelSettings, PromptSettings

from sotopia_env import tasks
from sotopia_env.adapters import Seats
from sotopia_env.evaluators.turn_rewards import belief_rewards
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import read_json
from sotopia_env.foundation.waiting import wait
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage.directory import read_run
from sotopia_env.world.play.table import Table
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT, made_once
from tests.sotopia_training.grpo.grpo_settings import SITUATIONS, multi_turn_settings, situated
from tests.sotopia_training.played import ACCEPT, haggling, played

SELLER = "agent_1"
LOSING = (40, "Hm, let me think.", "Come on.", ACCEPT)
"""The seller, whose walk-away price is 50, accepts 40."""
OFFER, GARBAGE = '{"action_type": "speak", "argument": "How about $70?"}', "hm"


def episode_of(*acts, seat=SELLER, reward="financial_and_material_benefits"):
    """An evaluated episode of the given words with ``seat`` in training."""
    done = played(haggling(), *acts)
    focal = [FocalTurn(item.turn.index, 0, 1) for item in done.turns if item.turn.actor == seat]
    partners = {agent: "linear" for agent in done.task.agents if agent != seat}
    seats = Seats(Table.resume(done), partners, evaluator="verified", scalarisation=reward)
    episode = TokenSeat(seats[seat], TokenFormat(None, SHORT), focal=focal)
    wait(episode.evaluate())
    return episode


# --- what turns are worth -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "part"), [("prospect", 1.0), ("acts", 0.5), ("standing", 1.0)])
def test_a_loss_is_attributed_to_the_turn_that_caused_it(name, part):
    """As in the stage of utterance rewards: with a score below 0, important is what did harm."""
    episode = episode_of(*LOSING)
    score = float(episode.vector[5])  # FIN
    assert score < 0
    turns = AttributedTurns(make_attributor(name), "financial_and_material_benefits", -1.0)
    assert turns.of(episode) == pytest.approx({1: 0.0, 3: part * score})


def test_the_share_is_attributed_as_its_fivefold_is():
    fin, share = RewardSettings(scalarisation="FIN", turns="prospect"), RewardSettings(turns="prospect")
    by_fin = make_turn_rewarder(fin, None, []).of(episode_of(*LOSING))
    by_share = make_turn_rewarder(share, None, []).of(episode_of(*LOSING, reward="share"))
    assert by_share == pytest.approx({turn: reward / 5 for turn, reward in by_fin.items()})
    assert min(by_share.values()) < 0


@pytest.mark.parametrize(("short", "name"), [("GOAL", "goal"), ("FIN", "financial_and_material_benefits")])
def test_abbreviations_of_dimensions_are_their_names(short, name):
    episode = episode_of(56, 68, 62, ACCEPT, reward=name)
    rewarders = [
        make_turn_rewarder(RewardSettings(scalarisation=text, turns="acts"), None, []) for text in (short, name)
    ]
    rewards, same = (turns.of(episode) for turns in rewarders)
    assert rewards == same
    assert rewards[3] > rewards[1] > 0


BELIEFS = RewardSettings(turns="belief", evaluator="verified+facts:probe=turns,interviewee=bayesian")


def test_turns_are_paid_for_what_the_others_believe():
    table = Table(tasks.generate("mini_mafia", 1, 0, "medium")[0])
    wait(table.play(make_policy("honest")))
    seat = table.task.agents[0]
    partners = dict.fromkeys(table.task.agents[1:], "honest")
    seats = Seats(table, partners, evaluator=BELIEFS.evaluator, scalarisation="share")
    focal = [FocalTurn(turn.index, 0, 1) for turn in table.state.turns if turn.actor == seat]
    episode = TokenSeat(seats[seat], TokenFormat(None, SHORT), focal=focal)
    wait(episode.evaluate())
    rewarder = make_turn_rewarder(BELIEFS, None, [])
    assert rewarder.rewards([episode], None) == ([dict(belief_rewards(episode.record, seat).by_turn)], None)
    assert any(rewarder.of(episode).values())


def test_rewards_by_belief_need_an_evaluator_that_asks_a_policy(cloned, tmp_path, nothing_is_loaded):
    for evaluator in ("verified", "verified+facts:probe=end,interviewee=bayesian", "verified+facts:probe=turns"):
        reward = BELIEFS.model_copy(update={"evaluator": evaluator})
        with raises(InvalidValueError, field="reward.evaluator"):
            grpo.run(multi_turn_settings(start_from=str(cloned), output=str(tmp_path / "out"), reward=reward))


def test_the_earlier_name_of_the_setting_names_the_present_one():
    with pytest.raises(ValidationError, match=r"reward\.turns"):
        RewardSettings.model_validate({"credit": "acts"})


ALL_SEVEN = "sotopia_env.testing:FixedEvaluator"
"""An evaluator that scores every dimension of every task, so that only the rewards of turns can be refused."""


# --- before a model is loaded ---------------------------------------------------------------------------------------


@pytest.fixture
def nothing_is_loaded(monkeypatch):
    monkeypatch.setattr(grpo, "load_for_training", lambda *_, **__: pytest.fail("a model was loaded"))


@pytest.mark.parametrize("name", ["acts", "prospect"])
def test_an_attributor_without_a_description_of_the_dimension_is_refused(cloned, tmp_path, nothing_is_loaded, name):
    reward = RewardSettings(scalarisation="REL", turns=name, evaluator=ALL_SEVEN)
    with raises(InvalidValueError, field="reward.turns"):
        grpo.run(multi_turn_settings(start_from=str(cloned), output=str(tmp_path / "out"), reward=reward))


@pytest.mark.parametrize("name", ["acts", "prospect"])
def test_an_attributor_of_verified_outcomes_is_refused_where_a_task_has_none(cloned, tmp_path, nothing_is_loaded, name):
    verified, other = tasks.generate("bargaining", 2, 0, "easy")
    without = other.scenario.model_copy(update={"outcome": None, "shared_data": {}})
    bare = other.model_copy(update={"scenario": without, "id": "small-talk"})
    TaskSet([verified, bare]).save(tmp_path / "tasks.jsonl")
    mixed = SITUATIONS.model_copy(update={"families": (), "tasks": str(tmp_path / "tasks.jsonl")})
    more = {"start_from": str(cloned), "output": str(tmp_path / "out"), "situations": mixed}
    with raises(InvalidValueError, field="reward.turns"):
        grpo.run(
            multi_turn_settings(reward=RewardSettings(scalarisation="goal", turns=name, evaluator=ALL_SEVEN), **more)
        )


def test_an_attributor_by_evaluation_applies_where_one_by_outcome_does_not():
    def refused(name):
        try:
            EpisodeRollout(None, situations(SITUATIONS), RewardSettings(scalarisation="REL", turns=name))
        except InvalidValueError:
            return True
        return False

    assert {name: refused(name) for name in ("silence", "acts")} == {"silence": False, "acts": True}


def test_whole_episodes_of_scenarios_that_are_kept_for_evaluation_are_refused(cloned, tmp_path, nothing_is_loaded):
    reserved = tasks.generate("bargaining", SITUATIONS.count, SITUATIONS.task_seed, SITUATIONS.level)[-1]
    TaskSet([reserved]).save(tmp_path / "kept.jsonl")
    more = {"start_from": str(cloned), "output": str(tmp_path / "out")}
    with raises(InvalidValueError, field="situations", got=reserved.id):
        grpo.run(multi_turn_settings(evaluation_tasks=str(tmp_path / "kept.jsonl"), **more))


# --- inside TRL -----------------------------------------------------------------------------------------------------


def trainer_of(cloned, tokenizer, folder, situation_list):
    """TRL's trainer as the stage makes it, with rewards by turn, and its only step not taken yet."""
    settings = multi_turn_settings(
        start_from=str(cloned), output=str(folder), reward=RewardSettings(turns="acts"), trainer={"loss_type": "bnpo"}
    )
    player = TokenPlayer(tokenizer, SHORT, make_evaluator("verified"), "goal")
    trainer = trainer_class()(
        model=load_causal_lm(ModelSettings(base=str(find_model(cloned)))),
        args=trainer_arguments(settings, SHORT),
        train_dataset=Dataset.from_list(prompt_rows(situation_list)),
        processing_class=tokenizer,
        reward_funcs=[episode_reward],
        rollout_func=EpisodeRollout(player, situation_list, settings.reward),
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def test_advantages_by_turn_reach_the_loss(cloned, tokenizer, tmp_path, monkeypatch):
    """Two situations of four episodes, in which offers and garbage take turns."""
    calls = []

    def sample(prompts):
        calls.append(len(prompts))
        texts = [(OFFER, GARBAGE)[(row + len(calls)) % 2] for row in range(len(prompts))]
        return [answer_ids(tokenizer, text) for text in texts], None

    monkeypatch.setattr(multi_turn, "trainer_sample", lambda trainer: sample)
    situation_list = situations(SITUATIONS)[:2]
    trainer = trainer_of(cloned, tokenizer, tmp_path / "out", situation_list)
    inputs = [dict(row) for row in prompt_rows(situation_list) for _ in range(4)]
    output = trainer._generate_and_score_completions(inputs)

    assert sorted(trainer._metrics["train"]["turns/reward"])
    advantages, mask = output["advantages"], output["completion_mask"] * output["tool_mask"]
    assert advantages.shape == output["completion_ids"].shape
    assert not advantages[mask == 0].any()
    assert ((output["completion_mask"] == 1) & (output["tool_mask"] == 0)).any()  # partners' words
    differing = 0
    for row, values in zip(inputs, advantages, strict=True):
        of_turn = {reward: values[start:end].unique() for start, end, reward in row["turn_rewards"]}
        assert all(len(unique) == 1 for unique in of_turn.values())
        assert len({float(unique) for unique in of_turn.values()}) == len(of_turn)
        differing += len(of_turn) > 1
    assert differing
    # Before the first step every ratio is 1, so the loss is the mean of what the tokens are worth.
    wanted_loss = -(advantages * mask).sum() / mask.sum()
    assert abs(wanted_loss) > 1e-3
    assert torch.isclose(trainer._compute_loss(trainer.model, output), wanted_loss, atol=1e-5)


def test_a_stage_trains_on_standing_rewards(cloned, tmp_path):
    grpo.run(multi_turn_settings(start_from=str(cloned), output=str(tmp_path), reward=RewardSettings(turns="standing")))
    history = read_json(tmp_path / "checkpoints" / "checkpoint-2" / "trainer_state.json")["log_history"]
    rewards = [entry["turns/reward"] for entry in history if "turns/reward" in entry]
    assert len(rewards) == 2
    assert any(rewards)
    before, after = (load_causal_lm(ModelSettings(base=str(find_model(path)))) for path in (cloned, tmp_path))
    pairs = zip(before.parameters(), after.parameters(), strict=True)
    assert not all(torch.equal(old, new) for old, new in pairs)


MAFIA = situated(families=["mini_mafia"], level="medium", partners=["bayesian"], max_turns=9, count=1)
SPOKEN = PromptSettings(format="brief", max_length=1200, max_answer=120)


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    """A tiny model that was trained a little on the words and statements of scripts in one game."""

    def make(folder):
        game = tasks.generate(MAFIA.families, MAFIA.count, MAFIA.task_seed, MAFIA.level)
        run, base, maker = folder.with_name("games"), folder.with_name("tiny-speaker"), RowMaker(SPOKEN)
        plans = plan_episodes(game, [(make_policy("deceiver:lies=0.5"),)], repeats=8)
        wait(run_episodes(plans, evaluator=None, run_dir=run, progress=False))
        rows = [row for episode in read_run(run) for seat in episode.task.agents for row in maker.rows(episode, seat)]
        texts = [text for row in rows for text in (*(message["content"] for message in row.prompt), row.completion)]
        make_tiny_model(base, make_tiny_tokenizer(texts), context=2048)
        behavior_cloning.run(
            behavior_cloning.BehaviorCloningSettings(
                model=ModelSettings(base=str(base), lora=None),
                prompt=SPOKEN,
                data=(SourceSettings(run=str(run), scored=False),),
                validation=0,
                output=str(folder),
                trainer={"learning_rate": 3e-3, "max_steps": 50, "per_device_train_batch_size": 8, "save_steps": 50},
            )
        )

    return made_once(tmp_path_factory, "speaker", make)


def test_a_stage_trains_on_what_the_others_believe(speaker, tmp_path):
    grpo.run(multi_turn_settings(start_from=str(speaker), output=str(tmp_path), situations=MAFIA, reward=BELIEFS))
    history = read_json(tmp_path / "checkpoints" / "checkpoint-2" / "trainer_state.json")["log_history"]
    steps = [entry for entry in history if "turns/reward" in entry]
    assert len(steps) == 2
    assert all(entry["grad_norm"] > 0 for entry in steps)
    # What is left of the rewards of turns without the penalty for impossible answers is the change of beliefs.
    changes = [entry["turns/reward"] - entry["episodes/penalty"] for entry in steps]
    assert any(abs(change) > 1e-4 for change in changes)
    before, after = (load_causal_lm(ModelSettings(base=str(find_model(path)))) for path in (speaker, tmp_path))
    pairs = zip(before.parameters(), after.parameters(), strict=True)
    assert not all(torch.equal(old, new) for old, new in pairs)
