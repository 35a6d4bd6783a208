"""Tokenizers that can be trained with, adapters of the right base, tiny models that load as they were made."""

import copy
import importlib.util
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import trl
from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting import behavior_cloning
from sotopia_training.fitting.arguments import FitSettings
from sotopia_training.fitting.checks import check_installed, check_target_modules
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.settings import GRPOSettings, RewardSettings
from sotopia_training.models.loading import (
    check_adapter,
    find_model,
    load_causal_lm,
    quantization_config,
    read_prompt_settings,
    start_from,
    write_prompt_settings,
)
from sotopia_training.models.tiny_base import make_tiny_model, make_tiny_tokenizer
from sotopia_training.models.tokenizers import (
    CHATML,
    TokenCounter,
    answer_ids,
    check_tokenizer,
    glue_ids,
    load_tokenizer,
    prompt_ids,
)
from sotopia_training.reward import model as reward_model
from sotopia_training.stage.settings import LoraSettings, ModelSettings, PromptSettings
from transformers.integrations import integration_utils
from transformers.training_args import OptimizerNames

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import read_settings
from studies.learn.base_model import BaseSettings
from tests.errors import raises

CONFIGS = Path(__file__).parents[3] / "configs"

TALK = [
    {"role": "system", "content": "You are Ada."},
    {"role": "user", "content": "Turn #1 is yours."},
    {"role": "assistant", "content": '{"action_type": "speak", "argument": "Hello."}'},
    {"role": "user", "content": "Turn #3 is yours."},
]
# Puts the system message before the last user's message, as Mistral-7B-Instruct-v0.3 does.
MOVING = (
    "{%- if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] %}{% set messages = messages[1:] %}"
    "{% endif %}{%- for m in messages %}{%- if m['role'] == 'user' %}{{- '[INST] ' }}"
    "{%- if loop.last and s is defined %}{{- s }}{%- endif %}"
    "{{- m['content'] + '[/INST]' }}{%- else %}{{- ' ' + m['content'] + '<|im_end|>' }}{%- endif %}{%- endfor %}"
)
FORGETFUL = CHATML.replace(
    "{{- m['content'] + '<|im_end|>' }}{% endgen", "{{- m['content'][:5] + '<|im_end|>' }}{% endgen"
)
NO_SYSTEM = "{%- if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{%- endif %}" + CHATML


def with_template(tokenizer, template):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def test_prompt_and_answer_are_a_prefix_of_the_next_prompt(tokenizer):
    first = [*prompt_ids(tokenizer, TALK[:2]), *answer_ids(tokenizer, TALK[2]["content"])]
    after = prompt_ids(tokenizer, TALK)
    assert after[: len(first)] == first
    assert [*first, *glue_ids(tokenizer, TALK[2:])] == after
    assert tokenizer.decode(answer_ids(tokenizer, "{}")) == "{}<|im_end|>"


def test_the_counter_counts_no_less_than_is_trained_on(tokenizer):
    count = TokenCounter(tokenizer)(TALK[:2], TALK[2]["content"])
    assert count == len(prompt_ids(tokenizer, TALK[:2])) + len(answer_ids(tokenizer, TALK[2]["content"])) + 1


@pytest.mark.parametrize(
    ("template", "got"),
    [
        (None, None),
        (MOVING, "one that differs after the answer in message 3"),
        (FORGETFUL, "one that differs after the answer in message 3"),
        (NO_SYSTEM, ...),
    ],
)
def test_a_tokenizer_unsuitable_for_training_is_refused(tokenizer, template, got):
    with raises(InvalidValueError, field="chat_template", got=got, file="some-model"):
        check_tokenizer(with_template(tokenizer, template), "some-model")


def test_single_prompts_need_no_conversation_to_be_preserved(tokenizer):
    """Mistral's template can be trained with in the format of SOTOPIA-π, and in no other."""
    for template in (MOVING, NO_SYSTEM):
        check_tokenizer(with_template(tokenizer, template), "some-model", "single")
    refusing = with_template(tokenizer, "{{ raise_exception('never') }}")
    with raises(InvalidValueError, field="chat_template", file="some-model"):
        check_tokenizer(refusing, "some-model", "single")


def test_a_template_of_the_settings_takes_the_place_of_one_that_cannot_be_trained_with(tokenizer, tmp_path):
    """Mistral's, as the shipped configuration replaces it; its tokenizer begins every text with a space."""
    prompt = read_settings(CONFIGS / "bc_mistral_7b_chat.yaml", behavior_cloning.BehaviorCloningSettings).prompt
    with_template(tokenizer, MOVING).save_pretrained(tmp_path)
    with raises(InvalidValueError, field="chat_template", file=tmp_path.name):
        load_tokenizer(tmp_path)
    template = prompt.chat_template.replace("' ' + ", "")
    loaded = load_tokenizer(tmp_path, prompt.model_copy(update={"chat_template": template}))
    text = loaded.decode(prompt_ids(loaded, TALK))
    request, answer, news = (message["content"] for message in TALK[1:])
    assert text.endswith(f"[INST] You are Ada.\n\n{request}[/INST]{answer}<|im_end|>[INST] {news}[/INST]")


@pytest.mark.parametrize(
    ("template", "end", "refused"),
    [
        ("qwen2_5", "<|im_end|>", None),
        ("qwen3_instruct_2507", "<|im_end|>", None),
        ("llama3", "<|eot_id|>", None),
        ("llama3_1", "<|eot_id|>", None),
        ("gemma3", "<end_of_turn>", None),
        ("gemma", "<end_of_turn>", {"got": ...}),  # it refuses a system message
        # Later prompts leave out what was thought.
        ("qwen3", "<|im_end|>", {"got": "one that differs after the answer in message 3"}),
    ],
)
def test_templates_of_real_models(template, end, refused, tokenizer):
    """As TRL ships them. Only the tokens around what is said differ from the model's own tokenizer."""
    text = (Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja").read_text(encoding="utf-8")
    changed = with_template(tokenizer, text)
    changed.add_special_tokens({"eos_token": end, "bos_token": "<|begin_of_text|>"})
    if refused:
        with raises(InvalidValueError, field="chat_template", file=template, **refused):
            check_tokenizer(changed, template)
        return
    check_tokenizer(changed, template)
    first = [*prompt_ids(changed, TALK[:2]), *answer_ids(changed, TALK[2]["content"])]
    after = prompt_ids(changed, TALK)
    assert after[: len(first)] == first
    assert [*first, *glue_ids(changed, TALK[2:])] == after


@pytest.mark.parametrize(
    ("template", "thinking", "begins"),
    [
        ("qwen3", False, "<think>\n\n</think>\n\n"),
        ("qwen3_5_nothink", False, "<think>\n\n</think>\n\n"),
        ("qwen3_8", False, "<think>\n\n</think>\n\n"),
    ],
)
def test_a_model_that_can_think_is_trained_with_its_training_template(template, thinking, begins, tokenizer, tmp_path):
    """TRL's template where the model's own drops its reasoning; arguments appear in it and beside the trained model."""
    text = (Path(trl.__file__).parent / "chat_templates" / f"{template}.jinja").read_text(encoding="utf-8")
    with_template(tokenizer, text).save_pretrained(tmp_path / "own")
    if template == "qwen3":  # its answers would have to think
        with raises(InvalidValueError, field="chat_template", file="own") as caught:
            load_tokenizer(tmp_path / "own")
        assert "enable_thinking: false" in caught.value.hint
    prompt = PromptSettings(chat_template_kwargs={"enable_thinking": thinking})
    loaded = load_tokenizer(tmp_path / "own", prompt)
    first = [*prompt_ids(loaded, TALK[:2]), *answer_ids(loaded, TALK[2]["content"])]
    assert prompt_ids(loaded, TALK)[: len(first)] == first
    assert loaded.decode(prompt_ids(loaded, TALK[:2])).endswith(begins)
    loaded.save_pretrained(tmp_path / "trained")
    assert load_tokenizer(tmp_path / "trained", prompt).chat_template == loaded.chat_template


def test_an_unknown_argument_of_a_template_is_refused(tiny_model):
    with raises(InvalidValueError, field="prompt.chat_template_kwargs", got="enable_thnking"):
        load_tokenizer(tiny_model, PromptSettings(chat_template_kwargs={"enable_thnking": False}))


def test_no_token_is_added_for_padding(tokenizer):
    """Guards R14: a new token would need an embedding that is not there."""
    bare = copy.deepcopy(tokenizer)
    bare.pad_token = None
    check_tokenizer(bare, "some-model")
    assert bare.pad_token_id == bare.eos_token_id
    assert len(bare) == len(tokenizer)
    endless = copy.deepcopy(tokenizer)
    endless.eos_token = None
    with raises(InvalidValueError, field="eos_token", got=None):
        check_tokenizer(endless, "some-model")


def test_tiny_models_load_as_they_were_made(tiny_model, tokenizer):
    texts = ["How about $45?", "naïve ☕ 1234", TALK[2]["content"]]
    assert [tokenizer.decode(tokenizer(text)["input_ids"]) for text in texts] == texts
    assert load_tokenizer(tiny_model)(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert tokenizer("45")["input_ids"] == [*tokenizer("4")["input_ids"], *tokenizer("5")["input_ids"]]
    model = load_causal_lm(ModelSettings(base=str(tiny_model), lora=None))
    assert model.config.vocab_size >= len(tokenizer)
    # 1/sqrt(128), not the library's 0.02; embeddings three times as much
    assert 0.08 < model.model.layers[0].mlp.up_proj.weight.std().item() < 0.1
    assert 0.24 < model.model.embed_tokens.weight.std().item() < 0.3


def test_loading_errors_are_one_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    for load in (load_tokenizer, lambda path: load_causal_lm(ModelSettings(base=str(path)))):
        with raises(InvalidValueError, file="empty") as caught:
            load(tmp_path / "empty")
        assert "\n" not in str(caught.value)


def adapter(path, base):
    path.mkdir(parents=True)
    (path / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(base), "r": 8, "lora_alpha": 16})
    )
    return path


def test_an_adapter_of_another_base_is_refused_before_anything_is_loaded(tmp_path):
    (tmp_path / "base").mkdir()
    own = adapter(tmp_path / "own", tmp_path / "base")
    check_adapter(own, str(tmp_path / "base" / ".." / "base"))
    with raises(InvalidValueError, got="org/other", file="a"):
        load_causal_lm(ModelSettings(base="org/base", adapter=str(adapter(tmp_path / "a", "org/other"))))
    with raises(InvalidValueError, expected="an adapter (adapter_config.json)", file=tmp_path.name):
        check_adapter(tmp_path, "org/base")


def test_the_next_stage_finds_what_the_last_one_left(tmp_path):
    """Guards R9: the adapter lies where the next stage looks for it."""
    adapter(tmp_path / "bc" / "model", "org/base")
    settings = ModelSettings(base="other")
    assert start_from(tmp_path / "bc", settings).model_dump(include={"base", "adapter"}) == {
        "base": "org/base",
        "adapter": str(tmp_path / "bc" / "model"),
    }
    full = tmp_path / "full"
    full.mkdir()
    (full / "config.json").write_text("{}")
    assert start_from(full, settings).base == str(full)
    assert find_model(full) == full
    with raises(InvalidValueError, file=tmp_path.name):
        find_model(tmp_path)


def test_prompt_settings_are_saved_beside_the_model(tmp_path):
    assert read_prompt_settings(tmp_path) == PromptSettings()
    write_prompt_settings(tmp_path, PromptSettings(format="brief", max_length=99))
    assert read_prompt_settings(tmp_path) == PromptSettings(format="brief", max_length=99)


def test_four_bit_is_nf4_with_double_quantisation_or_a_sentence(monkeypatch, tmp_path):
    config = quantization_config(ModelSettings(base="m", quantization="nf4", dtype="bfloat16"))
    assert (config.load_in_4bit, config.bnb_4bit_quant_type, config.bnb_4bit_use_double_quant) == (True, "nf4", True)
    assert quantization_config(ModelSettings(base="m")) is None
    package = tmp_path / "bitsandbytes"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('libcudart.so.11.0: cannot open\\n(and more)')")
    with monkeypatch.context() as broken:
        broken.syspath_prepend(str(tmp_path))
        broken.delitem(sys.modules, "bitsandbytes", raising=False)
        with raises(InvalidValueError, field="quantization") as caught:
            quantization_config(ModelSettings(base="m", quantization="nf4"))
        assert "(libcudart.so.11.0: cannot open)" in caught.value.problem
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises(InvalidValueError, field="quantization", hint="install it, or set quantization: none"):
        quantization_config(ModelSettings(base="m", quantization="nf4"))
    for paged in ("paged_adamw_8bit", "adamw_8bit", "rmsprop_bnb", "lion_32bit"):
        with raises(InvalidValueError, field="trainer.optim", problem=f"{paged!r} needs bitsandbytes"):
            check_installed(SimpleNamespace(optim=OptimizerNames(paged), report_to=[]))
    check_installed(SimpleNamespace(optim=OptimizerNames("adamw_torch"), report_to=[]))


STAGES = {
    "behavior_cloning": lambda model, options, folder: behavior_cloning.run(
        behavior_cloning.BehaviorCloningSettings(
            model=ModelSettings(base=model, **options), data=(SourceSettings(run=folder),), output=f"{folder}/out"
        )
    ),
    "reward_model": lambda model, options, folder: reward_model.run(
        reward_model.RewardModelSettings(
            model=ModelSettings(base=model, **options), rows=(folder,), output=f"{folder}/out"
        )
    ),
    "grpo": lambda model, options, folder: grpo.run(
        GRPOSettings(
            mode="single-turn",
            start_from=model,
            data=(SourceSettings(run=folder),),
            reward=RewardSettings(model=model),
            trainer={"num_generations": 4},
            output=f"{folder}/out",
            **options,
        )
    ),
}


@pytest.mark.parametrize("stage", STAGES)
def test_four_bit_without_support_is_said_before_anything_is_read_or_written(stage, tiny_model, tmp_path, monkeypatch):
    import transformers

    def never(*args, **kwargs):
        raise AssertionError("loaded")

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "bitsandbytes" else find_spec(name, *more)
    )
    for loader in ("AutoTokenizer", "AutoConfig", "AutoModelForCausalLM", "AutoModelForSequenceClassification"):
        monkeypatch.setattr(getattr(transformers, loader), "from_pretrained", never)
    with raises(InvalidValueError, field="quantization") as caught:
        STAGES[stage](str(tiny_model), {"quantization": "nf4"}, str(tmp_path))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()  # or the same output would be refused with `quantization: none`
    with pytest.raises(AssertionError, match="loaded"):
        STAGES[stage](str(tiny_model), {"quantization": "none"}, str(tmp_path))


@pytest.mark.parametrize("stage", ["behavior_cloning", "reward_model"])
@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"trainer": {"report_to": "wandb"}}, {"field": "trainer.report_to", "nearest": None}),
        ({"trainer": {"report_to": "wnadb"}}, {"field": "trainer.report_to", "nearest": "wandb"}),
        ({"lora": ("q_proj", "v_prj")}, {"field": "model.lora.target_modules", "got": "v_prj", "nearest": "v_proj"}),
        ({"lora": "q_proj"}, {"field": "model.lora.target_modules", "got": "q_proj"}),
    ],
)
def test_impossible_settings_are_refused_before_reading_or_writing(
    stage, options, fields, tiny_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(integration_utils, "get_available_reporting_integrations", lambda: ["tensorboard"])
    model = ModelSettings(base=str(tiny_model), lora=LoraSettings(target_modules=options.get("lora", "all-linear")))
    kind, run, data = {
        "behavior_cloning": (behavior_cloning.BehaviorCloningSettings, behavior_cloning.run, {"data": [{"run": "x"}]}),
        "reward_model": (reward_model.RewardModelSettings, reward_model.run, {"rows": ["x"]}),
    }[stage]
    trainer = options.get("trainer", {})
    settings = kind.model_validate({"model": model, "output": str(tmp_path / "out"), "trainer": trainer, **data})
    with raises(InvalidValueError, **fields):
        run(settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("targets", [("q_proj", "layers.1.mlp.up_proj"), r".*\.[kv]_proj", "all-linear"])
def test_layers_to_adapt_may_be_named_in_all_of_peft_s_ways(targets, tiny_model):
    check_target_modules(ModelSettings(base=str(tiny_model), lora=LoraSettings(target_modules=targets)))


@pytest.mark.parametrize("text", ['{"r": 4', "[]", '{"r": 4}', '{"base_model_name_or_path": null}', "\xff"])
def test_a_damaged_adapter_is_reported_in_one_sentence(text, tmp_path):
    (tmp_path / "adapter_config.json").write_text(text, encoding="latin-1")
    with raises(InvalidValueError, expected="JSON with base_model_name_or_path", file="adapter_config.json"):
        start_from(tmp_path, ModelSettings(base=""))


def test_the_base_of_make_learn_has_at_most_five_million_weights(tmp_path):
    settings = BaseSettings(output="", partners=("linear",), fit=FitSettings())
    rng = random.Random(0)
    words = (" ".join("".join(rng.choices("abcdefgh", k=6)) for _ in range(50)) for _ in range(100))
    tokenizer = make_tiny_tokenizer(words, settings.vocabulary)
    assert len(tokenizer) == settings.vocabulary
    sizes = {"hidden": settings.hidden, "layers": settings.layers, "heads": settings.heads, "context": settings.context}
    model = load_causal_lm(ModelSettings(base=str(make_tiny_model(tmp_path, tokenizer, **sizes))))
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert settings.vocabulary * settings.hidden < weights <= 5_000_000


def test_a_base_is_identified_by_its_absolute_path(tiny_model, tmp_path, monkeypatch):
    """An adapter keeps the name of its base; a relative one would be found from one directory alone."""
    monkeypatch.chdir(tiny_model.parent)
    model = load_causal_lm(ModelSettings(base=tiny_model.name))
    assert model.config._name_or_path == str(tiny_model.resolve())
