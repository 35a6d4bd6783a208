"""What was misspelt can be mended and asked for again in the same place, as long as nothing was produced there."""

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from sotopia_training.collect import collection, filtering
from sotopia_training.collect.collection import CollectionSettings, PlaySettings, RatingSettings
from sotopia_training.collect.filtering import FilteringSettings
from sotopia_training.collect.task_generation import TaskSettings
from sotopia_training.fitting import behavior_cloning
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings
from sotopia_training.models.loading import write_prompt_settings

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.foundation.errors import BudgetExceededError, InvalidValueError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.storage.directory import read_run
from tests.errors import raises
from tests.sotopia_env.runs.model_runs import table_server
from tests.sotopia_training.conftest import SHORT, StoppedError, play_run
from tests.sotopia_training.models.test_models import MOVING

ROOT = Path(__file__).parents[3]


@pytest.fixture
def paths(tiny_model, tokenizer, expert_run, tmp_path, monkeypatch):
    """Names of what the settings below need; training ends where the model would be loaded."""
    moving = copy.deepcopy(tokenizer)
    moving.chat_template = MOVING
    moving.save_pretrained(str(tmp_path / "moving"))

    def stopped(*_):
        raise StoppedError

    monkeypatch.setattr(behavior_cloning, "load_for_training", stopped)
    rated = play_run(tmp_path / "rated", 1, evaluator=None, seed=5)
    return {
        "MODEL": tiny_model,
        "MOVING": tmp_path / "moving",
        "RUN": expert_run,
        "RATED": rated,
        "OUT": tmp_path / "out",
    }


def cloned(settings):
    with pytest.raises(StoppedError):
        behavior_cloning.run(settings)


CLONE = {
    "model": {"base": "MODEL", "lora": None},
    "prompt": SHORT.model_dump(mode="json"),
    "data": [{"run": "RUN"}],
    "validation": 0,
    "output": "OUT",
    "trainer": {"max_steps": 1},
}
SINGLE = {**CLONE, "model": {"base": "MOVING", "lora": None}, "prompt": {"format": "single", "max_length": 4096}}
FILTER = {"runs": ["RUN"], "filter": {"kind": "sr"}, "output": "OUT"}
RATE = {"run": "RATED", "evaluator": "diligence", "output": "OUT"}
COLLECT = {
    "agent": "linear:horizon=2",
    "tasks": {"scenarios": 1, "pairs": 1, "families": {"names": ["bargaining"]}},
    "play": {"max_turns": 2},
    "output": "OUT",
}
STAGES = {
    "tokenizer": (cloned, BehaviorCloningSettings, SINGLE, {"prompt": {"format": "chat"}}, {"file": "moving"}),
    "data": (cloned, BehaviorCloningSettings, CLONE, {"data": [{"run": "RUM"}]}, {"file": "RUM"}),
    "second source": (
        cloned,
        BehaviorCloningSettings,
        CLONE,
        {"data": [{"run": "RUN"}, {"run": "RUM"}]},
        {"file": "RUM"},
    ),
    "split": (cloned, BehaviorCloningSettings, CLONE, {"validation": 0.999}, {"field": "validation"}),
    "filter": (
        filtering.run,
        FilteringSettings,
        FILTER,
        {"filter": {"kind": "sr", "dimension": "gaol"}},
        {"field": "filter.dimension", "nearest": "goal"},
    ),
    "nothing selected": (filtering.run, FilteringSettings, FILTER, {"runs": ["RUN", "RATED"]}, {"file": "rated"}),
    "rate": (collection.rate, RatingSettings, RATE, {"run": "RATD"}, {"file": "RATD"}),
    "collect": (
        collection.run,
        CollectionSettings,
        COLLECT,
        {"tasks": {"families": {"names": ["bargainning"]}}},
        {"field": "family", "nearest": "bargaining"},
    ),
}


def with_paths(values, paths):
    text = json.dumps(values)
    for name, path in paths.items():
        text = text.replace(f'"{name}"', json.dumps(str(path)))
    return json.loads(text)


@pytest.mark.parametrize("case", STAGES)
def test_corrected_settings_are_accepted_in_the_same_directory(case, paths):
    work, kind, good, wrong, fields = STAGES[case]
    with raises(InvalidValueError, **fields):
        (behavior_cloning.run if work is cloned else work)(settings_of(with_paths(good | wrong, paths), kind, "c"))
    assert (paths["OUT"] / "stage.json").is_file()  # so it is a second try, not a first
    work(settings_of(with_paths(good, paths), kind, "c"))


# --- through the scripts --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("script", "changes", "message"),
    [
        ("train_bc", {"model": {"base": "MODEL", "lora": None}}, "chat_template: "),
        ("train_sr", {"start_from": "EARLIER"}, 'got "org/other"'),
        ("filter_episodes", {"runs": ["RUN"]}, "filter: none of 2 episodes has been evaluated; evaluate the run first"),
    ],
)
def test_a_script_reports_an_error_in_one_sentence_and_exits(script, changes, message, tiny_model, tokenizer, tmp_path):
    paths = {name: tmp_path / name for name in ("MODEL", "RUN", "OUT", "EARLIER")}
    if script == "filter_episodes":
        play_run(paths["RUN"], 1, evaluator=None)
    elif script == "train_bc":
        bare = copy.deepcopy(tokenizer)
        bare.chat_template = MOVING
        bare.save_pretrained(str(paths["MODEL"]))
        (paths["MODEL"] / "config.json").write_text((tiny_model / "config.json").read_text())
    else:
        (paths["EARLIER"] / "model").mkdir(parents=True)
        adapter = {"base_model_name_or_path": "org/other", "r": 8, "lora_alpha": 16}
        (paths["EARLIER"] / "model" / "adapter_config.json").write_text(json.dumps(adapter))
        write_prompt_settings(paths["EARLIER"] / "model", SHORT)
    values = {**(FILTER if script == "filter_episodes" else CLONE), **changes}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(with_paths(values, paths)))
    process = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / f"{script}.py"), "--config", str(tmp_path / "c.yaml")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert process.returncode == 2, process.stderr
    (sentence,) = re.findall(r"^sotopia: (.*)$", process.stderr, re.MULTILINE)
    assert process.stderr.endswith(f"sotopia: {sentence}\n")
    assert message in sentence.replace(f"{tmp_path}/", "")
    assert "Traceback" not in process.stderr
    assert process.stdout == ""


# --- what may be spent -----------------------------------------------------------------------------------------------
def test_a_collection_with_a_spent_budget_continues_with_a_higher_budget_and_another_server(tmp_path):
    """No episode is lost and none is doubled; what was paid for is not asked again."""

    def settings_for(server, limit, turns=4):
        access = ModelOptions(api_base=server.api_base, concurrency=1, max_tokens=limit)
        return CollectionSettings(
            agent="local/tiny",
            tasks=TaskSettings(given="bargaining:n=3", pairs=0),
            play=PlaySettings(max_turns=turns, concurrency=1, models=access, orders="first"),
            output=str(tmp_path / "run"),
        )

    with table_server() as server, pytest.raises(BudgetExceededError):
        collection.run(settings_for(server, 4000))  # estimates count the schema, too
    before = [episode.key for episode in read_run(tmp_path / "run")]
    with table_server() as server:
        with raises(InvalidValueError, field="settings.play.max_turns", expected="4", got="5"):
            collection.run(settings_for(server, 10**6, turns=5))
        collection.run(settings_for(server, 10**6))
        assert server.served > 0
    after = [episode.key for episode in read_run(tmp_path / "run")]
    assert 0 < len(before) < len(after) == len(set(after)) == 3
    assert set(before) < set(after)
