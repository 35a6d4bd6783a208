"""Settings: YAML into frozen records; mistakes are one-line errors, raised before heavy packages are loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from sotopia_training.collect.filtering import FilteringSettings
from sotopia_training.fitting.arguments import FitSettings
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import read_settings, settings_of
from tests.errors import raises

ROOT = Path(__file__).parents[3]
GOOD = "model: {base: m}\ndata: [{run: r}]\noutput: o\n"


def read(tmp_path, text, overrides=()):
    (tmp_path / "c.yaml").write_text(text)
    return read_settings(tmp_path / "c.yaml", BehaviorCloningSettings, overrides)


def test_the_defaults_are_those_of_the_paper(tmp_path):
    """SOTOPIA-π, B.5."""
    settings = read(tmp_path, GOOD)
    lora, trainer = settings.model.lora, settings.trainer
    assert (lora.rank, lora.alpha, lora.dropout) == (8, 16, 0.05)
    names = ("learning_rate", "lr_scheduler_type", "warmup_steps", "num_train_epochs", "per_device_train_batch_size")
    assert [trainer[name] for name in names] == [5e-5, "cosine", 0.03, 20, 4]
    assert settings.prompt.max_length == 4096
    assert settings.keep == "last"


@pytest.mark.parametrize(
    ("text", "error", "fields"),
    [
        (GOOD + "modle: {}\n", UnknownNameError, {"field": "modle", "nearest": "model"}),
        (
            "model: {base: m, lora: {rnk: 4}}\ndata: [{run: r}]\noutput: o\n",
            UnknownNameError,
            {"field": "model.lora.rnk", "nearest": "rank"},
        ),
        (
            "model: {base: m}\ndata: [{run: r, wieght: 2}]\noutput: o\n",
            UnknownNameError,
            {"field": "data.0.wieght", "nearest": "weight"},
        ),
        ("model: {base: m}\ndata: []\noutput: o\n", InvalidValueError, {"field": "data"}),
        ("model: {base: m}\noutput: o\n", InvalidValueError, {"field": "data"}),
        (GOOD + "trainer: [learning_rate]\n", InvalidValueError, {"field": "trainer"}),
        (GOOD + "keep: 21\n", InvalidValueError, {}),
        (GOOD + "keep: 2\ntrainer: {max_steps: 5}\n", InvalidValueError, {}),
        (
            GOOD + "keep: best\nvalidation: 0\n",
            InvalidValueError,
            {},
        ),
        (GOOD + "keep: first\n", InvalidValueError, {"field": "keep.literal['last','best']"}),
        (GOOD + "model: [\n", InvalidValueError, {"line": 5}),
        ("- a\n", InvalidValueError, {}),
        (GOOD + "output: p\n", InvalidValueError, {"line": 4}),
        (
            GOOD + "trainer: {seed: 2001-99-99}\n",
            InvalidValueError,
            {"line": 4},
        ),
        (GOOD + "trainer: {seed: !!int x}\n", InvalidValueError, {"line": 4}),
        (GOOD + "trainer: {seed: .nan}\n", InvalidValueError, {"line": 4}),
        (GOOD + f"trainer: {{seed: {'9' * 5000}}}\n", InvalidValueError, {"line": 4}),
        (GOOD + "trainer: " + "[" * 2000, InvalidValueError, {}),
        (GOOD + "validation: many\n", InvalidValueError, {"field": "validation"}),
    ],
)
def test_errors_are_one_sentence(tmp_path, text, error, fields):
    with raises(error, file="c.yaml", **fields) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("selection", "fields"),
    [
        ({"kind": "sr", "ratoi": 0.3}, {"field": "filter.ratoi", "nearest": "ratio"}),
        ({"kind": "bc", "tpo": 2}, {"field": "filter.tpo", "nearest": "top"}),
        ({"kind": "sr", "ratio": 3}, {"field": "filter.ratio", "got": 3}),
        ({"kind": "rs"}, {"field": "filter"}),
    ],
)
def test_a_union_offers_the_names_of_the_member_that_was_chosen(selection, fields):
    with raises(InvalidValueError, file="c", **fields):
        settings_of({"runs": ["r"], "filter": selection, "output": "o"}, FilteringSettings, "c")


def test_overrides_reach_nested_settings(tmp_path):
    settings = read(tmp_path, GOOD, ["trainer.num_train_epochs=3", "model.lora=null", "keep=best"])
    assert (settings.trainer["num_train_epochs"], settings.model.lora, settings.keep) == (3, None, "best")
    for wrong in ("trainer.seed", "=3", "output.x=1"):
        with raises(InvalidValueError, field="--set", got=wrong):
            read(tmp_path, GOOD, [wrong])
    for wrong in ("trainer.seed=[", "trainer.seed=!!int x", "output={a: 1, a: 2}"):
        with raises(InvalidValueError, line=1) as caught:
            read(tmp_path, GOOD, [wrong])
        assert str(caught.value.where.file).startswith("--set")
    with raises(InvalidValueError, file="none.yaml"):
        read_settings(tmp_path / "none.yaml", BehaviorCloningSettings)


def test_an_epoch_to_keep_is_one_of_the_epochs():
    assert FitSettings(trainer={"num_train_epochs": 20}, keep=5).keep == 5
    with raises(ValidationError, field="keep", expected="last, best or an epoch from 1 to 4 (and no max_steps)"):
        FitSettings(trainer={"num_train_epochs": 4}, keep=5)


HEAVY = """
import sys
sys.argv = ["train_bc.py", *{arguments!r}]
import runpy
try:
    runpy.run_path({script!r}, run_name="__main__")
except SystemExit as end:
    code = end.code
heavy = [name for name in ("torch", "transformers", "trl", "peft", "datasets", "litellm") if name in sys.modules]
print("CODE", code, "HEAVY", heavy)
"""


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["--config", "c.yaml", "--set", "prompt.max_lenght=3"], 2)]
)
def test_help_and_misspelt_settings_load_nothing_heavy(tmp_path, arguments, code):
    (tmp_path / "c.yaml").write_text(GOOD)
    program = HEAVY.format(arguments=arguments, script=str(ROOT / "scripts" / "train_bc.py"))
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert f"CODE {code} HEAVY []" in process.stdout
    assert ("max_length" in process.stderr) == (code == 2)
