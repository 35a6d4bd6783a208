"""The league: who beats whom as what, from episodes of every pair in every role."""

import json

import pytest
from sotopia_training.evaluation import league
from sotopia_training.evaluation.league import LeagueSettings

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.storage.directory import read_run
from tests.errors import raises


def settings(tmp_path, **values):
    base = {"policies": ("honest", "uniform", "mute"), "tasks": "mini_mafia", "n": 3, "output": str(tmp_path / "out")}
    return LeagueSettings(**{**base, **values})


def test_policies_meet_in_every_role_and_what_one_wins_the_other_loses(tmp_path):
    league.run(settings(tmp_path))
    records = json.loads((tmp_path / "out/done.json").read_text())["league"]
    cells = {(row["policy"], row["as"], row["against"]): row for row in records}
    assert len(cells) == 3 * 2 * 2
    for (policy, role, other), row in cells.items():
        (reverse,) = {"hidden", "informed+plain"} - {role}
        assert row["n"] == 3
        assert 0 <= row["low"] <= row["mean"] <= row["high"] <= 1
        assert row["mean"] + cells[other, reverse, policy]["mean"] == pytest.approx(1)
    episodes = list(read_run(tmp_path / "out/run"))
    assert len(episodes) == 3 * 2 * 3, "a task, a side, a pair: each once"
    page = (tmp_path / "out/league.md").read_text()
    assert "informed+plain" in page
    league.run(settings(tmp_path))  # nothing is left to do


def test_episodes_without_scores_are_counted_by_policy(tmp_path, monkeypatch):
    real = league.scores

    def scores(episodes, evaluator):  # as if episodes of the policy ``mute`` had no scores
        return real((one for one in episodes if all(policy.name != "mute" for policy in one.policies)), evaluator)

    monkeypatch.setattr(league, "scores", scores)
    league.run(settings(tmp_path, n=1))
    page = (tmp_path / "out/league.md").read_text()
    assert "2 of honest, 4 of mute, 2 of uniform" in page


def test_the_output_of_a_stage_stands_for_its_past_selves(tmp_path):
    for name in ("step_20", "step_0", "step_100", "step_30.unfinished", "results.json"):
        (tmp_path / "pool" / name).mkdir(parents=True)
    names = league.members([str(tmp_path), "linear", "linear"])
    assert names == [*(f"{tmp_path}/pool/step_{n}:name=step_{n}" for n in (0, 20, 100)), str(tmp_path), "linear"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"policies": ("honest",)}, "policies"),
        ({"policies": ("honest", "honest:doubt=0.3")}, "policies"),
        ({"tasks": "briefing"}, "tasks"),
    ],
)
def test_a_league_without_anybody_to_beat_is_refused(values, field, tmp_path):
    with raises(InvalidValueError, field=field):
        league.run(settings(tmp_path, **values))
    assert not (tmp_path / "out").exists()
