"""The oTree project: its bots under `otree test`, and the episodes that it exports."""

import csv
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
