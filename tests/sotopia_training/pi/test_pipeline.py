"""The pipeline: the right stages in the right order on the right data, continued after any death, and a table."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from sotopia_training.collect.task_generation import FamilySettings, TaskSettings
from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings, read_selection, source_rows
from sotopia_training.fitting.arguments import FitSettings
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings, CloningSettings
from sotopia_training.models import tiny_base
from sotopia_training.models.tiny_base import TinyBaseSettings, TinyBaseStage
from sotopia_training.pi.launch import launch
from sotopia_training.pi.pipeline import Pipeline, check, load_trained, run
from sotopia_training.pi.settings import ModelEvaluationSettings, PipelineSettings
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.script import run_script
from sotopia_training.stage.settings import ModelSettings

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError, UnknownNameError
from sotopia_env.foundation.settings import read_settings
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks import generate
from sotopia_env.tasks import load as load_tasks
from sotopia_env.tasks.open_scenario import task_key
from tests.errors import raises

CONFIGS = Path(__file__).parents[3] / "configs"
PLAY = {"orders": "alternate", "max_turns": 6}


def settings(folder, **changes):
    values = {
        "model": ModelSettings(base=str(folder / "some-base"), lora=None),
        "expert": "conceder:horizon=2",
        "tasks": TaskSettings(scenarios=3, pairs=2, families=FamilySettings(seed=50)),
        "play": PLAY,
        "evaluation": ModelEvaluationSettings(partner="linear:horizon=2", tasks="bargaining:n=4", play=PLAY),
        "output": str(folder / "out"),
    }
    return PipelineSettings.model_validate({**values, **changes})


class Trainer:
    """In place of behaviour cloning: records its settings and leaves a model directory."""

    def __init__(self, dies_in=""):
        self.settings = []
        self.dies_in = dies_in

    def __call__(self, config):
        stage = StageDirectory(Path(config.output), "behavior_cloning", config)
        stage.open()
        if stage.figures is not None:
            return
        if self.dies_in and self.dies_in in config.output:
            raise SotopiaError("the machine went down")
        self.settings.append(config)
        stage.model.mkdir(parents=True)
        stage.finish({"rows": 1})


def play(folder, name, config):
    """Every trained model plays like a scripted one, under its own name."""
    return dataclasses.replace(naming.make_policy("linear:horizon=2"), name=name)


STAGES = [
    "evaluation/tasks",
    "evaluation/base",
    "evaluation/expert",
    *(
        f"{update}/{step}"
        for update in ("1-bc", "2-sr", "3-sr")
        for step in ("tasks", "episodes", "rating", "filter", "training", "evaluation")
    ),
]


@pytest.fixture(scope="module")
def pipeline_run(tmp_path_factory):
    """A pipeline of three updates that ran through, with what its trainer was given."""
    folder = tmp_path_factory.mktemp("pipeline")
    trainer = Trainer()
    config = settings(folder, updates=("bc", "sr", "sr"))
    run(config, trainer, play)
    return config, trainer


def names(folder):
    return {info.name for episode in read_run(folder) for info in episode.policies}


def test_every_stage_has_a_complete_directory(pipeline_run):
    config, trainer = pipeline_run
    stages = Pipeline(config, trainer, play).steps()
    assert [stage.name for stage in stages] == STAGES
    assert all(stage.done for stage in stages)


def test_each_update_learns_from_whom_it_should(pipeline_run):
    """The expert with itself, then the model as the update before has left it; each trained on from the last."""
    config, trainer = pipeline_run
    out = Path(config.output)
    assert [names(out / update / "episodes") for update in ("1-bc", "2-sr", "3-sr")] == [
        {"conceder"},
        {"1-bc"},
        {"2-sr"},
    ]
    assert [names(out / update / "evaluation") for update in ("1-bc", "2-sr", "3-sr")] == [
        {"1-bc", "linear"},
        {"2-sr", "linear"},
        {"3-sr", "linear"},
    ]
    first, second, third = trainer.settings
    assert (first.start_from, second.start_from, third.start_from) == (
        None,
        str(out / "1-bc" / "training"),
        str(out / "2-sr" / "training"),
    )
    assert first.trainer == FitSettings().trainer
    assert second.keep == 5, "B.6: self-reinforcement stops after epoch 5"


def test_relabelling_trains_on_the_experts_moves_in_the_models_own_states(tmp_path):
    trainer = Trainer()
    config = settings(tmp_path, updates=("bc", "relabel", "relabel"), sr_partner="boulware:horizon=2")
    run(config, trainer, play)
    steps = [step.name for step in Pipeline(config, trainer, play).steps()]
    assert [name for name in steps if name.startswith("2-")] == [
        f"2-relabel/{step}" for step in ("tasks", "episodes", "labels", "training", "evaluation")
    ]
    first, second, third = trainer.settings
    assert second.start_from == first.output
    assert [source.run for source in third.data] == [
        str(Path(config.output) / update / "episodes") for update in ("1-bc", "2-relabel", "3-relabel")
    ]
    (own,) = third.data[2:]
    assert own.seats == ("policy:2-relabel",)
    assert {row.partner for row in source_rows([own], RowMaker())} == {"boulware"}


def test_only_a_script_relabels(tmp_path):
    with raises(InvalidValueError, field="expert.teacher", hint="updates: relabel needs it"):
        check(settings(tmp_path, updates=("bc", "relabel"), expert="openai/gpt-4o"), play)


def test_training_gets_the_filtered_seats_of_its_own_collection(pipeline_run):
    config, trainer = pipeline_run
    for update, item in zip(("1-bc", "2-sr", "3-sr"), trainer.settings, strict=True):
        (source,) = item.data
        assert source.run == str(Path(config.output) / update / "episodes")
        keys = {episode.key for episode in read_run(source.run)}
        selection = read_selection(source.selection)
        assert {key for key, _ in selection} <= keys
        assert len(keys) == 6
        kind = json.loads((Path(source.selection).parent / "report.json").read_text())["filter"]["kind"]
        assert kind == update[2:]
        assert len(selection) == {"bc": 12, "sr": 6}[kind], (
            "two, or one fifth but at least one, of 2 for 3 tasks and 2 seats"
        )


def test_tasks_are_new_for_every_update_and_never_those_of_the_evaluation(pipeline_run):
    """Guards P: no separation of training from evaluation in the fine-tuning step."""
    config, trainer = pipeline_run
    out = Path(config.output)
    per_update = [
        {task_key(t) for t in load_tasks(out / u / "tasks" / "tasks.jsonl")} for u in ("1-bc", "2-sr", "3-sr")
    ]
    reserved = {task_key(task) for task in load_tasks(out / "evaluation" / "tasks" / "tasks.jsonl")}
    assert len(reserved) == 4
    assert len(set.union(*per_update)) == 9
    assert not reserved & set.union(*per_update)
    assert {item.evaluation_tasks for item in trainer.settings} == {str(out / "evaluation" / "tasks" / "tasks.jsonl")}
    # Tasks of an update are not in a later one, even if their sequences overlap.
    again = settings(out.parent / "again", tasks=TaskSettings(scenarios=3, pairs=1, families=FamilySettings(seed=50)))
    second = Pipeline(again)._tasks(1)
    (first,) = second.earlier
    assert first == str(out.parent / "again" / "out" / "1-bc" / "tasks" / "tasks.jsonl")
    variant = again.model_copy(update={"tasks": TaskSettings(given="starter", pairs=0)})
    assert Pipeline(variant)._tasks(1).earlier == ()  # given tasks are every update's
    # Family tasks of the evaluation's own sequence: those that are evaluated are left out.
    clash = settings(out.parent / "clash", tasks=TaskSettings(scenarios=3, pairs=1, families=FamilySettings(seed=0)))
    for stage in Pipeline(clash, Trainer(), play).steps():
        if stage.name in ("evaluation/tasks", "1-bc/tasks"):
            stage.run()
    keys = {task_key(t) for t in load_tasks(Path(clash.output) / "1-bc" / "tasks" / "tasks.jsonl")}
    assert len(keys) == 3
    assert not keys & reserved


def test_the_rules_of_task_files_apply_to_the_episodes_that_are_played_with_copies_of_their_tasks(tmp_path):
    files = {"trained": 4, "evaluated": 2}
    for number, (name, limit) in enumerate(files.items()):
        records = [task.model_dump(mode="json") for task in generate("bargaining", 2, seed=number)]
        content = {"tasks": records, "rules": {"turn_order": "random", "max_turns": limit}}
        (tmp_path / f"{name}.yaml").write_text(to_yaml(content))
    trained, evaluated = (str(tmp_path / f"{name}.yaml") for name in files)
    play_first = {"orders": "first"}
    config = settings(
        tmp_path,
        tasks=TaskSettings(given=trained, pairs=0),
        play=play_first,
        evaluation=ModelEvaluationSettings(partner="stubborn", tasks=evaluated, play=play_first),
        expert="stubborn",
    )
    runs = {"evaluation/tasks": None, "evaluation/expert": 2, "1-bc/tasks": None, "1-bc/episodes": 4}
    for stage in Pipeline(config, Trainer(), play).steps():
        if stage.name in runs:
            stage.run()
    for name, limit in runs.items():
        if limit is not None:
            rules = {episode.rules for episode in read_run(Path(config.output) / name)}
            assert [(one.turn_order.value, one.max_turns) for one in rules] == [("random", limit)]


def test_the_table_has_a_line_for_every_measurement(pipeline_run):
    config, _ = pipeline_run
    text = (Path(config.output) / "summary.txt").read_text()
    lines = [line.split()[0] for line in text.splitlines()[4:] if line]
    assert lines == ["base", "conceder", "1-bc", "2-sr", "3-sr"]
    assert "[" in text.splitlines()[4]
    cells = json.loads((Path(config.output) / "comparison.json").read_text())["cells"]
    assert {cell["policy"] for cell in cells} == {*lines, "linear"}


# --- continued -------------------------------------------------------------------------------------------------------
def stamps(folder):
    return {str(file): file.stat().st_mtime_ns for file in Path(folder).rglob("done.json")}


def test_a_killed_pipeline_continues(tmp_path):
    config = settings(tmp_path)
    with pytest.raises(SotopiaError, match="the machine went down"):
        run(config, Trainer("2-sr"), play)
    before = stamps(config.output)
    assert len(before) == len(STAGES[:9]) + 4
    trainer = Trainer()
    run(config, trainer, play)
    assert [item.output.split("/")[-2] for item in trainer.settings] == ["2-sr"]
    after = stamps(config.output)
    assert {file: after[file] for file in before} == before
    again = Trainer()
    run(config, again, play)
    assert not again.settings
    assert stamps(config.output) == after


def test_updates_can_be_added_but_complete_ones_cannot_change(pipeline_run):
    config, _ = pipeline_run
    more = config.model_copy(update={"updates": (*config.updates, "sr")})
    before = stamps(config.output)
    trainer = Trainer()
    run(more, trainer, play)
    assert [item.output.split("/")[-2] for item in trainer.settings] == ["4-sr"]
    assert {file: stamps(config.output)[file] for file in before} == before
    with raises(InvalidValueError, file="filter"):
        run(more.model_copy(update={"bc_filter": more.bc_filter.model_copy(update={"top": 1})}), trainer, play)
    other = more.model_copy(update={"evaluation": more.evaluation.model_copy(update={"tasks": "bargaining:n=5"})})
    with raises(InvalidValueError, file="tasks"):
        run(other, trainer, play)


KILLED = """
import sys
from pathlib import Path
from tests.sotopia_training.pi.test_pipeline import Trainer, play, settings
from sotopia_training.pi.pipeline import run
import time
def slow(place, name, asked):
    policy = play(place, name, asked)
    class Slow:
        name, parameters = policy.name, policy.parameters
        async def act(self, observation, seed):
            time.sleep(0.02)
            return await policy.act(observation, seed)
    return Slow()
run(settings(Path(sys.argv[1])), Trainer(), slow)
"""


@pytest.mark.slow("plays three pipelines")
def test_a_collection_continues_after_kill_minus_nine(tmp_path):
    """No episode is lost and none is doubled; the end is that of an unbroken run."""
    config = settings(tmp_path)
    episodes = Path(config.output) / "2-sr" / "episodes" / "episodes.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(CONFIGS.parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], env=environment, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 240
    while process.poll() is None and not (episodes.exists() and episodes.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (episodes.parent / "done.json").exists()
    before = {episode.key for episode in read_run(episodes.parent)}
    assert 0 < len(before) < 6
    run(config, Trainer(), play)
    straight = settings(tmp_path / "straight")
    run(straight, Trainer(), play)
    keys = [sorted(e.key for e in read_run(Path(s.output) / "2-sr" / "episodes")) for s in (config, straight)]
    assert keys[0] == keys[1]
    assert before <= set(keys[0])
    assert (Path(config.output) / "summary.txt").read_text() == (Path(straight.output) / "summary.txt").read_text()


# --- settings ------------------------------------------------------------------------------------------------------
def test_only_the_agents_turns_are_learnt(tmp_path):
    evaluation = settings(tmp_path).evaluation.model_copy(update={"base": False, "expert": False})
    sr = {"updates": ("sr",), "sr_partner": "conceder:horizon=2", "sr_filter": {"kind": "sr", "ratio": 1}}
    config = settings(tmp_path, evaluation=evaluation, **sr)
    trainer = Trainer()
    run(config, trainer, play)
    (source,) = trainer.settings[0].data
    policy = {(e.key, info.agent): info.name for e in read_run(source.run) for info in e.policies}
    assert {policy[pair] for pair in read_selection(source.selection)} == {"base"}
    assert set(policy.values()) == {"base", "conceder"}


@pytest.mark.parametrize(
    ("changes", "error", "fields"),
    [
        ({"expert": "concedr"}, UnknownNameError, {"nearest": "conceder"}),
        ({"sr_partner": "liner"}, UnknownNameError, {"nearest": "linear"}),
        ({"evaluator": "none"}, InvalidValueError, {"field": "evaluator"}),
        ({"evaluator": "verifid"}, UnknownNameError, {"nearest": "verified"}),
        ({"tiny": {}, "start_from": "x"}, InvalidValueError, {"field": "start_from"}),
        ({"model": ModelSettings(base="")}, InvalidValueError, {"field": "model.base"}),
        ({"tasks": {"families": {"names": ["barganing"]}}}, UnknownNameError, {"nearest": "bargaining"}),
        ({"bc": {"trainer": {"report_to": ["trackoi"]}}}, InvalidValueError, {"field": "bc.trainer.report_to"}),
        ({"sr": {"trainer": {"learning_rat": 1}}}, InvalidValueError, {"field": "sr.trainer.learning_rat"}),
    ],
)
def test_mistakes_are_found_before_playing(changes, error, fields, tmp_path):
    with raises(error, **fields):
        run(settings(tmp_path, **changes), Trainer(), play)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"updates": ("sr",)}, "updates"),
        ({"base": True}, "evaluation.base"),
        ({"start_from": "nowhere"}, "start_from"),
        ({}, None),
    ],
)
def test_a_base_that_plays_is_checked_before_anything_is_written(changes, field, tmp_path):
    """A hub name can be trained, and what was trained can play; the name itself cannot."""
    evaluation = settings(tmp_path).evaluation.model_copy(update={"base": changes.pop("base", False)})
    config = settings(tmp_path, model=ModelSettings(base="org/model"), evaluation=evaluation, **changes)
    if field is not None:
        with raises(InvalidValueError, field=field):
            run(config)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    checked = [sys.executable, "scripts/run_pi.py", "--config", str(tmp_path / "c.yaml"), "--check"]
    if changes.get("updates"):
        env = {**os.environ, "PYTHONPATH": str(CONFIGS.parent)}
        process = subprocess.run(checked, cwd=CONFIGS.parent, env=env, capture_output=True, text=True, check=False)
        assert process.returncode == 2
        assert process.stderr.startswith(f"sotopia: {field}: ")
    else:
        code = run_script("Pipeline.", PipelineSettings, run, checked[2:], check=check)
        assert code == (0 if field is None else 2)
    assert not (tmp_path / "out").exists()


def test_training_can_be_launched_in_separate_processes(tmp_path):
    """The command gets the settings as a file; that it ended is not enough, the stage must be complete."""
    writes = "import pathlib, sys, yaml; s = yaml.safe_load(open(sys.argv[2])); o = pathlib.Path(s['output']); "
    writes += "o.mkdir(parents=True); (o / 'done.json').write_text('{}')"
    evaluation = settings(tmp_path).evaluation.model_copy(update={"base": False, "expert": False})
    config = settings(tmp_path, updates=("bc",), launch=(sys.executable, "-c", writes), evaluation=evaluation)
    run(config, load=play)
    assert (tmp_path / "out" / "summary.txt").is_file()
    bc_settings = BehaviorCloningSettings(
        model=config.model, data=(SourceSettings(run="x"),), output=str(tmp_path / "b")
    )
    with pytest.raises(SotopiaError, match="ended with code 3 and did not complete"):
        launch((sys.executable, "-c", "raise SystemExit(3)"), bc_settings, tmp_path / "b")
    assert read_settings(tmp_path / "b.yaml", BehaviorCloningSettings) == bc_settings
    with pytest.raises(SotopiaError, match="did not complete"):
        launch((sys.executable, "-c", ""), bc_settings, tmp_path / "b")
    with pytest.raises(SotopiaError, match="'no-such-command' cannot be run"):
        launch(("no-such-command",), bc_settings, tmp_path / "b")


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("run_pi*.yaml")), ids=lambda file: file.name)
def test_shipped_configurations_can_be_read(file):
    settings = read_settings(file, PipelineSettings)
    assert f"--config {file.stem}" in file.read_text().splitlines()[0]
    assert len(Pipeline(settings).steps()) >= 8


# --- with a real model ---------------------------------------------------------------------------------------------
def test_the_pipeline_runs_with_a_tiny_model(tmp_path):
    """Behaviour cloning and play of a model of 0.4 M parameters, a few steps: the wiring, not the learning."""
    trainer = {"max_steps": 2, "per_device_train_batch_size": 8, "learning_rate": 3e-3}
    config = settings(
        tmp_path,
        model=ModelSettings(base="", lora=None),
        tiny=TinyBaseSettings(count=4, experts=("linear:horizon=2",)),
        prompt={"format": "brief", "max_length": 512, "max_answer": 24},
        updates=("bc",),
        bc=CloningSettings(trainer=trainer, validation=0),
        evaluation=ModelEvaluationSettings(
            partner="linear:horizon=2",
            tasks="bargaining:n=1",
            expert=False,
            play={"orders": "first", "both_seats": False, "max_turns": 2},
        ),
    )
    run(config)
    out = Path(config.output)
    assert names(out / "1-bc" / "evaluation") == {"1-bc", "linear"}
    assert names(out / "evaluation" / "base") == {"base", "linear"}
    trained = load_trained(out / "1-bc" / "training", "x", config)
    assert trained.format == "brief"
    before = stamps(out)
    run(config)
    assert stamps(out) == before


def test_the_base_is_created_once(tmp_path):
    config = TinyBaseStage(base=TinyBaseSettings(count=2, hidden=64), output=str(tmp_path / "base"))
    tiny_base.run(config)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "base").rglob("*")}
    tiny_base.run(config)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "base").rglob("*")} == before
    with raises(InvalidValueError, field="settings.base.hidden", expected="64", got="128"):
        tiny_base.run(config.model_copy(update={"base": TinyBaseSettings(count=2)}))
