"""The reward model: learns values, is reloaded as it was, reads answers whole, and serves as scorer and as reward."""

import asyncio
import copy
import json
import math
import random

import pytest
from sotopia_training.data.samples import RowMaker
from sotopia_training.fitting.behavior_cloning import IGNORED
from sotopia_training.models.loading import load_causal_lm, lora_config, write_prompt_settings
from sotopia_training.models.tokenizers import answer_ids, prompt_ids
from sotopia_training.reward.model import RewardModelSettings, collate, padding_id, prepare, regression_figures, run
from sotopia_training.reward.scorer import NOTE, RewardScorer, score_ids
from sotopia_training.reward.text import fitting_ids, read_rows, scored_ids
from sotopia_training.stage.settings import LoraSettings, ModelSettings, PromptSettings

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError, PolicyError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.policies import BestOfNPolicy, Decision
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.policies.combined.best_of_n import Scorer
from sotopia_env.storage.directory import read_run
from sotopia_env.world.action import Action, ActionType, to_json
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.episode import Generation
from sotopia_env.world.observation import SeatView
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises
from tests.sotopia_training.conftest import BRIEF, StoppedError, killed_after

GOOD, BAD = '{"action_type": "speak", "argument": "My offer is $40."}', '{"action_type": "leave", "argument": ""}'
TRAINER = {
    "learning_rate": 1e-3,
    "max_steps": 24,
    "save_steps": 24,
    "per_device_train_batch_size": 8,
    "logging_steps": 1,
    "warmup_steps": 0.25,
}


@pytest.fixture(scope="module")
def sample_rows(expert_run):
    maker = RowMaker(BRIEF)
    return [row for episode in read_run(expert_run) for row in maker.rows(episode, "agent_0")]


@pytest.fixture(scope="module")
def rows_file(sample_rows, tmp_path_factory):
    """What is said late is worth more; and some rows have no value."""
    folder = tmp_path_factory.mktemp("rewards")
    lines = [
        {
            "prompt": row.prompt,
            "completion": row.completion if number % 2 else [{"role": "assistant", "content": row.completion}],
            "value": row.turn / 8 if number % 10 else None,
            "scenario": row.scenario,
            "episode": row.episode,
        }
        for number, row in enumerate(sample_rows)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def ask(tiny_model, rows, output, model=None, trainer=None, **other):
    return settings_of(
        {
            "model": {"base": str(tiny_model), "lora": None, **(model or {})},
            "prompt": BRIEF.model_dump(),
            "rows": [str(rows)],
            "validation": 0.2,
            "output": str(output),
            "trainer": {**TRAINER, **(trainer or {})},
            **other,
        },
        RewardModelSettings,
        "test",
    )


@pytest.fixture(scope="module")
def trained(tiny_model, rows_file, tmp_path_factory):
    """A stage whose weights were all trained, with its figures."""
    output = tmp_path_factory.mktemp("stages") / "rm"
    return output, run(ask(tiny_model, rows_file, output))


@pytest.fixture(scope="module")
def scorer(trained):
    return RewardScorer.load(trained[0], batch_size=7)


# --- text ---------------------------------------------------------------------------------------------------------


def test_prompt_and_answer_are_read_as_one_rendering(tokenizer):
    prompt = [{"role": "user", "content": "Go."}]
    whole = [*prompt, {"role": "assistant", "content": GOOD}]
    text = tokenizer.apply_chat_template(whole, tokenize=False, add_generation_prompt=False)
    assert scored_ids(tokenizer, prompt, GOOD) == tokenizer(text, add_special_tokens=False)["input_ids"]
    cut = scored_ids(tokenizer, prompt, '{"action', finished=False)
    assert tokenizer.decode(cut).endswith('assistant\n{"action')  # R12: no end token is pretended


def test_an_answer_is_never_cut(tokenizer):
    """Guards R11 and R12: a row that is too long is left out whole."""
    prompt = [{"role": "system", "content": "You are Ada."}, {"role": "user", "content": "Bo said: hello."}]
    whole = scored_ids(tokenizer, prompt, GOOD)
    assert fitting_ids(tokenizer, prompt, GOOD, len(whole)) == whole
    assert fitting_ids(tokenizer, prompt, GOOD, len(whole) - 1) is None


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({"instruction": "x", "completion": GOOD, "value": 1, "scenario": "s"}, "prompt"),
        ({"prompt": [], "completion": GOOD, "value": 1, "scenario": "s"}, "prompt"),
        ({"prompt": [{"role": "user", "content": "x"}], "value": 1, "scenario": "s"}, "completion"),
        ({"prompt": [{"role": "user", "content": "x"}], "completion": GOOD, "scenario": "s"}, "value"),
        (
            {"prompt": [{"role": "user", "content": "x"}], "completion": GOOD, "value": {"goal": 1}, "scenario": "s"},
            "value",
        ),
        (
            {"prompt": [{"role": "user", "content": "x"}], "completion": GOOD, "value": math.nan, "scenario": "s"},
            "",
        ),
    ],
)
def test_an_invalid_row_is_refused(tmp_path, line, field):
    """Guards R2 and R3: another script's columns, or a dictionary of values, are no rows without text or value."""
    (tmp_path / "rows.jsonl").write_text(json.dumps(line) + "\n")
    with raises(DamagedRecordError, file="rows.jsonl", line=1, field=field):
        list(read_rows(tmp_path))


# --- data ---------------------------------------------------------------------------------------------------------


def test_missing_values_and_long_rows_are_counted_and_never_zero(tiny_model, rows_file, tokenizer, tmp_path):
    settings = ask(tiny_model, rows_file, tmp_path, prompt={**BRIEF.model_dump(), "max_length": 130})
    summary = prepare(settings, tmp_path / "rows", tokenizer)
    assert summary["counts"]["without_value"] == 12
    assert summary["counts"]["too_long"] > 0
    assert sum(summary["counts"].values()) == 120
    assert prepare(settings, tmp_path / "rows", tokenizer) == summary
    with raises(InvalidValueError, field="rows"):
        prepare(settings.model_copy(update={"prompt": PromptSettings(max_length=16)}), tmp_path / "none", tokenizer)


def test_the_split_is_by_scenario_or_as_the_rows_say(
    tiny_model, rows_file, sample_rows, tokenizer, tmp_path, expert_run
):
    """Guards R19; rows whose values were scaled on a training part keep that part."""
    keys = sorted({row.scenario for row in sample_rows})

    def write(name, part):
        lines = [{**json.loads(line), "value": 1} for line in (rows_file / "rows.jsonl").read_text().splitlines()]
        lines = [{**line, "split": part(number, line)} for number, line in enumerate(lines)]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return prepare(ask(tiny_model, tmp_path / name, tmp_path), tmp_path / f"{name}.d", tokenizer)["data"]

    fixed = write("given", lambda number, line: "validation" if line["scenario"] == keys[0] else "train")
    assert fixed == {"train": {"rows": 112, "scenarios": 14}, "validation": {"rows": 8, "scenarios": 1}}
    ours = write("ours", lambda number, line: None)
    assert (ours["train"]["scenarios"], ours["validation"]["scenarios"]) == (12, 3)
    with raises(InvalidValueError, field="split"):
        write("part", lambda number, line: "train" if number else None)
    with raises(InvalidValueError, field="scenario"):
        write("both", lambda number, line: "train" if number % 2 else "validation")
    TaskSet([next(read_run(expert_run)).task]).save(tmp_path / "kept.jsonl")
    config = ask(tiny_model, rows_file, tmp_path, evaluation_tasks=str(tmp_path / "kept.jsonl"))
    with raises(InvalidValueError, field="episode"):
        prepare(config, tmp_path / "kept.d", tokenizer)


def test_a_batch_is_padded_on_the_right_with_a_token_that_ends_no_row(tokenizer):
    rows = [{"input_ids": [5, 6, 7], "labels": 0.5}, {"input_ids": [8], "labels": -1.0}]
    batch = collate(rows, 0)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [0.5, -1.0]
    ending = copy.deepcopy(tokenizer)
    ending.pad_token = ending.eos_token
    for one in (tokenizer, ending):
        end = scored_ids(one, [{"role": "user", "content": "x"}], GOOD)[-1]
        assert padding_id(one) not in (end, one.eos_token_id)
    assert IGNORED not in batch["input_ids"]


def test_the_figures_against_a_worked_example():
    figures = regression_figures([0.0, 1.0, 3.0], [0.0, 2.0, 2.5], constant=1.0)
    assert figures["mse"] == pytest.approx((0 + 1 + 0.25) / 3)
    assert figures["constant_mse"] == pytest.approx((1 + 1 + 2.25) / 3)
    assert figures["spearman"] == pytest.approx(1.0)
    assert figures["pearson"] == pytest.approx(0.8660, abs=1e-3)
    flat = regression_figures([1.0, 1.0], [0.0, 2.0], 1.0)
    assert (flat["pearson"], flat["spearman"]) == (None, None)


# --- the model ----------------------------------------------------------------------------------------------------


def test_it_learns_and_reports_figures_on_unseen_scenarios(trained):
    _, figures = trained
    held_out = figures["held_out"]
    assert held_out["mse"] < 0.5 * held_out["constant_mse"]
    assert held_out["pearson"] > 0.7
    assert held_out["spearman"] > 0.7
    assert figures["data"]["validation"]["scenarios"] == 3
    assert len(figures["validation_losses"]) == 1  # R18: not after every step
    rates = [entry["learning_rate"] for entry in figures["log"] if "loss" in entry]
    assert rates.index(max(rates)) == 5  # R18: the last of a quarter of 24 optimiser steps, not of the rows
    assert rates[0] > 0


ADAPTER = {"lora": {"rank": 4, "alpha": 8, "dropout": 0.1}}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param({"lora": None}, marks=pytest.mark.slow("trains three times")),
        ADAPTER,
        pytest.param({**ADAPTER, "quantization": "nf4"}, id="4 bit"),
    ],
)
def test_a_killed_run_continues_with_the_losses_and_ends_with_the_weights_of_an_unbroken_one(
    model, tiny_model, rows_file, tmp_path, monkeypatch
):
    import torch
    from safetensors.torch import load_file

    def settings_for(name):
        trainer = {"max_steps": 6, "save_steps": 2}
        return ask(tiny_model, rows_file, tmp_path / name, model=model, trainer=trainer)

    def losses(figures):
        names = ("step", "loss", "eval_loss", "eval_mse", "learning_rate", "grad_norm")
        return [{name: entry[name] for name in names if name in entry} for entry in figures["log"]]

    whole = run(settings_for("whole"))
    with monkeypatch.context() as patched:
        killed_after(patched, 5)
        with pytest.raises(StoppedError):
            run(settings_for("broken"))
    continued = run(settings_for("broken"))
    assert losses(continued) == losses(whole)
    assert continued["held_out"] == whole["held_out"]
    (one,), (other,) = (list((tmp_path / name / "model").glob("*.safetensors")) for name in ("whole", "broken"))
    weights, again = load_file(one), load_file(other)
    assert weights.keys() == again.keys()
    assert all(torch.equal(weights[name], again[name]) for name in weights)


def test_scores_do_not_depend_on_the_batch(scorer, sample_rows):
    pairs = [(row.prompt, row.completion) for row in random.Random(0).sample(sample_rows, 20)]
    together = scorer.rate(pairs)
    assert together == pytest.approx([scorer.rate([pair])[0] for pair in pairs], abs=1e-5)
    assert len({round(score, 3) for score in together}) > 3
    lengths = []
    from sotopia_training.reward import scorer as reward_scorer

    score = reward_scorer.score_ids
    try:
        reward_scorer.score_ids = lambda model, rows: lengths.append([len(row) for row in rows]) or score(model, rows)
        scorer.rate(pairs)
    finally:
        reward_scorer.score_ids = score
    flat = [size for batch in lengths for size in batch]
    assert [len(batch) for batch in lengths] == [7, 7, 6]
    assert flat == sorted(flat, reverse=True)


@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_adapter_and_score_head_are_reloaded_bit_for_bit(
    tiny_model, rows_file, sample_rows, tmp_path, monkeypatch, quantization
):
    """Guards R13: the head is the trained one, and the base is loaded in the precision it was trained with."""
    import torch
    from transformers import Trainer

    trainers, build = [], Trainer.__init__
    monkeypatch.setattr(Trainer, "__init__", lambda self, *a, **k: (build(self, *a, **k), trainers.append(self))[0])
    lora = {"rank": 4, "alpha": 8, "dropout": 0.3}
    settings = ask(
        tiny_model,
        rows_file,
        tmp_path / "rm",
        model={"lora": lora, "quantization": quantization},
        trainer={"max_steps": 3, "save_steps": 3, "per_device_train_batch_size": 4},
        validation=0,
    )
    run(settings)
    (trainer,) = trainers
    model = trainer.model.eval()
    loaded = RewardScorer.load(tmp_path / "rm")
    head = model.base_model.model.score.modules_to_save["default"].weight
    assert head.abs().max() > 0
    assert torch.equal(loaded.model.score.weight, head)
    rows = [scored_ids(loaded.tokenizer, row.prompt, row.completion) for row in sample_rows[:3]]
    own = score_ids(model.base_model.model, rows)
    assert score_ids(loaded.model, rows) == pytest.approx(own, abs=1e-5 if quantization == "none" else 3e-2)
    assert loaded.rate([(sample_rows[0].prompt, sample_rows[0].completion)]) == loaded.rate(
        [(sample_rows[0].prompt, sample_rows[0].completion)]
    )
    kinds = {type(m.get_base_layer() if hasattr(m, "lora_A") else m).__name__ for m in loaded.model.modules()}
    assert ("Linear4bit" in kinds) == (quantization == "nf4")
    assert ("dropout" in str(loaded.model).lower()) == (quantization == "nf4")  # merged, or beside and switched off
    assert not any(m.training for m in loaded.model.modules())
    if quantization == "none":
        from safetensors.torch import load_file

        saved = load_file(tmp_path / "rm" / "model" / "adapter_model.safetensors")
        name = next(name for name in saved if name.endswith("score.weight"))
        assert torch.equal(saved[name], head)


def test_a_model_without_a_trained_head_is_refused(trained, tiny_model, tmp_path):
    """Guards R13: a randomly initialised head would give random rewards."""
    with raises(InvalidValueError, file=tiny_model.name):
        RewardScorer.load(tiny_model)
    copied = tmp_path / "headless"
    copied.mkdir()
    for file in tiny_model.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    (copied / NOTE).write_text((trained[0] / "model" / NOTE).read_text())
    with raises(InvalidValueError, file="headless"):
        RewardScorer.load(copied)


def adapter_start(adapted, rows_file, out, base, **trainer):
    short = {"max_steps": 3, "save_steps": 3, "per_device_train_batch_size": 4, "warmup_steps": 0, **trainer}
    return ask(base, rows_file, out, {"lora": {"dropout": 0}}, short, validation=0, start_from=str(adapted))


def test_a_reward_model_continues_from_a_language_models_adapter(adapted, tiny_model, rows_file, sample_rows, tmp_path):
    import torch
    from safetensors.torch import load_file

    run(adapter_start(adapted, rows_file, tmp_path / "still", tiny_model, learning_rate=1e-30))
    run(adapter_start(adapted, rows_file, tmp_path / "moved", tiny_model, learning_rate=1e-2))
    start, still, moved = (
        load_file(folder / "model" / "adapter_model.safetensors")
        for folder in (adapted, tmp_path / "still", tmp_path / "moved")
    )
    assert still.keys() == moved.keys() == {*start, "base_model.model.score.weight"}
    assert all(torch.equal(still[name], weight) for name, weight in start.items())
    assert not all(torch.equal(moved[name], weight) for name, weight in start.items())
    loaded = RewardScorer.load(tmp_path / "moved")
    assert loaded.rate([(sample_rows[0].prompt, sample_rows[0].completion)]) != [0]


def test_starting_from_an_adapter_needs_adapter_training(adapted, tiny_model, rows_file, tmp_path):
    with raises(InvalidValueError, field="model.lora"):
        run(ask(tiny_model, rows_file, tmp_path / "rm", {"lora": None}, start_from=str(adapted)))


def test_an_adapter_of_layers_missing_in_a_reward_model_is_refused(tiny_model, rows_file, tmp_path):
    from peft import get_peft_model

    config = lora_config(LoraSettings(dropout=0))
    config.modules_to_save = ["lm_head"]
    model = get_peft_model(load_causal_lm(ModelSettings(base=str(tiny_model))), config)
    model.save_pretrained(str(tmp_path / "bc" / "model"))
    write_prompt_settings(tmp_path / "bc" / "model", BRIEF)
    with raises(InvalidValueError, file="model"):
        run(adapter_start(tmp_path / "bc", rows_file, tmp_path / "rm", tiny_model))


def test_rows_without_a_validation_part_train_without_validation(tiny_model, sample_rows, tmp_path):
    """What design_rewards leaves with ``validation: 0``."""
    common = {"value": 1.0, "split": "train", "format": BRIEF.format}
    lines = [
        {"prompt": row.prompt, "completion": row.completion, "scenario": row.scenario, **common}
        for row in sample_rows[:8]
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    one = {"max_steps": 1, "save_steps": 1}
    with raises(InvalidValueError, field="keep"):
        run(ask(tiny_model, tmp_path, tmp_path / "best", trainer=one, keep="best"))
    assert "held_out" not in run(ask(tiny_model, tmp_path, tmp_path / "last", trainer=one))
    other = BRIEF.model_copy(update={"format": "chat"}).model_dump()
    with raises(InvalidValueError, field="prompt.format", got="chat"):
        run(ask(tiny_model, tmp_path, tmp_path / "chat", trainer=one, prompt=other))


def test_evaluator_none_does_not_evaluate(tiny_model, rows_file, tmp_path, monkeypatch):
    from transformers import Trainer

    monkeypatch.setattr(Trainer, "evaluate", lambda *_, **__: pytest.fail("evaluated"))
    brief = {"max_steps": 1, "save_steps": 1, "eval_strategy": False}
    figures = run(ask(tiny_model, rows_file, tmp_path / "rm", trainer=brief))
    assert figures["data"]["validation"]["rows"]
    assert (figures["validation_losses"], "held_out" in figures) == ([], False)


# --- as scorer and as reward --------------------------------------------------------------------------------------


def messages(text):
    return [{"role": "assistant", "content": text}]


def test_the_scorer_is_a_reward_function_of_grpo(scorer, sample_rows):
    prompts = [list(row.prompt) for row in sample_rows[:3]]
    plain = scorer.rate([(prompt, GOOD) for prompt in prompts])
    assert scorer(prompts=prompts, completions=[messages(GOOD)] * 3, task=["t"] * 3, trainer_state=None) == plain
    assert scorer.__name__ == "reward_model"


def test_a_truncated_answer_is_scored_without_an_end_token(scorer, sample_rows):
    prompts = [list(sample_rows[0].prompt)] * 3
    end = scorer.tokenizer.eos_token_id
    rewards = scorer(prompts, [messages(GOOD)] * 3, completion_ids=[[5, end], [5], []])
    # Places in a batch differ by rounding, however near to 0 a reward is.
    assert rewards[0] == pytest.approx(scorer.rate([(prompts[0], GOOD)])[0], abs=1e-5)
    assert rewards[1] == pytest.approx(rewards[2], abs=1e-5)
    assert rewards[0] != pytest.approx(rewards[1], abs=1e-4)


def test_an_answer_that_is_too_long_has_no_reward(scorer, sample_rows):
    long = json.dumps({"action_type": "speak", "argument": "word " * 900})
    prompt = list(sample_rows[0].prompt)
    rewards = scorer([prompt, prompt], [messages(GOOD), messages(long)])
    assert rewards[1] is None
    assert rewards[0] is not None
    assert scorer.too_long == 1
    with raises(InvalidValueError, field="answer"):
        scorer.rate([(prompt, long)])


class Candidates:
    """Says something else each time it is asked."""

    name, parameters = "candidates", {}

    def __init__(self, actions):
        self.actions = list(actions)

    async def act(self, observation, seed):
        action = self.actions.pop(0)
        return Decision(action, Generation(text=to_json(action)))


def test_the_scorer_works_in_best_of_n(scorer, expert_run):
    episode = next(read_run(expert_run))
    state = initial_state(episode.task, episode.rules, episode.seed)
    for item in episode.turns[:4]:
        state = transition(state, item.turn.action)
    observation = SeatView(episode.task, episode.rules, state.waiting[0]).observe(state)
    actions = [Action(ActionType.SPEAK, text) for text in ("I can do $900.", "My offer is $12.", "Good morning!")]
    expected = scorer.rate([(AgentPrompt("brief").messages(observation), to_json(action)) for action in actions])
    assert isinstance(scorer, Scorer)
    assert asyncio.run(scorer.score(observation, [Decision(action) for action in actions])) == pytest.approx(
        expected, abs=1e-5
    )
    best = BestOfNPolicy(Candidates(actions), 3, scorer)
    decision = asyncio.run(best.act(observation, 0))
    assert decision.action == actions[expected.index(max(expected))]
    long = Decision(Action(ActionType.SPEAK, "word " * 900))
    with pytest.raises(PolicyError, match="too long"):
        asyncio.run(scorer.score(observation, [long]))


def test_grpo_scores_the_text_that_the_reward_model_was_trained_on(scorer, sample_rows):
    """The tokens of the policy's prompt and answer are those the reward model reads, up to the template's end."""
    row = sample_rows[5]
    read = scored_ids(scorer.tokenizer, row.prompt, row.completion)
    sampled = [*prompt_ids(scorer.tokenizer, row.prompt), *answer_ids(scorer.tokenizer, row.completion)]
    assert read[: len(sampled)] == sampled
    assert scorer.tokenizer.decode(read[len(sampled) :]) == "\n"
