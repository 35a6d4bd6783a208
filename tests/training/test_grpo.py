"""GRPO: contradictions before anything is loaded, advantages by turn, the KL reference, and both modes for real."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import LlamaConfig, Qwen2Config
from trl.trainer.utils import use_adapter

from sotopia_env.errors import InvalidValueError, UnknownNameError
from training import behavior_cloning, grpo
from training.dev_episodes import DevEpisodes
from training.fitting import FitSettings, load_for_training
from training.grpo_settings import DevSettings, GRPOSettings, RewardSettings, check
from training.memory import available_memory, check_memory, estimate
from training.models import find_model, load_causal_lm, write_prompt_settings
from training.multi_turn import EpisodeRollout, episode_reward, prompt_rows, trainer_class, turn_advantages
from training.settings import LoraSettings, ModelSettings, PromptSettings
from training.situations import SituationSettings, situations
from training.sources import SourceSettings
from training.stage import StageDirectory
from training.token_episodes import TokenPlayer

BRIEF = PromptSettings(format="brief", max_length=512, max_answer=24)
SITUATIONS = SituationSettings(
    families=("bargaining",), level="easy", count=4, partners=("linear:horizon=2",), max_turns=4
)
FIT = FitSettings(learning_rate=1e-3, max_steps=2, batch_size=8, save_steps=1, logging_steps=1, warmup_ratio=0)


def asked(**more):
    given = {"mode": "multi-turn", "start_from": "x", "situations": SITUATIONS, "output": "y", "num_generations": 4}
    return GRPOSettings(**{**given, "fit": FIT, "lora": None, **more})


@pytest.fixture(scope="session")
def cloned(tmp_path_factory, tiny_model, expert_run):
    """What behaviour cloning leaves: a model with its prompt settings, trained a little."""
    out = tmp_path_factory.mktemp("stages") / "bc"
    behavior_cloning.run(
        behavior_cloning.BehaviorCloningSettings(
            model=ModelSettings(base=str(tiny_model), lora=None),
            prompt=BRIEF,
            data=(SourceSettings(run=str(expert_run)),),
            validation=0,
            output=str(out),
            fit=FitSettings(learning_rate=3e-3, max_steps=20, batch_size=8, save_steps=20),
        )
    )
    return out


@pytest.fixture(scope="session")
def adapted(tmp_path_factory, tiny_model):
    """An adapter whose B is not zero, so that it and its base differ."""
    from peft import get_peft_model

    from training.models import lora_config

    torch.manual_seed(0)
    model = get_peft_model(load_causal_lm(ModelSettings(base=str(tiny_model))), lora_config(LoraSettings(dropout=0)))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.5)
    out = tmp_path_factory.mktemp("stages") / "adapter"
    model.save_pretrained(str(out / "model"))
    write_prompt_settings(out / "model", BRIEF)
    return out


# --- before a model is loaded -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"situations": None}, "situations"),
        ({"mode": "single-turn"}, "reward.model"),
        ({"data": (SourceSettings(run="r"),)}, "single-turn"),
        ({"keep": "best"}, "dev"),
        ({"vllm": "colocate"}, "package vllm"),
        ({"reward": RewardSettings(scalarisation="overall", credit="acts")}, "one dimension"),
        ({"num_generations": 3}, "groups of 3"),
        ({"num_generations": 16}, "steps_per_generation: 2"),
        ({"fit": FIT.model_copy(update={"keep": 1, "max_steps": None})}, "fit.keep"),
    ],
)
def test_contradictions_are_said_in_one_sentence(more, named):
    """R16: 6 × 4 answers and 16 generations, and their like, before anything is loaded."""
    with pytest.raises(InvalidValueError, match=named):
        check(asked(**more))


def test_a_misspelt_dimension_is_named():
    with pytest.raises(UnknownNameError, match="goal"):
        check(asked(reward=RewardSettings(scalarisation="gaol")))


def test_every_process_counts_for_the_groups(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    check(asked(num_generations=16))


def test_memory_of_a_seven_billion_model_is_about_right():
    """Weights of Qwen2.5-7B are 15.2 GB in bfloat16; logits of 64 x 4096 over 152,064 words are what breaks a run."""
    config = Qwen2Config(
        hidden_size=3584,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        intermediate_size=18944,
        vocab_size=152064,
    )
    lora = asked(lora=LoraSettings(), dtype="bfloat16", fit=FIT.model_copy(update={"batch_size": 64}))
    found = estimate(config, lora, PromptSettings(max_length=4096))
    assert 14e9 < found.weights < 16.5e9
    assert found.logits > 300e9
    quantised = estimate(config, lora.model_copy(update={"quantization": "nf4"}), PromptSettings(max_length=4096))
    assert 7e9 < quantised.weights < 9e9  # 6.5 billion weights in 4 bit, and 1.1 billion of embeddings and head in 32


def test_what_cannot_fit_is_refused_before_it_is_loaded(tmp_path):
    LlamaConfig(hidden_size=4096, num_hidden_layers=2000).save_pretrained(tmp_path)
    with pytest.raises(InvalidValueError, match="do not fit"):
        check_memory(tmp_path, asked(), BRIEF)
    assert check_memory(tmp_path, asked(check_memory=False), BRIEF).total > available_memory()


def test_a_model_of_single_prompts_is_not_refused_for_its_format_where_no_whole_episode_is_played(tmp_path, tiny_model):
    """Mistral's: its chat template preserves no conversation, and single-turn GRPO needs none."""
    shutil.copytree(tiny_model, tmp_path / "bc" / "model")
    write_prompt_settings(tmp_path / "bc" / "model", PromptSettings(format="single", max_length=512, max_answer=24))
    more = {"start_from": str(tmp_path / "bc"), "output": str(tmp_path / "out"), "data": (SourceSettings(run="r"),)}
    single = asked(mode="single-turn", situations=None, reward=RewardSettings(model=str(tmp_path / "none")), **more)
    with pytest.raises(InvalidValueError, match="none: expected an adapter or a model"):
        grpo.train(single)


def test_an_answer_longer_than_the_prompt_allows_is_refused(cloned):
    with pytest.raises(InvalidValueError, match="max_answer"):
        grpo.answer_settings(asked(start_from=str(cloned), max_answer=512))


# --- advantages --------------------------------------------------------------------------------------------------


def test_turns_of_a_group_are_compared_with_each_other():
    credits = [[(0, 2, 1.0), (3, 4, 3.0)], [(0, 1, 5.0)], [(0, 1, 7.0)], []]
    found = turn_advantages(credits, 2, 5, scale=False)
    assert found.tolist() == [[-2, -2, 0, 0, 0], [2, 0, 0, 0, 0], [0] * 5, [0] * 5]
    scaled = turn_advantages(credits, 2, 5, scale=True)
    assert scaled[0, 3] == pytest.approx(0)
    assert scaled[1, 0] == pytest.approx(2 / 2.0001, rel=1e-3)


def test_a_block_shares_task_seat_partner_and_seed(tokenizer):
    """What TRL repeats num_generations times is one situation; only the policy's own sampling differs within it."""
    wanted = situations(SITUATIONS)
    rows = prompt_rows(wanted)
    assert [(row["task"], row["seat"], row["partner"]) for row in rows] == [
        (item.task.id, item.seat, item.partner.name) for item in wanted
    ]
    played = []

    class Player(TokenPlayer):
        def begin(self, asked):
            played.extend(asked)
            raise InterruptedError

    rollout = EpisodeRollout(Player(tokenizer, BRIEF, None), wanted, RewardSettings())
    with pytest.raises(InterruptedError):
        rollout([rows[3]["prompt"]] * 4, SimpleNamespace())
    assert played == [wanted[3]] * 4


# --- for real ----------------------------------------------------------------------------------------------------


def weights(directory):
    model = load_causal_lm(ModelSettings(base=str(find_model(directory))))
    return torch.cat([parameter.flatten() for parameter in model.parameters()])


def test_whole_episodes_train_and_are_logged_by_part(cloned, tmp_path, monkeypatch):
    settings = asked(
        start_from=str(cloned),
        output=str(tmp_path / "out"),
        reward=RewardSettings(scalarisation="overall"),
        dev=DevSettings(situations=SITUATIONS.model_copy(update={"task_seed": 9}), every=1),
        keep="best",
    )
    figures = grpo.train(settings)
    state = json.loads(next((tmp_path / "out/checkpoints/checkpoint-2").glob("trainer_state.json")).read_text())
    logged = set().union(*(entry for entry in state["log_history"]))
    assert {"rewards/episode_reward/mean", "scores/GOAL", "scores/REL", "episodes/valid", "dev/reward"} <= logged
    assert [look["step"] for look in figures["dev"]] == [0, 1, 2]
    assert not torch.equal(weights(cloned), weights(tmp_path / "out")) or figures["dev"][0]["reward"] == max(
        look["reward"] for look in figures["dev"]
    )
    assert grpo.train(settings) == figures


def test_a_resumed_run_ends_with_the_same_weights(cloned, tmp_path):
    whole = asked(start_from=str(cloned), output=str(tmp_path / "whole"), reward=RewardSettings(credit="acts"))
    grpo.run(whole)
    broken = whole.model_copy(update={"output": str(tmp_path / "broken")})
    stop_after(1, broken)
    assert not (tmp_path / "broken/done.json").exists()
    grpo.run(broken)
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "broken"))
    assert not torch.equal(weights(tmp_path / "whole"), weights(cloned))


def stop_after(step, settings):
    """Runs a stage and breaks it off as a kill would, right after a checkpoint is on disk."""
    from transformers import Trainer

    original = Trainer._save_checkpoint

    class Killed(BaseException):
        pass

    def save(self, *arguments, **more):
        original(self, *arguments, **more)
        if self.state.global_step == step:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_save_checkpoint", save)
        with pytest.raises(Killed):
            grpo.run(settings)


@pytest.mark.parametrize("reference", ["start", "base"])
def test_kl_is_measured_against_what_the_config_says(adapted, tiny_model, tmp_path, reference):
    """R15: TRL 0.16 with PEFT measured against the bare base, whatever was cloned before."""
    settings = asked(
        start_from=str(adapted), lora=LoraSettings(dropout=0), beta=0.1, reference=reference, output=str(tmp_path)
    )
    model_settings = grpo.begin_from(settings.model, str(adapted), BRIEF)
    model, adapter = load_for_training(model_settings, gradient_checkpointing=False)
    trainer = trainer_class()(
        model=model,
        args=grpo._arguments(settings, StageDirectory(tmp_path, "grpo", settings), BRIEF),
        train_dataset=Dataset.from_list(prompt_rows(situations(SITUATIONS))),
        processing_class=grpo.load_tokenizer(tiny_model),
        peft_config=adapter,
        reward_funcs=[episode_reward],
    )
    grpo.set_reference(trainer, settings)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])
    with torch.no_grad(), use_adapter(trainer.model, "ref"):
        measured = trainer.model.eval()(input_ids=ids).logits
    bare = load_causal_lm(ModelSettings(base=str(tiny_model)))
    started = load_causal_lm(ModelSettings(base=str(tiny_model), adapter=str(adapted / "model")))
    with torch.no_grad():
        wanted = {"base": bare(input_ids=ids).logits, "start": started.eval()(input_ids=ids).logits}
    assert not torch.allclose(wanted["base"], wanted["start"], atol=1e-2)
    assert torch.allclose(measured, wanted[reference], atol=1e-4)


def test_a_bare_base_is_no_reference_where_all_weights_are_trained(cloned, tmp_path):
    with pytest.raises(InvalidValueError, match="reference"):
        grpo.run(asked(start_from=str(cloned), beta=0.1, reference="base", output=str(tmp_path / "out")))


def test_the_trained_adapter_is_left_alone_in_the_model_directory(adapted, tmp_path):
    """TRL saves the frozen reference beside it; the next stage must not find two."""
    settings = asked(
        start_from=str(adapted),
        lora=LoraSettings(dropout=0),
        beta=0.1,
        output=str(tmp_path / "out"),
        fit=FIT.model_copy(update={"max_steps": 1}),
    )
    grpo.run(settings)
    model = Path(settings.output) / "model"
    assert (model / "adapter_config.json").is_file()
    assert not (model / "ref").exists()
    assert grpo.read_prompt_settings(model) == BRIEF


def test_dev_episodes_remember_and_give_up(tokenizer, tmp_path):
    """Early stopping counts looks since the best one, over a resumed run as well."""
    settings = DevSettings(situations=SITUATIONS, every=1, patience=2)
    player = TokenPlayer(tokenizer, BRIEF, None)
    dev = DevEpisodes(settings, player, RewardSettings(), tmp_path, (24, 1.0))
    dev.looks = [{"step": float(step), "reward": value} for step, value in enumerate([1.0, 3.0, 2.0])]
    assert not dev.exhausted
    dev.looks.append({"step": 3.0, "reward": 2.5})
    assert dev.exhausted
    (tmp_path / "dev.json").write_text(json.dumps(dev.looks))
    assert DevEpisodes(settings, player, RewardSettings(), tmp_path, (24, 1.0)).exhausted
