"""The papers' settings by name, several partners and judges, paired differences; interrupted, continued, extended."""

import asyncio
import csv
import json
import math
import shutil
import signal
from pathlib import Path

import pytest
from scipy import stats
from sotopia_training.evaluation import evaluation
from sotopia_training.evaluation.evaluation import PRESETS, EvaluationSettings, read_tasks, run
from sotopia_training.stage.script import run_script

from sotopia_env import tasks
from sotopia_env.evaluators.verified import VerifiedOutcome
from sotopia_env.foundation.errors import BudgetExceededError, InvalidValueError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.naming import make_evaluator as make_evaluator
from sotopia_env.naming import make_policy as make_policy
from sotopia_env.reports.differences import CLOSEST
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage.directory import read_run
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.taskset import TaskSet
from tests.errors import raises


def settings(output: Path, **changes) -> EvaluationSettings:
    values = {
        "output": str(output),
        "policies": ["linear", "boulware"],
        "partners": ["conceder", "linear"],
        "judges": ["verified", "sotopia_env.testing:FixedEvaluator"],
        "tasks": "bargaining",
        "n": 4,
        "seed": 3,
        "max_turns": 6,
        "metrics": ["goal", "surplus_share"],
    }
    return EvaluationSettings.model_validate({**values, **changes})


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evaluations") / "first"
    run(settings(folder))
    return folder


def figures(folder: Path) -> dict:
    return json.loads((folder / "done.json").read_text())


def runs(folder: Path) -> dict[str, Path]:
    return {file.parent.name.rpartition("-")[0]: file.parent for file in folder.glob("runs/*/run.json")}


def test_every_policy_meets_every_partner_in_every_seat_and_both_orders(evaluated):
    folders = runs(evaluated)
    assert set(folders) == {f"{a}-vs-{b}" for a in ("linear", "boulware") for b in ("conceder", "linear")}
    episodes = list(read_run(folders["boulware-vs-conceder"]))
    seatings = {(e.policies[0].name, e.turns[0].turn.actor) for e in episodes}
    assert seatings == {(name, agent) for name in ("boulware", "conceder") for agent in ("agent_0", "agent_1")}
    assert len(episodes) == 4 * 2 * 2
    assert {e.evaluator for episode in episodes for e in episode.evaluations} == {"verified", "fixed"}


def test_cells_are_means_over_the_policys_own_seats_with_that_partner(evaluated):
    cells = {(c["policy"], c["partner"], c["evaluator"], c["metric"]): c for c in figures(evaluated)["matrix"]}
    assert len(cells) == 2 * 2 * 2 * 2
    by_scenario: dict[str, list[float]] = {}
    for episode in read_run(runs(evaluated)["boulware-vs-conceder"]):
        (agent,) = (info.agent for info in episode.policies if info.name == "boulware")
        score = episode.evaluation("verified").by_agent[agent]
        (goal,) = (s.value for d, s in score.items() if getattr(d, "value", d) == "goal")
        by_scenario.setdefault(episode.task.scenario.id, []).append(goal)
    means = [math.fsum(values) / len(values) for values in by_scenario.values()]
    cell = cells["boulware", "conceder", "verified", "goal"]
    assert cell["mean"] == pytest.approx(math.fsum(means) / len(means))
    assert (cell["n"], cell["clusters"], cell["unscored"]) == (8, 4, 0)  # both orders of a seat are one
    assert cells["linear", "linear", "fixed", "goal"]["n"] == 8


def test_differences_are_paired_by_task_seat_first_speaker_and_seed(evaluated):
    differences = figures(evaluated)["differences"]
    gains = {(g["partner"], g["evaluator"], g["metric"]): g for g in differences}
    # The baseline is the first policy.
    assert {(g["first"], g["second"]) for g in differences} == {("boulware", "linear")}
    assert set(gains) == {(p, j, m) for p in ("conceder", "linear") for j in ("verified", "fixed")
                          for m in ("goal", "surplus_share")}  # fmt: skip
    shares: dict[str, dict[tuple, float]] = {"boulware": {}, "linear": {}}
    for policy in shares:
        for episode in read_run(runs(evaluated)[f"{policy}-vs-conceder"]):
            seat = [info.name for info in episode.policies].index(policy)
            outcome = episode.evaluation("verified").outcome
            shares[policy][episode.task.id, seat, episode.turns[0].turn.actor, episode.seed] = outcome.shares[seat]
    assert shares["boulware"].keys() == shares["linear"].keys()
    difference = [shares["boulware"][key] - shares["linear"][key] for key in shares["linear"]]
    gain = gains["conceder", "verified", "surplus_share"]
    assert gain["mean"] == pytest.approx(math.fsum(difference) / len(difference))
    assert (gain["matched"], gain["seats"], gain["paired_by"]) == (32, 32, CLOSEST)
    for metric in ("goal", "surplus_share"):
        tested = [g for g in differences if g["p"] is not None and g["metric"] == metric]
        assert [g["q"] for g in tested] == pytest.approx(stats.false_discovery_control([g["p"] for g in tested]))


def test_the_report_shows_charts_and_its_sheets_hold_the_same_numbers(evaluated):
    text = (evaluated / "report.md").read_text()
    charts = ("means", "differences", "goal_by_partner", "surplus_share_by_partner")
    assert all(f"]({name}.png)" in text for name in charts)
    assert all((evaluated / f"{name}.png").stat().st_size > 5000 for name in charts)
    assert all((evaluated / f"{name}.svg").read_text().startswith("<?xml") for name in charts)
    for name in ("matrix", "differences"):
        with (evaluated / f"{name}.csv").open() as stream:
            means = [float(row["mean"]) for row in csv.DictReader(stream)]
        assert means == [row["mean"] for row in figures(evaluated)[name]]


def test_the_same_call_repeats_no_episode_and_more_can_be_added(evaluated, tmp_path):
    evaluated = shutil.copytree(evaluated, tmp_path / "copy")
    stamps = {name: (folder / "episodes.jsonl").stat().st_mtime_ns for name, folder in runs(evaluated).items()}
    run(settings(evaluated, policies=["linear"]))
    assert {n: (p / "episodes.jsonl").stat().st_mtime_ns for n, p in runs(evaluated).items()} == stamps
    run(settings(evaluated, policies=["linear", "boulware", "splitter"], partners=["conceder"]))
    again = {n: (p / "episodes.jsonl").stat().st_mtime_ns for n, p in runs(evaluated).items()}
    assert set(again) - set(stamps) == {"splitter-vs-conceder"}
    assert {name: again[name] for name in stamps} == stamps
    with raises(InvalidValueError, field="settings.seed", expected="3", got="4"):
        run(settings(evaluated, seed=4))


def test_a_changed_policy_is_refused_in_an_existing_run(evaluated, tmp_path):
    """Guards the replay of a complete evaluation after a model was trained again or a prompt changed."""
    evaluated = shutil.copytree(evaluated, tmp_path / "copy")
    stamps = {path: path.stat().st_mtime_ns for path in evaluated.glob("runs/*/episodes.jsonl")}
    changed = ["splitter", "linear", "boulware:exponent=0.3"]
    with raises(InvalidValueError, field="policies.boulware.parameters.exponent"):
        run(settings(evaluated, policies=changed))
    assert {path: path.stat().st_mtime_ns for path in evaluated.glob("runs/*/episodes.jsonl")} == stamps


def test_an_interrupted_evaluation_continues_where_it_was(tmp_path, monkeypatch):
    """Guards the loss of a killed batch: what a judge has been paid for is kept."""
    calls = []

    class Limited(VerifiedOutcome):
        async def evaluate(self, episode):
            calls.append(1)
            if len(calls) == 11:
                raise BudgetExceededError("the limit of $1 is reached")
            return await super().evaluate(episode)

    monkeypatch.setattr(evaluation.naming, "make_evaluator", lambda spec, **_: Limited())
    small = settings(tmp_path / "e", policies=["linear"], partners=["conceder"], judges=["verified"], metrics=["goal"])
    with pytest.raises(BudgetExceededError, match=r"the limit of \$1 is reached"):
        run(small)
    run(small)
    assert len(calls) == 16 + 1
    assert figures(tmp_path / "e")["matrix"][0]["n"] == 8  # both orders of a seat are averaged


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_an_evaluation_with_the_usual_exit_code(tmp_path, monkeypatch, number, code):
    calls = []

    class Signalled(VerifiedOutcome):
        async def evaluate(self, episode):
            calls.append(1)
            if len(calls) == 5:
                signal.raise_signal(number)
            return await super().evaluate(episode)

    monkeypatch.setattr(evaluation.naming, "make_evaluator", lambda spec, **_: Signalled())
    small = settings(tmp_path / "e", policies=["linear"], partners=["conceder"], judges=["verified"], metrics=["goal"])
    config = tmp_path / "c.yaml"
    config.write_text(small.model_dump_json())
    assert run_script("", EvaluationSettings, run, ["--config", str(config)]) == code
    assert 5 <= len(calls) < 16
    assert not (tmp_path / "e" / "done.json").exists()
    assert run_script("", EvaluationSettings, run, ["--config", str(config)]) == 0
    assert len(calls) == 16


def baseline_run(folder: Path, focal: str, *, seed: int = 3, judge: str = "verified", **rules) -> Path:
    plans = plan_episodes(
        tasks.generate("bargaining", 4, seed=3),
        [(make_policy(focal), make_policy("conceder"))],
        seed=seed,
        rules=Rules(**{"max_turns": 6, **rules}),
        orders="both",
    )
    asyncio.run(run_episodes(plans, evaluator=make_evaluator(judge), run_dir=folder, progress=False))
    return folder


def test_a_baseline_may_be_a_separate_run(evaluated, tmp_path):
    baseline = baseline_run(tmp_path / "earlier", "linear")
    run(settings(tmp_path / "e", policies=["boulware"], partners=["conceder"], judges=["verified"],
                 baseline=str(baseline)))  # fmt: skip
    differences = figures(tmp_path / "e")["differences"]
    same = [
        g["mean"]
        for g in figures(evaluated)["differences"]
        if (g["partner"], g["evaluator"]) == ("conceder", "verified")
    ]
    assert {g["second"] for g in differences} == {"linear"}
    assert [g["mean"] for g in differences] == pytest.approx(same)
    run(settings(tmp_path / "e", policies=["boulware"], partners=["conceder"], judges=["verified"],
                 baseline=str(evaluated), baseline_name="linear"))  # fmt: skip
    assert [g["mean"] for g in figures(tmp_path / "e")["differences"]] == pytest.approx(same)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"seed": 9}, "baseline"),
        ({"max_turns": 8}, "runs"),
        ({"judge": "sotopia_env.testing:FixedEvaluator"}, "baseline"),
    ],
)
def test_a_baseline_that_does_not_match_is_refused(tmp_path, options, field):
    baseline = baseline_run(tmp_path / "earlier", "linear", **options)
    small = {"policies": ["boulware"], "partners": ["conceder"], "judges": ["verified"], "n": 4}
    with raises(InvalidValueError, field=field):
        run(settings(tmp_path / "e", **small, baseline=str(baseline)))


def test_a_baseline_with_another_partner_or_with_several_policies_is_refused(evaluated, tmp_path):
    small = {"policies": ["boulware"], "judges": ["verified"], "n": 4}
    with raises(InvalidValueError, field="baseline"):
        run(settings(tmp_path / "a", **small, partners=["splitter"], baseline=str(evaluated)))
    with raises(InvalidValueError, field="baseline"):
        run(settings(tmp_path / "b", **small, partners=["conceder"], baseline=str(evaluated)))


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"metrics": ["goals"]}, {"field": "metrics", "got": "goals"}),
        ({"policies": ["linear", "linear:floor=0.1"]}, {"field": "policies"}),
        ({"baseline": "sharer"}, {"field": "baseline", "got": "sharer"}),
        ({"preset": "sotopia-hard", "max_turns": None}, {"field": "tasks"}),
    ],
)
def test_contradictory_settings_are_refused_before_playing(tmp_path, changes, fields):
    with raises(InvalidValueError, **fields):
        run(settings(tmp_path / "e", **changes))
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize(
    ("preset", "scenarios", "castings", "fits"),
    [
        ("sotopia-hard", 14, 10, True),
        ("sotopia-hard", 14, 9, False),
        ("sotopia-hard", 13, 10, False),
        ("sotopia-all", 90, 2, True),
        ("sotopia-all", 90, 1, False),
    ],
)
def test_a_preset_is_the_whole_of_its_set_unless_a_part_is_asked_for(tmp_path, preset, scenarios, castings, fits):
    """Guards R20: all castings are played, not the first of each scenario."""
    starter = tasks.starter_tasks()[0]
    variants = [
        starter.model_copy(
            update={"id": f"t{s}-{c}", "scenario": starter.scenario.model_copy(update={"id": f"scenario-{s}"})}
        )
        for s in range(scenarios)
        for c in range(castings)
    ]
    TaskSet(variants).save(tmp_path / "tasks.jsonl")
    config = settings(tmp_path, preset=preset, tasks=str(tmp_path / "tasks.jsonl"), n=None, max_turns=None)
    if not fits:
        with raises(InvalidValueError, field="tasks"):
            read_tasks(config)
    assert len(read_tasks(config.model_copy(update={"partial": not fits}))) == scenarios * castings


def test_a_partial_preset_needs_a_task_file(tmp_path):
    values = {"output": str(tmp_path), "policies": ["linear"], "partners": ["conceder"], "preset": "sotopia-hard"}
    with raises(InvalidValueError, field="tasks"):
        read_tasks(settings_of({**values, "partial": True}, EvaluationSettings, ""))


def test_presets_are_those_of_the_papers():
    """SOTOPIA-RL, section 5: 90 scenarios with 2 pairs of characters; the 14 hard ones with 10."""
    sizes = {name: (preset.scenarios, preset.castings) for name, preset in PRESETS.items()}
    assert sizes == {"sotopia-all": (90, 2), "sotopia-hard": (14, 10), "verified": (None, None)}
    both = {"orders": "both", "max_turns": 20}
    assert {name: preset.fixed for name, preset in PRESETS.items()} == {
        "sotopia-all": both,
        "sotopia-hard": both,
        "verified": {},
    }


@pytest.mark.parametrize("preset", ["sotopia-all", "sotopia-hard"])
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"orders": "first"}, "orders"),
        ({"max_turns": 6}, "max_turns"),
    ],
)
def test_settings_that_contradict_a_preset_are_refused(preset, changes, field):
    values = {"output": "o", "policies": ["linear"], "partners": ["conceder"], "preset": preset, "tasks": "t.jsonl"}
    with raises(InvalidValueError, field=field, file="e.yaml"):
        settings_of({**values, **changes}, EvaluationSettings, "e.yaml")
    agreeing = settings_of({**values, "orders": "both", "max_turns": 20}, EvaluationSettings, "e.yaml")
    assert agreeing == settings_of(values, EvaluationSettings, "e.yaml")
    assert agreeing.max_turns == 20
    verified = settings_of({**values, **changes, "preset": "verified"}, EvaluationSettings, "e.yaml")
    assert verified.max_turns == changes.get("max_turns")


def test_presets_of_papers_play_both_orders_with_the_papers_turn_limit(tmp_path):
    """Whatever limit the task file has of its own."""
    task = tasks.generate("bargaining", 1, seed=3)[0]
    short = task.model_copy(update={"scenario": task.scenario.model_copy(update={"max_turns": 4})})
    TaskSet([short]).save(tmp_path / "tasks.jsonl")
    preset = {
        "preset": "sotopia-hard",
        "tasks": str(tmp_path / "tasks.jsonl"),
        "partial": True,
        "n": None,
        "max_turns": None,
    }
    seats = {"policies": ["boulware"], "partners": ["silent"], "judges": ["verified"], "metrics": ["goal"]}
    run(settings(tmp_path / "e", **seats, **preset))
    episodes = list(read_run(runs(tmp_path / "e")["boulware-vs-silent"]))
    assert {(e.rules.max_turns, e.task.scenario.max_turns) for e in episodes} == {(20, 4)}
    assert {(e.policies[0].name, e.turns[0].turn.actor) for e in episodes} == {
        (name, agent) for name in ("boulware", "silent") for agent in ("agent_0", "agent_1")
    }
    assert "each seat begins once, at most 20 turns, 1 × each" in (tmp_path / "e" / "report.md").read_text()


@pytest.mark.parametrize("name", ["evaluate_verified", "evaluate_sotopia_hard", "evaluate_sotopia_all"])
def test_the_configs_are_read_by_the_command_in_their_first_line(name):
    from sotopia_env.foundation.settings import read_settings

    file = Path(__file__).parents[3] / "configs" / f"{name}.yaml"
    assert file.read_text().splitlines()[0].startswith(f"# sotopia train evaluate --config {name}")
    assert read_settings(file, EvaluationSettings).policies
