"""The oTree project: its bots under `otree test`, and the episodes that it exports."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.libraries import need, run_page

need("otree")

from sotopia_env.foundation.records import read_record
from sotopia_env.world import Dimension
from sotopia_env.world.episode import Episode, replay
from tests.adapters import failing
from tests.test_docs import ROOT

OTREE = Path(sys.executable).parent / "otree"


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """The folder of the data that a run of all bots exports."""
    project = tmp_path_factory.mktemp("otree") / "project"
    shutil.copytree(ROOT / "examples" / "otree", project)
    command = [OTREE, "test", "--export=data"]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return project / "data"


def test_exported_episodes_replay_and_name_people_and_policies(export):
    with (export / "conversation_custom.csv").open(encoding="utf-8") as file:
        episodes = [read_record(Episode, row["episode"], "export") for row in csv.DictReader(file)]
    assert episodes
    for episode in episodes:
        replay(episode)
        assert [info.name for info in episode.policies] in (["human", "conceder"], ["human", "human"])
        assert all(info.parameters["participant"] for info in episode.policies if info.name == "human")
        assert episode.evaluation().by_agent["agent_0"].keys() >= {Dimension.GOAL}


def test_payoffs_are_the_goal_scores(export):
    with (export / "conversation.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["player.stop"] for row in rows} <= {"settled", "left"}
    assert all(float(row["player.payoff"]) == pytest.approx(float(row["player.goal"]), abs=0.05) for row in rows)


def test_the_blocks_of_the_page_run_on_the_exported_data(export, monkeypatch):
    monkeypatch.chdir(export)
    run_page("otree")
    assert (export / "people.jsonl").stat().st_size


FAILING = Path(__file__).with_name("failing_bots.py")


def test_a_failing_partner_is_survived_or_leaves_the_conversation_unpaid(tmp_path):
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "otree", project)
    shutil.copy(FAILING, project / "conversation" / "tests.py")
    partners = failing.NAMES[:4]
    names = [name.split(":")[1] for name in partners]
    configs = [
        {"name": name, "app_sequence": ["conversation"], "num_demo_participants": 1, "partner": partner}
        for name, partner in zip(names, partners, strict=True)
    ]
    with (project / "settings.py").open("a", encoding="utf-8") as file:
        file.write(f"SESSION_CONFIGS = {configs!r}\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [OTREE, "test", "--export=data"]
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    with (project / "data" / "conversation_custom.csv").open(encoding="utf-8") as file:
        episodes = [read_record(Episode, row["episode"], "export") for row in csv.DictReader(file)]
    with (project / "data" / "conversation.csv").open(encoding="utf-8") as file:
        goals = [row["player.goal"] for row in csv.DictReader(file)]
    assert len(episodes) == len(goals) == len(names)

    def play(partner):
        number = partners.index(partner)
        episode, goal = episodes[number], goals[number]
        if not goal:
            assert episode.turns[-1].turn.actor == "agent_0", "what the person did last is in the record"
            assert episode.stop is None
            return None, None
        return [(item.turn.actor, item.turn.action.move) for item in episode.turns], float(goal)

    failing.check_failing_partners(play, repeats=True)
