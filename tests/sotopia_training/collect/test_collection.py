"""Collecting and rating: the right episodes, resumed to the letter, and nothing half-done counted as done."""

import dataclasses
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sotopia_training.collect.collection import (
    CollectionSettings,
    Participants,
    PlaySettings,
    RatingSettings,
    rate,
    run,
)
from sotopia_training.collect.task_generation import FamilySettings, TaskSettings, load_tasks, make_tasks

from sotopia_env import naming, tasks
from sotopia_env.foundation.errors import InvalidValueError, PolicyError, SotopiaError, UnknownNameError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_env.naming.seats import role_of
from sotopia_env.reports.seat_results import seat_results
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks import starter_tasks
from sotopia_env.tasks.open_scenario import task_key
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world import Rules
from sotopia_env.world.reward import Dimension
from sotopia_env.writing.simulation import plain_task
from tests.errors import raises
from tests.sotopia_env.runs.model_runs import table_server

ROOT = Path(__file__).parents[3]
TASKS = TaskSettings(scenarios=3, pairs=2, families=FamilySettings())


def settings(folder, **changes):
    values = {
        "agent": "linear:horizon=2",
        "tasks": TASKS,
        "play": PlaySettings(max_turns=6),
        "output": str(folder / "run"),
    }
    return CollectionSettings(**{**values, **changes})


@dataclasses.dataclass(frozen=True)
class Failing:
    """Plays like another policy, but fails after a number of turns in all."""

    inner: object
    left: list

    @property
    def name(self):
        return self.inner.name

    @property
    def parameters(self):
        return self.inner.parameters

    async def act(self, observation, seed):
        self.left[0] -= 1
        if self.left[0] < 0:
            raise PolicyError("the model is gone")
        return await self.inner.act(observation, seed)


def seats(folder):
    """How often who sat where and who began, over the episodes of a run."""
    rows = seat_results(read_run(folder / "run"))
    return Counter((row.policy.split()[0], row.seat, row.first) for row in rows)


# --- what is played ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("partner", "orders", "both_seats", "expected"),
    [
        (None, "both", True, {("linear", seat, first): 6 for seat in (0, 1) for first in (True, False)}),
        (None, "alternate", True, {("linear", seat, first): 3 for seat in (0, 1) for first in (True, False)}),
        (None, "first", True, {("linear", 0, True): 6, ("linear", 1, False): 6}),
        (
            "conceder:horizon=2",
            "both",
            True,
            {(name, seat, first): 6 for name in ("linear", "conceder") for seat in (0, 1) for first in (True, False)},
        ),
        ("conceder:horizon=2", "first", False, {("linear", 0, True): 6, ("conceder", 1, False): 6}),
    ],
)
def test_orders_and_seats_of_a_collection(partner, orders, both_seats, expected, tmp_path):
    play = PlaySettings(orders=orders, both_seats=both_seats, max_turns=4)
    run(settings(tmp_path, partner=partner, play=play))
    assert seats(tmp_path) == expected
    done = json.loads((tmp_path / "run" / "done.json").read_text())
    assert done["episodes"] == done["planned"] == sum(expected.values()) // 2
    assert (done["failed"], done["unscored"]) == (0, 0)


@pytest.mark.parametrize("orders", ["first", "alternate"])
def test_partners_of_a_collection_have_roles(orders, tmp_path):
    """The agent and its allies are one policy, whose turns are trained on; each role is the agent's once."""
    partner = {"ally": "self", "opponent": "deceiver"}
    source = TaskSettings(scenarios=2, pairs=1, families=FamilySettings(names=("mini_mafia",)))
    run(settings(tmp_path, agent="honest", partner=partner, tasks=source, play=PlaySettings(orders=orders)))
    seated = Counter()
    for episode in read_run(tmp_path / "run"):
        names = {role_of(episode.task, policy.agent): policy.name for policy in episode.policies}
        seated[names["hidden"], names["informed"], names["plain"]] += 1
    assert seated == {("honest", "deceiver", "deceiver"): 2, ("deceiver", "honest", "honest"): 2}
    firsts = {episode.rules.first_seat for episode in read_run(tmp_path / "run")}
    assert firsts == ({0} if orders == "first" else {0, 1})


def test_a_partner_for_a_seat_that_no_task_has_is_refused(tmp_path):
    with raises(UnknownNameError, field="partner", got="byer", nearest="buyer"):
        run(settings(tmp_path, partner={"byer": "linear", "other": "self"}))


@pytest.fixture(scope="module")
def paper_round(tmp_path_factory):
    return make_tasks(TaskSettings(families=FamilySettings()), tmp_path_factory.mktemp("round"))


def test_a_round_of_the_paper_is_a_thousand_episodes(paper_round):
    """100 tasks × 10 pairs; with both orders twice that."""
    expert = (naming.make_policy("linear"),)
    assert len(PlaySettings(orders="alternate").plans(paper_round, [expert], Rules())) == 1000
    assert len(PlaySettings().plans(paper_round, [expert], Rules())) == 2000


def test_the_rules_of_a_task_file_apply_unless_the_settings_have_their_own(tmp_path):
    file = tmp_path / "tasks.yaml"
    records = [task.model_dump(mode="json") for task in tasks.generate("bargaining", 2, 0)]
    file.write_text(to_yaml({"tasks": records, "rules": {"turn_order": "simultaneous", "max_turns": 4}}))
    given = TaskSettings(given=str(file), pairs=0)
    run(settings(tmp_path, agent="stubborn", tasks=given, play=PlaySettings(orders="first")))
    orders = {(episode.rules.turn_order.value, episode.rules.max_turns) for episode in read_run(tmp_path / "run")}
    assert orders == {("simultaneous", 4)}
    own = settings(tmp_path, tasks=given, play=PlaySettings(turn_order="random", max_turns=6)).rules
    assert (own.turn_order.value, own.max_turns) == ("random", 6)
    copied = settings(tmp_path, tasks=TASKS, rules_of=str(file), play=PlaySettings()).rules
    assert (copied.turn_order.value, copied.max_turns) == ("simultaneous", 4)
    with raises(InvalidValueError, field="orders"):
        run(settings(tmp_path / "both", tasks=given, play=PlaySettings()))


def test_evaluation_scenarios_are_not_collected(tmp_path):
    source = "bargaining:n=3"  # what the three scenarios would be
    run(settings(tmp_path, tasks=TASKS.model_copy(update={"evaluation": (source,)})))
    keys = {task_key(task) for task in load_tasks(source)}
    assert not keys & {task_key(episode.task) for episode in read_run(tmp_path / "run")}


def test_a_policy_may_be_an_object(tmp_path):
    agent = dataclasses.replace(naming.make_policy("boulware"), name="mine")
    run(settings(tmp_path, partner="linear"), Participants(agent=agent))
    assert {name for name, _, _ in seats(tmp_path)} == {"mine", "linear"}


# --- on the way ------------------------------------------------------------------------------------------------------
def test_an_interrupted_collection_continues_with_the_same_result(tmp_path):
    """Episodes are those of an unbroken run; nothing counts as done until all are there."""
    config = settings(tmp_path)
    inner = naming.make_policy(config.agent)
    with pytest.raises(SotopiaError, match="of 12 episodes failed, the first with PolicyError: the model is gone"):
        run(config, Participants(agent=Failing(inner, [17])))
    assert not (tmp_path / "run" / "done.json").exists()
    before = {episode.key: episode for episode in read_run(tmp_path / "run")}
    assert 0 < len(before) < 12
    run(config)
    after = {episode.key: episode for episode in read_run(tmp_path / "run")}
    run(settings(tmp_path / "straight"))
    straight = {episode.key: episode for episode in read_run(tmp_path / "straight" / "run")}
    assert after.keys() == straight.keys()
    assert [after[key].turns for key in sorted(after)] == [straight[key].turns for key in sorted(after)]
    assert all(after[key] == before[key] for key in before)


def test_a_done_collection_is_left_alone(tmp_path):
    config = settings(tmp_path)
    run(config)
    size = (tmp_path / "run" / "episodes.jsonl").stat().st_mtime_ns
    run(config, Participants(agent=Failing(naming.make_policy("linear"), [0])))
    assert (tmp_path / "run" / "episodes.jsonl").stat().st_mtime_ns == size
    with raises(InvalidValueError, field="settings.agent", expected='"linear:horizon=2"', got='"boulware"'):
        run(config.model_copy(update={"agent": "boulware"}))


def test_some_episodes_may_fail_where_that_is_allowed_and_are_counted(tmp_path):
    config = settings(tmp_path, play=PlaySettings(max_turns=6, max_failed=1.0))
    run(config, Participants(agent=Failing(naming.make_policy(config.agent), [17])))
    done = json.loads((tmp_path / "run" / "done.json").read_text())
    assert done["failed"] + done["episodes"] == done["planned"] == 12
    assert done["failed"] > 0


@pytest.mark.parametrize(
    ("setting", "name", "nearest"),
    [("agent", "liner", "linear"), ("partner", "conceeder", "conceder"), ("evaluator", "verifid", "verified")],
)
def test_a_misspelt_name_leaves_nothing_behind(setting, name, nearest, tmp_path):
    with raises(UnknownNameError, got=name, nearest=nearest):
        run(settings(tmp_path, **{setting: name}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({"play": {"order": "both"}}, {"field": "play.order", "nearest": "orders"}),
        ({"play": {"both_seats": "perhaps"}}, {"field": "play.both_seats", "got": "perhaps"}),
        ({"play": {"orders": "twice"}}, {"field": "play.orders", "got": "twice"}),
    ],
)
def test_settings_have_their_declared_types(values, fields):
    """Guards P: a default of True was compared with the text "True" and so was False."""
    with raises(InvalidValueError, **fields):
        settings_of({"agent": "linear", "output": "x"} | values, CollectionSettings, "config")
    raw = {"agent": "linear", "output": "x", "play": {"both_seats": "false"}}
    assert settings_of(raw, CollectionSettings, "config").play.both_seats is False


# --- rating ----------------------------------------------------------------------------------------------------------
def test_rating_scores_an_unscored_run(tmp_path):
    run(settings(tmp_path, evaluator="none"))
    assert not any(episode.evaluations for episode in read_run(tmp_path / "run"))
    config = RatingSettings(run=str(tmp_path / "run"), evaluator="verified", output=str(tmp_path / "rating"))
    rate(config)
    done = json.loads((tmp_path / "rating" / "done.json").read_text())
    assert done["episodes"] == 12
    assert done["scores"]["linear"]["goal"] > 0
    assert {e.evaluation().evaluator for e in read_run(tmp_path / "run")} == {"verified"}
    rate(config, FixedEvaluator({Dimension.GOAL: 1}))
    assert {e.evaluation().evaluator for e in read_run(tmp_path / "run")} == {"verified"}, "it was done"


def test_a_failed_judge_leaves_the_rating_incomplete_and_is_asked_again(tmp_path):
    run(settings(tmp_path, evaluator="none"))
    config = RatingSettings(run=str(tmp_path / "run"), evaluator="diligence", output=str(tmp_path / "rating"))
    with pytest.raises(SotopiaError, match=r"12 of 12 episodes are unscored, the first because .*the judge slept"):
        rate(config, FixedEvaluator(unscored="the judge slept"))
    assert not (tmp_path / "rating" / "done.json").exists()
    rate(config, FixedEvaluator({Dimension.GOAL: 7}))
    assert json.loads((tmp_path / "rating" / "done.json").read_text())["scores"]["linear"]["goal"] == 7
    with raises(InvalidValueError, field="evaluator", got="none"):
        rate(config.model_copy(update={"evaluator": "none", "output": str(tmp_path / "other")}))


def test_the_dimensions_of_a_task_file_are_judged_at_once_and_later(tmp_path):
    file = tmp_path / "mine.yaml"
    warmth = {"name": "warmth", "low": 0, "high": 5, "instruction": "How warm?"}
    file.write_text(to_yaml({"tasks": [plain_task(item) for item in starter_tasks()[:2]], "dimensions": [warmth]}))
    with table_server(models=("tiny",)) as server:
        judge = f"judge:local/tiny:api_base={server.api_base}"
        given = TaskSettings(given=str(file), pairs=0)
        run(settings(tmp_path, agent="silent", tasks=given, evaluator=f"{judge},dimensions=(goal)"))
        rate(RatingSettings(run=str(tmp_path / "run"), evaluator=judge, output=str(tmp_path / "rating")))
    evaluations = [evaluation for episode in read_run(tmp_path / "run") for evaluation in episode.evaluations]
    assert len(evaluations) == 8  # of two tasks, in two orders, by two judges
    assert all("warmth" in {score.dimension for score in evaluation.scores} for evaluation in evaluations)


# --- what is shipped -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("script", ["collect", "rate", "filter_episodes", "generate_tasks", "run_pi"])
def test_scripts_report_errors_before_heavy_imports(script, tmp_path):
    (tmp_path / "c.yaml").write_text("ouput: x\n")
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print([m for m in ('torch', 'transformers', 'trl', 'litellm') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(ROOT / "scripts" / f"{script}.py"), "--config", str(tmp_path / "c.yaml")]
    process = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert process.returncode == 2
    assert process.stderr.startswith("sotopia: ")
    assert process.stderr.count("\n") == 1
    assert process.stdout == "[]\n"
