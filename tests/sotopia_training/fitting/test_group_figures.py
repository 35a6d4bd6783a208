"""Figures about groups: what they say of rewards made by hand, and that a stage reports them."""

import json

import pytest
from sotopia_training.fitting.group_figures import RewardedRow, effective_sample_size, group_figures
from sotopia_training.grpo import stage as grpo

from tests.sotopia_training.grpo.grpo_settings import multi_turn_settings


def test_groups_that_differ_in_refused_turns_alone_are_told_from_those_that_differ():
    equal = [RewardedRow(0.5), RewardedRow(0.5)]
    refused = [RewardedRow(0.3, -0.2), RewardedRow(0.5)]
    different = [RewardedRow(1.0), RewardedRow(-0.6, -0.2)]
    figures = group_figures([*equal, *refused, *different], 2)
    assert figures == pytest.approx(
        {
            "groups/without_spread": 1 / 3,
            "groups/refused_only": 1 / 3,
            "groups/within": (0 + 0.1 + 0.8) / 3,
            "groups/between": 0.124722,
        },
        abs=1e-5,
    )


def test_episodes_without_a_reward_are_left_out():
    lost = RewardedRow(None)
    assert group_figures([lost, lost], 2) == {}
    assert group_figures([lost, RewardedRow(1.0), lost, lost], 2)["groups/without_spread"] == 1


def test_the_effective_sample_size_is_the_share_of_rows_that_carry_the_gradient():
    assert effective_sample_size([1, -1, 1, -1]) == 1
    assert effective_sample_size([0, 0, 0, 2]) == 0.25
    assert effective_sample_size([0, 0]) == 0


def test_a_stage_reports_them_at_every_step(cloned, tmp_path):
    figures = grpo.run(multi_turn_settings(start_from=str(cloned), output=str(tmp_path / "out")))
    assert len(figures["log"]) == 2
    for entry in figures["log"]:
        assert 0 <= entry["groups/without_spread"] + entry["groups/refused_only"] <= 1
        assert entry["groups/within"] >= 0
        assert 0 <= entry["effective_sample_size"] <= 1
        assert {"entropy", "clip_ratio/region_mean", "completions/mean_length", "episodes/losing"} <= entry.keys()
    assert json.loads((tmp_path / "out" / "done.json").read_text()) == figures
