"""Behaviour cloning and self-reinforcement: what is trained, what is kept, and that a killed run continues exactly."""

import json
import shutil
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest
from sotopia_training.fitting import loop as fitting
from sotopia_training.fitting.arguments import FitSettings, training_arguments
from sotopia_training.fitting.behavior_cloning import (
    IGNORED,
    BehaviorCloningSettings,
    Prepared,
    marked,
    prepare,
    run,
    tokenise,
    training_rows,
)
from sotopia_training.fitting.loop import begin_from, check_trained_model, load_for_training
from sotopia_training.models.loading import read_prompt_settings
from sotopia_training.models.tokenizers import answer_ids, prompt_ids
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import LoraSettings, ModelSettings

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.storage.directory import read_run
from tests.errors import raises
from tests.sotopia_training.conftest import BRIEF, StoppedError, killed_after

TINY = LoraSettings(rank=4, alpha=8, dropout=0.1)
NAMES = ("input_ids", "attention_mask", "labels")


@pytest.fixture(scope="module")
def few(expert_run, tmp_path_factory):
    """A selection of five episodes' first seats, so that an epoch is five steps of four rows."""
    file = tmp_path_factory.mktemp("selection") / "selection.jsonl"
    keys = [episode.key for episode in read_run(expert_run)][:10:2]
    file.write_text("".join(json.dumps({"episode": key, "seat": "agent_0", "why": "top"}) + "\n" for key in keys))
    return file


@pytest.fixture
def ask(tiny_model, expert_run, few, tmp_path):
    """Makes settings; nested ones are given as mappings."""

    def make(name="bc", model=None, trainer=None, **other):
        return settings_of(
            {
                "model": {"base": str(tiny_model), "lora": TINY.model_dump(), **(model or {})},
                "prompt": BRIEF.model_dump(),
                "data": [{"run": str(expert_run), "selection": str(few)}],
                "validation": 0,
                "output": str(tmp_path / name),
                "trainer": {
                    "learning_rate": 1e-3,
                    "num_train_epochs": 2,
                    "logging_steps": 1,
                    "warmup_steps": 0.2,
                    **(trainer or {}),
                },
                **other,
            },
            BehaviorCloningSettings,
            "test",
        )

    return make


def stage_of(settings):
    return StageDirectory(Path(settings.output), "behavior_cloning", settings)


def losses(figures):
    return [(entry["step"], entry["loss"], entry["learning_rate"]) for entry in figures["log"] if "loss" in entry]


# --- tokens -------------------------------------------------------------------------------------------------------


def test_the_loss_is_on_the_json_and_the_end_token_and_on_nothing_else(ask, tokenizer):
    """Guards invariant 8 and R2: decoded from what the trainer gets, prompt included and not empty."""
    settings = ask()
    stage = stage_of(settings)
    stage.open()
    rows, validation = prepare(settings, stage.path / "rows", tokenizer).load()
    assert validation is None
    _, samples = training_rows(settings, tokenizer)
    samples = list(samples)
    assert len(rows) == len(samples) == 20
    for tokens, (row, _) in zip(rows, samples, strict=True):
        trained = [
            token for token, label in zip(tokens["input_ids"], tokens["labels"], strict=True) if label != IGNORED
        ]
        prompt = [token for token, label in zip(tokens["input_ids"], tokens["labels"], strict=True) if label == IGNORED]
        assert tokenizer.decode(trained) == row.completion + "<|im_end|>"
        assert prompt == prompt_ids(tokenizer, row.prompt)
        assert tokens["input_ids"] == [*prompt, *trained]
        assert json.loads(row.completion)["action_type"]


def test_rows_are_never_truncated(tokenizer):
    """Guards R10: a row that is too long is an error where it is made, never a row without its answer."""
    prompt, answer = [{"role": "user", "content": "Go."}], '{"action_type": "none", "argument": ""}'
    size = len(prompt_ids(tokenizer, prompt)) + len(answer_ids(tokenizer, answer))
    assert len(tokenise(tokenizer, prompt, answer, size).input_ids) == size
    with raises(InvalidValueError, field="row", expected=f"at most {size - 1} tokens", got=size):
        tokenise(tokenizer, prompt, answer, size - 1)


def test_rows_are_shortened_before_they_are_tokenised(ask, tokenizer):
    def sizes(max_length):
        settings = ask(prompt={"format": "chat", "max_length": max_length, "max_answer": 48})
        maker, rows = training_rows(settings, tokenizer)
        pairs = [(tokens, tokenise(tokenizer, row.prompt, row.completion, max_length)) for row, tokens in rows]
        assert all(counted == tokens for counted, tokens in pairs)
        return maker.counts, [len(tokens.input_ids) for _, tokens in pairs]

    _, whole = sizes(4096)
    counts, short = sizes(max(whole) - 1)
    assert max(short) <= max(whole) - 1
    assert len(short) == len(whole)
    assert counts.shortened > 0


def test_cloned_answers_are_answers_that_the_policy_could_give(ask, tokenizer):
    """Behind the prompt it would be shown, which leaves room for any answer, and in no more tokens than it may use."""
    whole = training_rows(ask(prompt={"format": "chat"}), tokenizer)[1]
    limit = max(len(tokens.input_ids) for _, tokens in whole)  # the longest row fits, with no room to spare
    settings = ask(prompt={"format": "chat", "max_length": limit, "max_answer": 48})
    maker, rows = training_rows(settings, tokenizer)
    prompt_lengths = [sum(label == IGNORED for label in tokens.labels) for _, tokens in rows]
    assert max(prompt_lengths) <= limit - 48
    assert maker.counts.shortened > 0
    answers = [sum(label != IGNORED for label in tokens.labels) for _, tokens in training_rows(settings, tokenizer)[1]]
    longest = max(answers)
    brief = ask(prompt={"format": "chat", "max_length": 4096, "max_answer": longest - 1})
    maker, rows = training_rows(brief, tokenizer)
    assert len(list(rows)) == maker.counts.rows == sum(size < longest for size in answers)
    assert (maker.counts.long_answers, maker.counts.longest_answer) == (answers.count(longest), longest)


def test_a_row_can_be_printed(tokenizer):
    row = tokenise(tokenizer, [{"role": "user", "content": "Go."}], '{"a": 1}', 100)
    assert marked(tokenizer, row, colour=False).endswith('assistant\n[[{"a": 1}<|im_end|>]]')
    assert "\033[32m{" in marked(tokenizer, row, colour=True)
    assert marked(tokenizer, row, colour=False).count("[[") == 1


def trained_runs(rows):
    """Every stretch of trained tokens in some rows."""
    return Counter(
        tuple(token for token, _ in pairs)
        for row in rows
        for trained, pairs in groupby(zip(row.input_ids, row.labels, strict=True), key=lambda pair: pair[1] != IGNORED)
        if trained
    )


@pytest.mark.parametrize("weight", [1, 2])
def test_conversations_train_the_answers_of_all_their_turns_in_fewer_tokens(ask, few, expert_run, tokenizer, weight):
    data = [{"run": str(expert_run), "selection": str(few), "weight": weight}]
    turns = [tokens for _, tokens in training_rows(ask(data=data), tokenizer)[1]]
    whole = [tokens for _, tokens in training_rows(ask(data=data, rows="conversations"), tokenizer)[1]]
    assert trained_runs(whole) == trained_runs(turns)
    if weight == 1:
        assert len(whole) == 5
        assert sum(len(row.input_ids) for row in whole) < 0.5 * sum(len(row.input_ids) for row in turns)


def test_prompts_that_do_not_continue_each_other_stay_separate_rows(ask, tokenizer):
    """Those that have lost their oldest turns, and those of the format that renders all anew."""
    _, rows = training_rows(ask(rows="conversations", prompt={"format": "single"}), tokenizer)
    assert len(list(rows)) == 20
    _, rows = training_rows(ask(rows="conversations"), tokenizer)
    longest = max(len(tokens.input_ids) for _, tokens in rows)
    short = {"format": "brief", "max_length": longest + 10, "max_answer": 48}
    maker, rows = training_rows(ask(rows="conversations", prompt=short), tokenizer)
    cut = list(rows)
    assert maker.counts.shortened > 0
    assert max(len(tokens.input_ids) for _, tokens in cut) < longest
    _, turns = training_rows(ask(prompt=short), tokenizer)
    assert trained_runs(tokens for _, tokens in cut) == trained_runs(tokens for _, tokens in turns)


def test_validation_scenarios_are_not_trained_on(ask, expert_run, tokenizer):
    """Guards R19."""
    settings = ask(data=[{"run": str(expert_run)}], validation=0.2)
    stage = stage_of(settings)
    stage.open()
    prepared = prepare(settings, stage.path / "rows", tokenizer)
    rows, validation = prepared.load()
    assert prepared.facts["data"] == {
        "train": {"rows": len(rows), "scenarios": 12},
        "validation": {"rows": len(validation), "scenarios": 3},
    }
    texts = [{tokenizer.decode(ids).split("<|im_end|>")[0] for ids in part["input_ids"]} for part in (rows, validation)]
    assert texts[0]
    assert not texts[0] & texts[1]
    assert Prepared(stage.path / "rows", {}).load()[0]["labels"] == rows["labels"]


# --- what cannot be trained ---------------------------------------------------------------------------------------


@pytest.fixture
def earlier(tiny_model, tmp_path):
    """An earlier stage's directory with an adapter's configuration and how it is prompted."""
    folder = tmp_path / "earlier" / "model"
    folder.mkdir(parents=True)
    config = {
        "base_model_name_or_path": str(tiny_model),
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["k_proj", "q_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "sotopia_policy.json").write_text(json.dumps({"prompt": BRIEF.model_dump()}))
    return tmp_path / "earlier"


def test_untrainable_settings_are_refused_before_loading_a_model(earlier, tiny_model, tmp_path):
    base = str(tiny_model)
    start = begin_from(ModelSettings(base="", lora=TINY), str(earlier), BRIEF)
    assert (start.base, start.adapter) == (base, str(earlier / "model"))
    table = [
        (ModelSettings(base=base, lora=None), earlier, BRIEF, {"field": "model.lora", "got": None}),
        (ModelSettings(base="org/other", lora=TINY), earlier, BRIEF, {"got": base}),
        (ModelSettings(base=base), earlier, BRIEF, {"field": "model.lora", "got": "(8, 16)"}),
        (
            ModelSettings(base=base, lora=TINY.model_copy(update={"target_modules": ("q_proj",)})),
            earlier,
            BRIEF,
            {"field": "model.lora.target_modules", "got": "('q_proj',)"},
        ),
        (
            ModelSettings(base=base, lora=TINY),
            earlier,
            BRIEF.model_copy(update={"format": "chat"}),
            {"field": "prompt.format", "got": "chat"},
        ),
        (ModelSettings(base=base, lora=None, quantization="nf4"), None, BRIEF, {"field": "model.quantization"}),
        (ModelSettings(base="org/other", lora=TINY, adapter=str(earlier / "model")), None, BRIEF, {"got": base}),
        (ModelSettings(base=base), tmp_path / "nowhere", BRIEF, {"file": "nowhere"}),
    ]
    for model, path, prompt, fields in table:
        with raises(InvalidValueError, **fields):
            begin_from(model, None if path is None else str(path), prompt)


PASSED = {  # named in `trainer`, and what the configuration class has then
    "learning_rate": ("5e-6", {"learning_rate": 5e-6}),
    "num_train_epochs": (3, {"num_train_epochs": 3}),
    "per_device_train_batch_size": (3, {"per_device_train_batch_size": 3, "per_device_eval_batch_size": 3}),
    "optim": ("adafactor", {"optim": "adafactor"}),
    "bf16": (True, {"bf16": True}),
    "save_steps": (9, {"save_steps": 9, "eval_steps": 9, "save_strategy": "steps", "eval_strategy": "steps"}),
    "eval_strategy": (False, {"eval_strategy": "no", "save_strategy": "epoch"}),  # a bare no in YAML
    "report_to": (["tensorboard"], {"report_to": ["tensorboard"]}),
    "run_name": ("first", {"run_name": "first"}),
    "push_to_hub": (True, {"push_to_hub": True}),
    "fsdp": (True, {"fsdp": True}),
    "lr_scheduler_kwargs": ({"num_cycles": 2}, {"lr_scheduler_kwargs": {"num_cycles": 2}}),
}


def test_an_argument_of_the_trainer_reaches_it_unchanged(tmp_path):
    """Guards R17 and R18: settings that were declared and never read."""
    from trl import SFTConfig

    for name, (value, expected) in PASSED.items():
        arguments = training_arguments(FitSettings(trainer={name: value}), str(tmp_path), True, SFTConfig)
        assert {key: getattr(arguments, key) for key in expected} == expected, name
    plain = training_arguments(FitSettings(), str(tmp_path), False, SFTConfig)
    assert (plain.eval_strategy, plain.save_strategy, plain.bf16) == ("no", "epoch", False)
    best = training_arguments(FitSettings(keep="best"), str(tmp_path), True, SFTConfig)
    assert (best.load_best_model_at_end, best.metric_for_best_model) == (True, "eval_loss")


@pytest.mark.parametrize(
    ("trainer", "error", "fields"),
    [
        ({"learning_rat": 1}, UnknownNameError, {"nearest": "learning_rate"}),
        ({"loss_type": "grpo"}, InvalidValueError, {"got": "grpo"}),
        ({"lr_scheduler_type": "cosin"}, UnknownNameError, {"nearest": "cosine"}),
        ({"optim": "adamw_trch"}, UnknownNameError, {"nearest": "adamw_torch"}),
        ({"learning_rate": -1}, InvalidValueError, {"got": -1}),
        ({"seed": "many"}, InvalidValueError, {"got": "many"}),
        ({"output_dir": "x"}, InvalidValueError, {"got": "x"}),
        ({"max_length": 9}, InvalidValueError, {"got": 9}),
        ({"load_best_model_at_end": True}, InvalidValueError, {"got": True}),
        ({"deepspeed": "zero3.json"}, InvalidValueError, {"field": "trainer"}),
        ({"lr_scheduler_type": "warmup_stable_decay"}, InvalidValueError, {"field": "trainer.lr_scheduler_kwargs"}),
        ({"save_only_model": True}, InvalidValueError, {"got": True}),
        ({"eval_strategy": "epoch"}, InvalidValueError, {"got": "epoch"}),
        ({"seed": -1}, InvalidValueError, {"got": -1}),
        ({"report_to": 5}, InvalidValueError, {"got": 5}),
        ({"accelerator_config": 3}, InvalidValueError, {"got": 3}),
        ({"report_to": ["wnadb"]}, UnknownNameError, {"nearest": "wandb"}),
    ],
)
def test_an_invalid_argument_is_refused_before_reading_or_writing(ask, trainer, error, fields):
    from transformers.integrations import is_deepspeed_zero3_enabled

    settings = ask("never", trainer=trainer, data=[{"run": "nowhere"}])
    with raises(error, **{"field": f"trainer.{next(iter(trainer))}"} | fields) as caught:
        run(settings)
    assert "\n" not in str(caught.value)
    assert not Path(settings.output).exists()
    assert not is_deepspeed_zero3_enabled()  # a refused configuration stays without effect


# --- training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("earlier", [pytest.param(None, marks=pytest.mark.slow("trains three times")), "adapter"])
def test_a_killed_run_continues_with_the_losses_of_an_unbroken_one(ask, monkeypatch, earlier):
    """Dropout, data order, schedule and optimiser go on exactly; a checkpoint that was cut short is passed over.

    So it does where it began with an earlier stage's adapter, as self-reinforcement does.
    """
    import torch
    from safetensors.torch import load_file

    trainer = {"save_steps": 3, "gradient_accumulation_steps": 2}
    start = {}
    if earlier is not None:
        first = run(ask("earlier", trainer={**trainer, "max_steps": 3}))
        start = {"start_from": ask("earlier").output}
    whole = run(ask("whole", trainer=trainer, **start))
    assert not start or losses(whole)[0][1] != losses(first)[0][1]  # the same rows and dropout, other weights
    settings = ask("broken", trainer=trainer, **start)
    with monkeypatch.context() as patched:
        killed_after(patched, 5)
        with pytest.raises(StoppedError):
            run(settings)
    stage = stage_of(settings)
    assert not stage.model.exists()
    cut = stage.checkpoints / "checkpoint-5"
    shutil.copytree(stage.checkpoints / "checkpoint-3", cut)
    (cut / "trainer_state.json").write_text('{"global_step": 5, "log')
    with monkeypatch.context() as patched:  # rows were made of the prompts of another version
        patched.setattr("sotopia_env.policies.agent_prompt.sample_text", "other text of {}".format)
        with raises(InvalidValueError, field="start.prompts", file="broken"):
            run(settings)
    continued = run(settings)
    assert losses(continued) == losses(whole)
    assert [step for step, _, _ in losses(whole)] == [1, 2, 3, 4, 5, 6]
    one, other = (load_file(stage_of(s).model / "adapter_model.safetensors") for s in (settings, ask("whole")))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert run(settings) == stage.figures  # done: nothing is trained again

    # R18: warm-up is a fifth of the six optimiser steps (rounded up), although there are twelve batches.
    rates = [rate for _, _, rate in losses(whole)]
    assert (rates[0], rates[1], max(rates)) == (5e-4, 1e-3, 1e-3)
    assert rates.index(max(rates)) == 1  # the first step has a rate, too

    # R9: the adapter is where the next stage looks, with how it is prompted, and continues from its very weights.
    assert read_prompt_settings(stage.model) == BRIEF
    model_settings = begin_from(settings.model, settings.output, BRIEF)
    model, new = load_for_training(model_settings, False)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert new is None
    assert len(trained) == len(one)
    for name, weight in one.items():
        assert torch.equal(trained[name.replace(".weight", ".default.weight")], weight)


@pytest.mark.parametrize("lora", [True, False])
def test_weights_that_the_trainer_does_not_load_are_loaded_or_refused(ask, monkeypatch, lora):
    """As with transformers before 5.23 and a second adapter, or with another release's fault."""
    from transformers import Trainer

    whole, broken = (ask(name, {} if lora else {"lora": None}, {"save_steps": 1}) for name in ("whole", "broken"))
    with monkeypatch.context() as patched:
        killed_after(patched, 3)
        with pytest.raises(StoppedError):
            run(broken)
    monkeypatch.setattr(Trainer, "_load_from_checkpoint", lambda *_: None)
    if lora:
        assert losses(run(broken)) == losses(run(whole))
    else:
        with raises(InvalidValueError, field="model.embed_tokens.weight", file="checkpoint-2"):
            run(broken)


def test_a_run_killed_after_the_kept_epoch_still_keeps_that_epoch(ask, monkeypatch):
    """B.6: of a schedule of many epochs, the model after one of them. Also with validation losses on the way."""
    settings = ask("kept", model={"lora": None}, trainer={"num_train_epochs": 6}, keep=2, validation=0.2)
    with monkeypatch.context() as patched:
        patched.setattr(fitting, "save_model", lambda trainer, stage: (_ for _ in ()).throw(StoppedError()))
        with pytest.raises(StoppedError):
            run(settings)
    last = stage_of(settings).complete_checkpoints()[-1][1]
    assert last["epoch"] == 2
    figures = run(settings)
    assert (figures["epochs"], figures["steps"]) == (2, last["global_step"])
    assert len(figures["validation_losses"]) == 2
    assert losses(figures)[-1][1] < losses(figures)[0][1]
    assert losses(figures)[-1][2] > 5e-4  # the schedule is that of six epochs
    assert (stage_of(settings).model / "config.json").is_file()
    assert begin_from(settings.model, settings.output, BRIEF).base == str(stage_of(settings).model)


def answers(tokenizer, ids, rows):
    """Where the assistant's words are in a rendered conversation; of all its turns, or of the last alone."""
    head = tokenizer("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
    starts = [at + len(head) for at in range(len(ids)) if ids[at : at + len(head)] == head]
    spans = [range(start, ids.index(tokenizer.eos_token_id, start) + 1) for start in starts]
    return {index for span in (spans if rows == "conversations" else spans[-1:]) for index in span}


@pytest.mark.parametrize("rows", ["turns", "conversations"])
def test_the_trainer_feeds_the_model_labels_on_answers_alone(ask, tokenizer, monkeypatch, rows):
    """Guards R2: what the rows say must survive the trainer's own preparation and padding."""
    from trl import SFTTrainer

    trainers, build = [], SFTTrainer.__init__
    monkeypatch.setattr(SFTTrainer, "__init__", lambda self, *a, **k: (build(self, *a, **k), trainers.append(self))[0])
    run(ask(rows=rows, model={"lora": None}, trainer={"max_steps": 1}))
    (trainer,) = trainers
    batch = next(iter(trainer.get_train_dataloader()))
    assert set(batch) == set(NAMES)
    padded = 0
    for ids, mask, labels in zip(*(batch[name].tolist() for name in NAMES), strict=True):
        size = sum(mask)
        there = [index for index, one in enumerate(mask) if one]
        padded += len(mask) - size
        row = [ids[index] for index in there]
        positions = answers(tokenizer, row, rows)
        assert 0 < len(positions) < size
        assert [labels[index] for index in there] == [t if at in positions else IGNORED for at, t in enumerate(row)]
        assert {label for label, one in zip(labels, mask, strict=True) if not one} <= {IGNORED}
    assert padded


def test_the_quantised_model_is_the_one_that_is_trained(ask, monkeypatch):
    """Guards R8: sotopia-rl loads a 4-bit model and then trains another."""
    from trl import SFTTrainer

    trainers, prepared = [], []
    build, ready = SFTTrainer.__init__, fitting.prepare_quantised

    def note(self, *args, **kwargs):
        build(self, *args, **kwargs)
        trainers.append(self)

    monkeypatch.setattr(SFTTrainer, "__init__", note)
    monkeypatch.setattr(fitting, "prepare_quantised", lambda *args: prepared.append(1) or ready(*args))
    run(ask("qlora", model={"quantization": "nf4"}, trainer={"max_steps": 1}))
    (trainer,) = trainers
    adapted = [m for m in trainer.model.modules() if hasattr(m, "lora_A")]
    assert len(adapted) == 14  # q, k, v, o, gate, up, down of two layers
    assert {type(m.get_base_layer()).__name__ for m in adapted} == {"Linear4bit"}
    assert prepared == [1]
    trained = {name: p for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert len(trained) == 28
    assert all("lora_" in name and str(p.dtype) == "torch.float32" for name, p in trained.items())


def test_another_model_than_the_quantised_one_is_refused(tiny_model):
    from peft import get_peft_model

    settings = ModelSettings(base=str(tiny_model), lora=TINY)
    model, new = load_for_training(settings, False)
    quantised = settings.model_copy(update={"quantization": "nf4"})
    with raises(InvalidValueError, field="model.quantization", got="no adapter"):
        check_trained_model(model, quantised)
    adapted = get_peft_model(model, new)
    with raises(InvalidValueError, field="model.quantization") as caught:
        check_trained_model(adapted, quantised)
    assert caught.value.got.endswith("q_proj")
    check_trained_model(adapted, settings)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant_with_warmup"])
def test_the_first_step_has_a_learning_rate_and_the_last_one_too(ask, monkeypatch, schedule):
    from sotopia_training.fitting import loop
    from transformers import TrainerCallback

    rates = []

    class Rates(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, optimizer, **kwargs):
            rates.append(optimizer.param_groups[0]["lr"])

    callbacks = loop._callbacks
    monkeypatch.setattr(loop, "_callbacks", lambda fit: [*callbacks(fit), Rates()])
    trainer = {"max_steps": 5, "warmup_steps": 2, "learning_rate": 1.0, "lr_scheduler_type": schedule}
    run(ask(f"warm-{schedule}", trainer={**trainer, "per_device_train_batch_size": 1}))
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert 0 < rates[-1] <= rates[2]


def test_a_check_names_a_tracker_that_is_not_installed(ask, tmp_path, monkeypatch, capsys):
    from sotopia_training.commands import run_stage
    from transformers.integrations import integration_utils

    from sotopia_env.foundation.yaml_text import to_yaml

    monkeypatch.setattr(integration_utils, "get_available_reporting_integrations", lambda: ["tensorboard"])
    settings = ask("tracked", trainer={"report_to": ["trackio"]})
    (tmp_path / "c.yaml").write_text(to_yaml(settings.model_dump(mode="json")))
    assert run_stage("bc", ["--config", str(tmp_path / "c.yaml"), "--check"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'trackio' is not installed" in line
