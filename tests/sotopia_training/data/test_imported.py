"""Imported files are trained on as they are: behaviour cloning on episodes, the reward model on rows."""

import json

from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting import behavior_cloning
from sotopia_training.reward import model
from sotopia_training.stage.settings import ModelSettings

from sotopia_env.importers.importing import import_files
from tests.sotopia_env.importers import records
from tests.sotopia_env.importers.records import write
from tests.sotopia_env.importers.test_training_files import ANNOTATED, ROWS
from tests.sotopia_training.conftest import BRIEF, SHORT

ONE_STEP = {"max_steps": 1, "per_device_train_batch_size": 2, "save_steps": 1}


def test_behaviour_cloning_learns_from_published_episodes(tmp_path, tiny_model):
    lines = [records.line(episode_id=f"E-{n}", scenario=f"Umbrella {n}.", environment_id=f"e{n}") for n in range(3)]
    import_files([write(tmp_path / "lines.jsonl", lines)], tmp_path / "run", progress=False)
    settings = behavior_cloning.BehaviorCloningSettings(
        model=ModelSettings(base=str(tiny_model), lora=None),
        prompt=SHORT.model_copy(update={"max_length": 1500, "max_answer": 600}),
        data=(SourceSettings(run=str(tmp_path / "run"), seats=("policy:gpt-4",)),),
        validation=0,
        output=str(tmp_path / "bc"),
        trainer=ONE_STEP,
    )
    behavior_cloning.run(settings)
    assert (tmp_path / "bc" / "model").is_dir()


def test_the_reward_model_learns_from_annotated_files_and_rows(tmp_path, tiny_model):
    annotated = [{**ANNOTATED, "episode_id": f"E-{n}", "scenario": f"Umbrella {n}."} for n in range(3)]
    folders = []
    for name, entries in (("annotated", annotated), ("rows", ROWS["sotopia-rl-rows"])):
        import_files([write(tmp_path / f"{name}.json", entries)], tmp_path / name, progress=False)
        folders.append(str(tmp_path / name))
    output = tmp_path / "rm"
    settings = model.RewardModelSettings(
        model=ModelSettings(base=str(tiny_model), lora=None),
        prompt=BRIEF.model_copy(update={"format": "chat", "max_length": 2000}),
        rows=tuple(folders),
        validation=0.25,
        output=str(output),
        trainer=ONE_STEP,
    )
    figures = model.run(settings)
    assert "without_value" in json.dumps(figures)
    assert (output / "model").is_dir()
