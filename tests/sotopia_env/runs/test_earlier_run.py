"""A run that an earlier version wrote: ``earlier_run/`` was made by commit 6bf2d0b, with its default evaluator.

The command was ``sotopia rollout --policy boulware --policy conceder --tasks bargaining -n 1``.
"""

import json
import shutil
from pathlib import Path

import pytest

from sotopia_env.reports.compare import compare_runs
from sotopia_env.storage.directory import read_run
from sotopia_env.world.episode import replay
from tests.sotopia_env.cli.test_cli import sotopia


@pytest.fixture
def run_dir(tmp_path):
    """A copy of the run, whose policies were found in a module of before."""
    shutil.copytree(Path(__file__).parent / "earlier_run", tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    manifest = json.loads(file.read_text())
    manifest["code"] = json.dumps({"training.harm.injury": {"file": "injury.py", "sha256": "0" * 16}})
    file.write_text(json.dumps(manifest))
    return tmp_path / "run"


def test_its_episodes_replay_and_their_verified_scores_count(run_dir):
    episodes = list(read_run(run_dir))
    assert len(episodes) == 4
    for episode in episodes:
        replay(episode)
        scores = episode.evaluation().by_agent["agent_0"]
        assert set(scores) == {
            "goal",
            "financial_and_material_benefits",
        }  # the counts of words beside them are no scores


def test_it_is_shown_compared_and_evaluated(run_dir):
    assert "not measured: BEL" in sotopia("show", run_dir, 0).output
    report = compare_runs([run_dir])
    assert report.headlines[0] == "goal"
    assert report.cell("boulware", "believability") is None
    assert (
        "4 episodes evaluated by verified, 0 unscored" in sotopia("evaluate", run_dir, "--evaluator", "verified").output
    )


def test_to_continue_it_is_refused_and_nothing_changes(run_dir):
    before = {path.name: path.read_bytes() for path in run_dir.iterdir()}
    same = ["--policy", "boulware", "--policy", "conceder", "--tasks", "bargaining", "-n", 1, "--out", run_dir]
    assert "rules" in sotopia("rollout", *same, code=2).output
    assert {path.name: path.read_bytes() for path in run_dir.iterdir() if path.name in before} == before
