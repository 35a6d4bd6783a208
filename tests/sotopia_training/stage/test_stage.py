"""Stage directories: what was asked for is noted, what is complete stays, what was cut short is not continued from."""

import json
import multiprocessing
import signal
import time
from contextlib import nullcontext

import pytest
from sotopia_training.collect.task_generation import FamilySettings, TaskGenerationSettings, WriterSettings
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.script import run_script

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings
from tests.errors import raises


class Small(Settings):
    size: int = 3
    output: str = "out"


class Play(Settings):
    concurrency: int = 8
    models: dict[str, float]
    turns: int


class Nested(Settings):
    plays: tuple[Play, ...]
    processes: int = 1
    output: str = "out"


def stage(path, size=3, name="small"):
    return StageDirectory(path, name, Small(size=size))


def test_the_same_stage_is_opened_again_and_another_is_refused(tmp_path):
    stage(tmp_path / "s").open()
    noted = json.loads((tmp_path / "s" / "stage.json").read_text())
    assert noted["settings"] == {"size": 3, "output": "out"}
    assert "torch" in noted["packages"]
    stage(tmp_path / "s").open()
    (tmp_path / "s" / "rows.jsonl").write_text("{}")
    with raises(InvalidValueError, field="settings.size", expected="3", got="4", file="s"):
        stage(tmp_path / "s", size=4).open()
    with raises(InvalidValueError, field="stage", expected='"small"', got='"other"', file="s"):
        stage(tmp_path / "s", name="other").open()


def test_training_that_started_from_other_weights_is_refused_once_it_has_output(tmp_path):
    """The settings name a path, at which other weights may lie when the stage is continued."""
    stage(tmp_path).open({"base": "one"})
    stage(tmp_path).open({"base": "two"})
    (tmp_path / "rows.jsonl").write_text("{}")
    stage(tmp_path).open({"base": "two", "adapter": "three"})
    stage(tmp_path).open()  # looks only for figures
    with raises(
        InvalidValueError,
        field="start.base",
        expected="two",
        got="four",
        hint="go back to what it started from, or choose another output",
    ):
        stage(tmp_path).open({"base": "four"})
    assert json.loads((tmp_path / "stage.json").read_text())["start"] == {
        "base": "two"
    }  # of the adapter nothing is known


def test_a_stage_that_has_produced_nothing_takes_corrected_settings(tmp_path, monkeypatch):
    stage(tmp_path).open()
    (tmp_path / "rows" / "building").mkdir(parents=True)
    monkeypatch.setenv("RANK", "1")
    stage(tmp_path, size=4).open()
    assert json.loads((tmp_path / "stage.json").read_text())["settings"]["size"] == 3  # the first process writes
    monkeypatch.setenv("RANK", "0")
    stage(tmp_path, size=4).open()
    assert json.loads((tmp_path / "stage.json").read_text())["settings"]["size"] == 4
    (tmp_path / "rows" / "facts.json").write_text("{}")
    with raises(InvalidValueError, field="settings.size", expected="4", got="3"):
        stage(tmp_path).open()


def test_addresses_speed_and_budgets_of_models_may_differ_at_any_depth(tmp_path):
    def nested(cost, turns=3):
        return Nested(plays=(Play(models={"max_cost": cost}, turns=turns, concurrency=8 * cost),))

    StageDirectory(tmp_path, "small", nested(1)).open()
    (tmp_path / "episodes.jsonl").write_text("{}")
    StageDirectory(tmp_path, "small", nested(2)).open()
    with raises(InvalidValueError, field="settings.plays.0.turns", expected="3", got="4"):
        StageDirectory(tmp_path, "small", nested(2, turns=4)).open()
    noted = json.loads((tmp_path / "stage.json").read_text())
    noted["settings"]["plays"][0]["models"] = {"max_cost": 1}  # as an earlier version has noted them
    (tmp_path / "stage.json").write_text(json.dumps(noted))
    StageDirectory(tmp_path, "small", nested(2)).open()


def test_a_setting_added_later_had_its_default(tmp_path):
    stage(tmp_path).open()
    (tmp_path / "rows.jsonl").write_text("{}")
    noted = json.loads((tmp_path / "stage.json").read_text())
    del noted["settings"]["size"]
    (tmp_path / "stage.json").write_text(json.dumps(noted))
    stage(tmp_path).open()
    with raises(InvalidValueError, field="settings.size", expected="3", got="4"):
        stage(tmp_path, size=4).open()


EARLIER = {
    "scenarios": 5,
    "families": {"names": ["hiring"], "level": "medium", "seed": 3},
    "writer": {"model": "local/m", "inspirations": ["a.txt"], "temperature": 1.0, "max_tokens": 1024},
    "given": {"source": "bargaining", "n": 20, "level": "hard", "seed": 7, "split": None},
    "evaluation": [{"source": "starter", "n": None, "level": "medium", "seed": 0, "split": None}],
    "output": "out",
}


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [({}, True), ({"families": {"names": ["hiring"], "level": "hard", "seed": 3}}, False)],
)
def test_a_stage_of_an_earlier_version_continues_if_deleted_settings_had_the_value_that_is_fixed_now(
    tmp_path, changes, accepted
):
    settings = TaskGenerationSettings(
        scenarios=5,
        families=FamilySettings(names=("hiring",), seed=3),
        writer=WriterSettings(model="local/m", inspirations=("a.txt",)),
        given="bargaining:n=20,level=hard,seed=7",
        evaluation=("starter",),
        output="out",
    )
    (tmp_path / "stage.json").write_text(json.dumps({"stage": "tasks", "settings": {**EARLIER, **changes}}))
    (tmp_path / "tasks.jsonl").write_text("{}")
    with nullcontext() if accepted else raises(InvalidValueError, file=tmp_path.name):
        StageDirectory(tmp_path, "tasks", settings).open()


def test_a_stage_is_complete_when_it_has_its_figures(tmp_path):
    one = stage(tmp_path)
    one.open()
    assert one.figures is None
    one.finish({"loss": 0.25})
    assert one.figures == {"loss": 0.25}


@pytest.mark.parametrize(
    ("files", "complete"),
    [
        ({"trainer_state.json": '{"global_step": 30}', "rng_state.pth": ""}, True),
        ({"trainer_state.json": '{"global_step": 30}', "rng_state_0.pth": "", "rng_state_1.pth": ""}, True),
        ({"trainer_state.json": '{"global_step": 30}'}, False),
        ({"rng_state.pth": "", "model.safetensors": "x"}, False),
        ({"trainer_state.json": '{"global_st', "rng_state.pth": ""}, False),
        ({"trainer_state.json": "", "rng_state.pth": ""}, False),
        ({}, False),
    ],
)
def test_an_incomplete_checkpoint_is_skipped(tmp_path, files, complete):
    one = stage(tmp_path)
    assert one.last_checkpoint() is None
    for step, contents in ((9, {"trainer_state.json": '{"global_step": 9}', "rng_state.pth": ""}), (30, files)):
        checkpoint = one.checkpoints / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        for name, text in contents.items():
            (checkpoint / name).write_text(text)
    assert one.last_checkpoint().name == ("checkpoint-30" if complete else "checkpoint-9")


@pytest.mark.parametrize(
    ("processes", "states", "complete"),
    [
        ("2", ["rng_state_0.pth", "rng_state_1.pth"], True),
        ("2", ["rng_state_0.pth"], False),
        ("3", ["rng_state_0.pth", "rng_state_2.pth"], False),
        ("1", ["rng_state.pth"], True),
    ],
)
def test_a_checkpoint_has_the_random_state_of_every_process(tmp_path, monkeypatch, processes, states, complete):
    """A kill between the first process's files and the others' would be resumed with other dropout."""
    monkeypatch.setenv("WORLD_SIZE", processes)
    stage(tmp_path).open()
    checkpoint = tmp_path / "checkpoints" / "checkpoint-3"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text('{"global_step": 3}')
    for name in states:
        (checkpoint / name).write_text("")
    assert (stage(tmp_path).last_checkpoint() == checkpoint) is complete
    monkeypatch.setenv("WORLD_SIZE", "1")
    stage(tmp_path).open()  # fewer processes go on with what there is: their random states are others anyway
    assert stage(tmp_path).last_checkpoint() == checkpoint
    monkeypatch.setenv("WORLD_SIZE", "4")
    stage(tmp_path).open()
    assert stage(tmp_path).last_checkpoint() == checkpoint  # and more do not begin anew


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (None, 0, ""),
        (InvalidValueError("size: expected less"), 2, "sotopia: size: expected less"),
        (KeyboardInterrupt(), 130, "the same command continues"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), 1, "halve the batch"),
        (MemoryError(), 1, "No checkpoint was complete yet"),
    ],
)
def test_a_script_ends_with_a_sentence_and_a_code(tmp_path, capsys, raised, code, message):
    (tmp_path / "c.yaml").write_text(f"size: 4\noutput: {tmp_path}\n")
    sizes = []

    def run(settings):
        sizes.append(settings.size)
        if raised is not None:
            raise raised

    assert run_script("Small.", Small, run, ["--config", str(tmp_path / "c.yaml"), "--set", "size=5"]) == code
    assert sizes == [5]
    assert message in capsys.readouterr().err


def test_out_of_memory_names_existing_checkpoints_only(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(f"output: {tmp_path}\n")

    def run(settings):
        raise MemoryError

    for step, whole in (("1", True), ("2", False)):  # the second is cut short
        checkpoint = tmp_path / "checkpoints" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "rng_state.pth").write_text("")
        (checkpoint / "trainer_state.json").write_text('{"global_step": 1}' if whole else "{")
        assert run_script("Small.", Small, run, ["--config", str(tmp_path / "c.yaml")]) == 1
        errors = capsys.readouterr().err
        assert errors.endswith(f"is kept: the same command continues from {tmp_path}/checkpoints/checkpoint-1\n")
        assert "No checkpoint" not in errors


def test_out_of_memory_in_a_pipeline_names_the_running_stage_and_keeps_paid_results(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(f"output: {tmp_path}/out\nplays: []\n")
    for part, complete in (("1-bc", True), ("2-sr", False)):
        one = stage(tmp_path / "out" / part / "training")
        one.open()
        checkpoint = one.checkpoints / "checkpoint-1"
        checkpoint.mkdir(parents=True)
        (checkpoint / "rng_state.pth").write_text("")
        (checkpoint / "trainer_state.json").write_text('{"global_step": 1}')
        if complete:
            one.finish({})

    def run(settings):
        raise MemoryError

    assert run_script("Nested.", Nested, run, ["--config", str(tmp_path / "c.yaml")]) == 1
    errors = capsys.readouterr().err
    assert f"{tmp_path}/out/2-sr/training was cut off" in errors
    assert errors.endswith(f"continues from {tmp_path}/out/2-sr/training/checkpoints/checkpoint-1\n")
    assert "another output" not in errors
    arguments = ["--config", str(tmp_path / "c.yaml"), "--set", "processes=3"]
    assert run_script("Nested.", Nested, run, arguments) == 1
    assert "lower processes" in capsys.readouterr().err


def test_sigterm_ends_a_script_like_ctrl_c_and_its_handler_is_restored(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("size: 4\n")
    events = []

    def run(settings):
        signal.raise_signal(signal.SIGTERM)
        events.append("went on")

    def own(number, frame):
        events.append(number)

    before = signal.signal(signal.SIGTERM, own)
    try:
        assert run_script("Small.", Small, run, ["--config", str(tmp_path / "c.yaml")]) == 143
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    assert events == []
    assert "stopped; the same command continues" in capsys.readouterr().err


def test_processes_that_a_script_started_end_with_it(tmp_path):
    """A signal to one process does not reach them, and their pool waits for them."""
    (tmp_path / "c.yaml").write_text("size: 4\n")
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    child.start()

    def run(settings):
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        assert run_script("Small.", Small, run, ["--config", str(tmp_path / "c.yaml")]) == 143
        child.join(20)
        assert child.exitcode == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
        child.kill()


def test_other_errors_are_not_hidden_and_a_check_runs_nothing(tmp_path):
    (tmp_path / "c.yaml").write_text("size: 4\n")
    arguments = ["--config", str(tmp_path / "c.yaml")]

    def run(settings):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run_script("Small.", Small, run, arguments)
    assert run_script("Small.", Small, run, [*arguments, "--check"]) == 0
