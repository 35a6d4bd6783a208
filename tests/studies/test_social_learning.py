"""The study of social learning: its stages are understood, tests are kept apart, and a short run goes through it."""

import asyncio
from pathlib import Path

import pytest
from sotopia_training.grpo.settings import GRPOSettings

from sotopia_env import Table, tasks
from sotopia_env.naming import make_policy
from studies.social_learning.__main__ import run
from studies.social_learning.evaluation import EvaluationSettings
from studies.social_learning.report import Result, difference, mean, results_of
from studies.social_learning.stages import SHORT, STAGES, Study
from studies.social_learning.tasks import Source, TasksSettings, content, task_sets

NAMES = ("Ana", "Ben", "Cleo", "Dan", "Eva")


def settings_by_output(tmp_path: Path, short: bool = False):
    study = Study(tmp_path, short)
    return {item.output: item for item in map(study.settings, STAGES)}


@pytest.mark.parametrize("short", [False, True])
def test_every_stage_is_understood_and_has_an_output_of_its_own(tmp_path, short):
    by_output = settings_by_output(tmp_path, short)
    assert len(by_output) == len(STAGES)
    assert SHORT.keys() <= by_output.keys()


def test_the_arms_of_a_game_differ_in_their_reward_alone(tmp_path):
    by_output = settings_by_output(tmp_path)
    for one, other in (("win", "belief"), ("outcome", "promises")):
        first, second = by_output[one], by_output[other]
        assert isinstance(first, GRPOSettings)
        assert first.model_dump(exclude={"reward", "output"}) == second.model_dump(exclude={"reward", "output"})
        assert first.reward != second.reward


def test_files_of_tasks_are_made_and_those_of_tests_are_trained_on_by_nobody(tmp_path):
    by_output = settings_by_output(tmp_path)
    sets = by_output["tasks"].sets
    tested = {Path(game.tasks).stem for game in by_output["evaluation"].games}
    trained = {Path(by_output[arm].situations.tasks).stem for arm in ("win", "belief", "outcome", "promises")}
    trained |= {Path(by_output[name].tasks.given).stem for name in by_output if name.startswith("expert-")}
    assert tested == {name for name, source in sets.items() if source.test}
    assert trained == {name for name, source in sets.items() if not source.test}


def test_test_tasks_that_equal_a_training_task_in_what_counts_are_left_out():
    source = {"family": "dilemma", "level": "hard", "n": 30}
    settings = TasksSettings(
        names=NAMES,
        sets={"train": Source(**source, seed=1), "test": Source(**source, seed=1, test=True)},
        output="",
    )
    sets = task_sets(settings)
    assert len(sets["train"]) == 30
    assert sets["test"] == []
    settings = settings.model_copy(update={"sets": {**settings.sets, "test": Source(**source, seed=2, test=True)}})
    sets = task_sets(settings)
    assert sets["test"]
    assert not {content(task) for task in sets["test"]} & {content(task) for task in sets["train"]}


def test_people_have_the_short_names_wherever_they_occur():
    source = Source(family="mini_mafia", level="medium", n=6, seed=3)
    (drawn,) = task_sets(TasksSettings(names=NAMES, sets={"a": source}, output="")).values()
    for task, before in zip(drawn, tasks.generate(["mini_mafia"], 6, 3, "medium"), strict=True):
        assert {*task.names.values()} < {*NAMES}
        assert not any(name in task.model_dump_json() for name in before.names.values())
        assert {variable.name for variable in task.scenario.facts.variables if variable.kind == "role"} == {
            f"role of {name}" for name in task.names.values()
        }


def test_a_wordless_script_acts_as_the_script_and_says_nothing():
    task = tasks.generate("mini_mafia", 1, 0, "medium")[0]
    records = []
    for name in ("deceiver:lies=0.5", "studies.social_learning.wordless:wordless:policy=(deceiver:lies=0.5)"):
        table = Table(task, seed=5)
        asyncio.run(table.play(make_policy(name)))
        records.append([item.action for item in table.state.turns])
    spoken, silent = records
    assert [action.move for action in spoken] == [action.move for action in silent]
    assert any(action.argument for action in spoken)
    assert not any(action.argument for action in silent)


def result(policy: str, task: str, seat: int, **values: float) -> Result:
    return Result("dilemma", "met", policy, "", task, seat, values)


def test_differences_are_paired_and_seats_without_the_figure_are_left_out():
    clone = [result("clone", "a", 0, kept=0.5), result("clone", "b", 0, kept=0.0), result("clone", "c", 0)]
    arm = [result("arm", "a", 0, kept=1.0), result("arm", "b", 0), result("arm", "c", 0, kept=1.0)]
    paired = difference(arm, clone, "kept", (0.0, 1.0))
    assert (paired.n, paired.mean) == (1, 0.5)
    assert mean(clone, "kept", (0.0, 1.0)).mean == 0.25
    assert mean(clone, "other", (0.0, 1.0)) is None
    assert difference(arm, clone, "other", (0.0, 1.0)) is None


def test_results_are_of_the_policies_and_never_of_a_partner_of_the_same_kind(tmp_path, monkeypatch):
    """A teacher among liars: its own seats count, those of the liars beside it do not, and no seat counts twice."""
    from studies.social_learning import evaluation

    monkeypatch.chdir(tmp_path)
    settings = TasksSettings(
        names=NAMES, sets={"t": Source(family="mini_mafia", level="medium", n=3, seed=1)}, output="tasks"
    )
    from studies.social_learning import tasks as stage

    stage.run(settings)
    town = {"informed": "bayesian", "plain": "bayesian"}
    game = {
        "name": "mini_mafia",
        "tasks": "tasks/t.jsonl",
        "evaluator": "verified+facts:probe=turns,trust=false,interviewee=bayesian",
        "policies": ["deceiver:lies=0.0"],
        "partners": {"liar": {**town, "hidden": "deceiver"}, "silent": {**town, "hidden": "mute"}},
    }
    evaluated = EvaluationSettings.model_validate({"games": [game], "manner": "", "output": "evaluation"})
    evaluation.run(evaluated)
    results = list(results_of(evaluated))
    counts = {(item.condition, item.role): 0 for item in results}
    for item in results:
        counts[item.condition, item.role] += 1
        assert item.values["truth_telling"] == 1
    # The hidden seat has the same partners in both conditions.
    assert counts == {
        ("liar", "hidden"): 3,
        ("liar", "informed"): 3,
        ("liar", "plain"): 3,
        ("silent", "informed"): 3,
        ("silent", "plain"): 3,
    }


@pytest.mark.timeout(1800)
@pytest.mark.slow("builds and trains five tiny models and plays hundreds of episodes")
def test_a_short_run_goes_through_all_stages_and_is_complete_when_called_again(tmp_path):
    pytest.importorskip("llguidance")
    run(tmp_path, short=True)
    report = (tmp_path / "report.md").read_text()
    assert (tmp_path / "mini_mafia.csv").read_text().count("\nmet-liar,") == 15
    models = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model/*.safetensors")}
    assert len(models) == 5
    run(tmp_path, short=True)
    assert models == {path: path.stat().st_mtime_ns for path in models}
    assert (tmp_path / "report.md").read_text().split("minutes")[0] == report.split("minutes")[0]
