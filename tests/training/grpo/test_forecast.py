"""The forecast: memory by part, steps and tokens of every stage, as a dry run says and as training then does."""

from types import SimpleNamespace

import pytest
from transformers import LlamaConfig

from sotopia_env.errors import InvalidValueError
from sotopia_env.settings import settings_of
from tests.training.conftest import SHORT as BRIEF
from tests.training.grpo.grpo_asked import MISTRAL_7B, QWEN_7B, asked, reward_model_of, single_turn
from training.fitting import behavior_cloning
from training.fitting.forecast import (
    Batch,
    available_memory,
    base_config,
    group_work,
    memory,
    supervised_work,
    weights,
)
from training.grpo import stage as grpo
from training.grpo.forecast import check_memory, forecast, stage_memory
from training.grpo.settings import RewardSettings, trainer_arguments
from training.models.loading import find_model, load_causal_lm
from training.stage.settings import Assumptions, LoraSettings, ModelSettings, PromptSettings

LONG = PromptSettings(max_length=4096)
NONE = Assumptions()


def estimated(config, settings, prompt=LONG, device=0):
    return stage_memory(settings, config, settings.model, trainer_arguments(settings, prompt), prompt, 0, device)


def frame(settings, base):
    model = settings.model.model_copy(update={"base": str(base)})
    return SimpleNamespace(model=model, arguments=trainer_arguments(settings, BRIEF), prompt=BRIEF)


def test_memory_of_a_seven_billion_model_is_about_right():
    """Weights of Qwen2.5-7B are 15.2 GB in bfloat16; of logits only a tile is in memory, however large the batch."""
    lora = asked(lora=LoraSettings(), dtype="bfloat16", trainer={"per_device_train_batch_size": 64})
    need = estimated(QWEN_7B, lora)
    assert 14e9 < need.weights < 16.5e9
    assert 4e9 < need.logits < 5e9
    small = lora.model_copy(update={"trainer": lora.trainer | {"per_device_train_batch_size": 4}})
    assert estimated(QWEN_7B, small).logits == need.logits
    quantised = estimated(QWEN_7B, lora.model_copy(update={"quantization": "nf4"}))
    assert 7e9 < quantised.weights < 9e9  # 6.5 billion weights in 4 bit, and 1.1 billion of embeddings and head in 32


def test_the_reward_model_takes_its_place_in_memory(cloned, tmp_path):
    base = find_model(cloned)
    count = sum(parameter.numel() for parameter in load_causal_lm(ModelSettings(base=str(base))).parameters())
    settings = asked(reward=RewardSettings(model=str(reward_model_of(cloned, tmp_path / "rm"))))
    with_it, without = (check_memory(one, frame(one, base)) for one in (settings, asked()))
    assert with_it.total - without.total == with_it.scorer == pytest.approx(4 * count, rel=0.01)


def test_what_cannot_fit_is_refused_before_it_is_loaded(tmp_path):
    LlamaConfig(hidden_size=4096, num_hidden_layers=2000).save_pretrained(tmp_path)
    with pytest.raises(InvalidValueError, match="do not fit"):
        check_memory(asked(), frame(asked(), tmp_path))
    anyway = asked(check_memory=False)
    assert check_memory(anyway, frame(anyway, tmp_path)).total > available_memory()


@pytest.mark.parametrize(
    ("dtype", "lora", "rows", "measured"),
    [
        ("float32", LoraSettings(), 4, 2.60e9),
        ("float32", LoraSettings(dropout=0), 4, 2.22e9),
        ("float32", None, 4, 2.45e9),
        ("bfloat16", LoraSettings(), 2, 1.11e9),
    ],
)
def test_the_estimate_is_near_the_peak_of_a_run_on_a_cpu(dtype, lora, rows, measured):
    """Peak resident memory of behaviour cloning above that of the process before it, rows of 365 tokens."""
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=16_000,
        tie_word_embeddings=True,
    )
    trainer = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": 2}  # whole groups of four
    arguments = trainer_arguments(asked(trainer=trainer))
    need = memory(config, ModelSettings(base="", dtype=dtype, lora=lora), arguments, Batch(365, 365))
    assert need.total == pytest.approx(measured, rel=0.2)


def test_only_what_is_certain_is_refused(cloned, monkeypatch, caplog):
    one = frame(asked(), find_model(cloned))
    need = check_memory(asked(), one)

    def with_free(size):
        monkeypatch.setattr("training.grpo.forecast.available_memory", lambda: size)
        return check_memory(asked(), one)

    with_free(need.total)
    assert "may not fit" not in caplog.text
    with_free(need.total - 1)
    with_free(need.certain)
    assert caplog.text.count("may not fit") == 2
    with pytest.raises(InvalidValueError, match="memory"):
        with_free(need.certain - 1)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # then a device holds a part of the weights
    with_free(need.certain - 1)


def test_vllm_beside_the_policy_takes_its_share_and_the_cache():
    plain, shared = asked(), asked(trainer={"use_vllm": True, "vllm_gpu_memory_utilization": 0.25})
    assert estimated(QWEN_7B, plain, device=80).vllm == 0
    need = estimated(QWEN_7B, shared, device=80)
    assert (need.vllm, need.cache) == (20, 0)
    apart = estimated(QWEN_7B, asked(trainer={"use_vllm": True, "vllm_mode": "server"}), device=80)
    assert (apart.vllm, apart.cache) == (0, 0)


@pytest.mark.parametrize(("config", "billions"), [(QWEN_7B, 7.6), (MISTRAL_7B, 7.2)])
def test_the_weights_are_counted_from_the_configuration(config, billions):
    assert weights(config, ModelSettings(base="", dtype="bfloat16")) == pytest.approx(2e9 * billions, rel=0.02)


def test_what_is_forecast_is_what_training_does(cloned, adapted, expert_run, tmp_path):
    """Steps of a supervised stage, and of GRPO in both modes, over whole epochs."""
    trainer = {"max_steps": -1, "num_train_epochs": 2, "per_device_train_batch_size": 7}
    values = {
        "model": {"base": str(find_model(cloned)), "lora": None},
        "prompt": BRIEF.model_dump(),
        "data": [{"run": str(expert_run)}],
        "output": str(tmp_path / "bc"),
        "trainer": {**trainer, "gradient_accumulation_steps": 3},
    }
    clone = settings_of(values, behavior_cloning.BehaviorCloningSettings, "test")
    one = behavior_cloning.forecast(clone, NONE).one
    figures = behavior_cloning.run(clone)
    assert (one.steps, one.rows, one.sampled) == (figures["steps"], figures["data"]["train"]["rows"], 0)
    ended = behavior_cloning.forecast(
        clone.model_copy(update={"keep": 1}), NONE
    ).one  # the schedule goes on, it does not
    assert (ended.steps * 2, ended.trained * 2) == (one.steps, one.trained)
    epoch = {"max_steps": -1, "num_train_epochs": 1, "per_device_train_batch_size": 4}
    batches = {"gradient_accumulation_steps": 4, "steps_per_generation": 2}
    settings = asked(start_from=str(cloned), output=str(tmp_path / "grpo"), trainer={**epoch, **batches})
    one, many = forecast(settings, Assumptions(devices=2)).one, forecast(settings, Assumptions(devices=2)).many
    assert one.steps == grpo.run(settings)["steps"]
    assert (one.rows, one.steps, many.steps) == (8, 2, 1)
    assert one.sampled == many.sampled == 8 * 4 * 2 * BRIEF.max_answer  # two own turns of four
    scorer = reward_model_of(cloned, tmp_path / "rm")
    single = single_turn(cloned, scorer, expert_run, output=str(tmp_path / "single"), trainer=epoch)
    assert forecast(single, NONE).one.rows > 100


def test_hours_are_known_where_the_speed_is_stated(tmp_path):
    arguments = trainer_arguments(asked(trainer={"max_steps": 10}))
    work = group_work(arguments, 100, row_tokens=500, answer_tokens=100, devices=2)
    assert (work.sampled, work.trained) == (10 * 16 * 100, 10 * 16 * 500)
    assert work.hours(Assumptions(trained_per_second=1000)) is None
    stated = Assumptions(trained_per_second=1000, sampled_per_second=100)
    assert work.hours(stated) == pytest.approx((16_000 / 100 + 80_000 / 1000) / 2 / 3600)
    supervised = supervised_work(arguments, 100, 500, devices=1)
    assert supervised.hours(Assumptions(trained_per_second=1000)) == pytest.approx(80 * 500 / 1000 / 3600)


def test_playing_on_from_every_state_is_counted(tmp_path):
    """Two own turns: from the first state two further turns are played, from the second one, each four times."""
    known = Assumptions(base=saved(tmp_path), max_length=4096, max_answer=100)
    plain, measured = (
        forecast(asked(start_from=str(tmp_path / "none"), reward=RewardSettings(credit=credit)), known)
        for credit in ("episode", "counterfactual")
    )
    assert measured.one.sampled == plain.one.sampled / 2 * (2 + 4 * (2 + 1))
    assert measured.one.trained == plain.one.trained
    assert measured.memory.cache == plain.memory.cache * 2 * 4  # from both states of every episode


def test_what_neither_exists_nor_is_assumed_is_said(tmp_path):
    missing = asked(start_from=str(tmp_path / "none"))
    with pytest.raises(InvalidValueError, match=r"base: .*assume a base"):
        forecast(missing, NONE)
    with pytest.raises(InvalidValueError, match=r"no configuration of .*nowhere"):
        base_config(str(tmp_path / "nowhere"), NONE)
    assert "unknown" in str(forecast(missing, Assumptions(base=saved(tmp_path))))


def saved(folder):
    LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100).save_pretrained(folder)
    return str(folder)
