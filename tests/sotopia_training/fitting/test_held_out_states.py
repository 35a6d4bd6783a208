"""Held-out states: agreement with the teacher, and losses of moves and words, against what is known."""

import struct

import pytest
from sotopia_training.data.samples import RowMaker
from sotopia_training.data.sources import SourceSettings, source_rows
from sotopia_training.fitting.behavior_cloning import STATES, BehaviorCloningSettings, run
from sotopia_training.fitting.held_out_states import HeldOutStates, read_states, write_states
from sotopia_training.models.loading import find_model, load_causal_lm
from sotopia_training.models.tokenizers import answer_ids
from sotopia_training.stage.settings import ModelSettings

from tests.sotopia_training.conftest import SHORT


def test_a_teachers_own_answers_agree_with_it(cloned, expert_run, tokenizer, tmp_path, monkeypatch):
    rows = list(source_rows([SourceSettings(run=str(expert_run))], RowMaker(SHORT)))
    scenarios = {row.scenario for row in rows[:40]}
    write_states(rows, scenarios, 6, tmp_path / STATES)
    states = read_states(tmp_path / STATES)
    assert len(states) == 6
    held_out = HeldOutStates(states, tokenizer, SHORT.max_answer)
    model = load_causal_lm(ModelSettings(base=str(find_model(cloned))))
    figures = held_out.figures(model)
    assert 0 <= figures["agreement/value"] <= figures["agreement/kind"] <= 1
    assert figures["loss/moves"] > 0
    assert figures["loss/words"] > 0

    from sotopia_training.fitting import held_out_states

    class Teacher:
        def __init__(self, *_):
            pass

        def generate(self, prompts, seeds):
            return [type("Answer", (), {"ids": answer_ids(tokenizer, state.completion)}) for state in states]

    monkeypatch.setattr(held_out_states, "BatchedGenerator", Teacher)
    figures = held_out.figures(model)
    assert (figures["agreement/kind"], figures["agreement/value"]) == (1, 1)


def tensorboard_tags(folder):
    """The names in the event files of a directory: records of a length, its checksum, an event and its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    tags = set()
    for file in folder.rglob("events.out.tfevents.*"):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            tags |= {value.tag for value in event.summary.value}
            at += 12 + length + 4
    return tags


def test_a_stage_reports_them_after_every_validation_and_to_a_tracker(cloned, expert_run, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    settings = BehaviorCloningSettings(
        model=ModelSettings(base=str(find_model(cloned)), lora=None),
        prompt=SHORT,
        data=(SourceSettings(run=str(expert_run)),),
        validation=0.2,
        rows="conversations",
        held_out_states=4,
        output=str(tmp_path / "bc"),
        trainer={
            "max_steps": 2,
            "save_steps": 1,
            "logging_steps": 1,
            "per_device_train_batch_size": 2,
            "report_to": ["tensorboard"],
        },
    )
    reports = [entry for entry in run(settings)["log"] if "agreement/kind" in entry]
    assert [entry["step"] for entry in reports] == [1, 2]
    assert all({"agreement/value", "loss/moves", "loss/words"} <= entry.keys() for entry in reports)
    figures = {f"train/{name}" for name in ("agreement/kind", "agreement/value", "loss/moves", "loss/words", "loss")}
    assert figures | {"eval/loss"} <= tensorboard_tags(tmp_path / "events")
    with pytest.raises(ValueError, match="validation"):
        BehaviorCloningSettings.model_validate({**settings.model_dump(), "validation": 0})
