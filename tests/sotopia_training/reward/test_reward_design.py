"""Many rewards become one: bounds of the training turns, weights, and the rows that a reward model is trained on."""

import asyncio
import json
import logging

import pytest
from sotopia_training.attribution.methods import Rewards, read_rewards
from sotopia_training.attribution.stage import AttributionSettings
from sotopia_training.attribution.stage import run as attribute
from sotopia_training.data.samples import split_scenarios
from sotopia_training.reward.design import Bounds, RewardDesign, fit_design
from sotopia_training.reward.rows import RewardRowSettings
from sotopia_training.reward.rows import run as make_rows
from sotopia_training.reward.text import read_rows
from sotopia_training.stage.script import run_script

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import make_evaluator as make_evaluator
from sotopia_env.naming import make_policy as make_policy
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks import generate
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import write_episodes
from tests.errors import raises

GOAL, REL, FIN = "goal", "relationship", "financial_and_material_benefits"


def rewards(*rows, **more):
    """One turn each: (scenario, rewards)."""
    by_turn = {(f"episode {n}", "agent_0", n): row for n, (_, row) in enumerate(rows)}
    return Rewards(by_turn, {f"episode {n}": scenario for n, (scenario, _) in enumerate(rows)})


THREE = rewards(
    ("a", {GOAL: 2.0, REL: -5.0}),
    ("a", {GOAL: 6.0, REL: 5.0}),
    ("b", {GOAL: 4.0, REL: 0.0}),
    ("held out", {GOAL: 10.0, REL: 0.0}),
    ("b", {GOAL: 100.0}),
)
TRAIN = {"a", "b"}


def test_bounds_come_from_training_turns_alone():
    design = fit_design(THREE, TRAIN)
    assert design.dimensions == {GOAL: Bounds(low=2, high=6), REL: Bounds(low=-5, high=5)}
    assert design.turns == 3  # neither the one held out, nor the one that lacks a dimension


@pytest.mark.parametrize(
    ("value", "mapped"),
    [
        ({GOAL: 2.0, REL: -5.0}, {GOAL: 0.0, REL: 0.0}),
        ({GOAL: 6.0, REL: 5.0}, {GOAL: 1.0, REL: 1.0}),
        ({GOAL: 3.0, REL: 0.0}, {GOAL: 0.25, REL: 0.5}),
        ({GOAL: 10.0, REL: 0.0}, {GOAL: 2.0, REL: 0.5}),  # beyond the bounds: not clipped
        ({GOAL: 0.0, REL: 0.0}, {GOAL: -0.5, REL: 0.5}),
    ],
)
def test_rewards_are_mapped_and_not_clipped(value, mapped):
    assert fit_design(THREE, TRAIN).mapped(value) == mapped


@pytest.mark.parametrize(
    ("weights", "combined"),
    [
        (None, (0.25 + 0.5) / 2),
        ({GOAL: 1, REL: 1}, (0.25 + 0.5) / 2),
        ({"GOAL": 3, "REL": 1}, (3 * 0.25 + 0.5) / 2),
        ({GOAL: 1}, 1 / 98),  # alone, the turn without REL counts too
        ({GOAL: 1, REL: 0}, 0.125),
        ({GOAL: 1, REL: -1}, (0.25 - 0.5) / 2),
    ],
)
def test_the_combination_is_the_mean_of_weighted_dimensions(weights, combined):
    """r* = 1/N · Σ γ r̂ (SOTOPIA-RL §4.1): divided by the number of dimensions, not by the sum of weights."""
    design = fit_design(THREE, TRAIN, weights)
    assert design.combined({GOAL: 3.0, REL: 0.0}) == pytest.approx(combined)


def test_a_constant_dimension_counts_half_and_logs_a_warning(caplog):
    constant = rewards(("a", {GOAL: 1.0, REL: 0.0}), ("a", {GOAL: 2.0, REL: 0.0}), ("c", {GOAL: 1.0, REL: 3.0}))
    with caplog.at_level(logging.WARNING):
        design = fit_design(constant, {"a"})
    assert "relationship" in caplog.text
    assert design.mapped({GOAL: 2.0, REL: 3.0}) == {GOAL: 1.0, REL: 0.5}


@pytest.mark.parametrize(
    ("rewards", "train", "weights", "error", "field"),
    [
        (rewards(("a", {GOAL: 1.0}), ("a", {GOAL: 1.0})), {"a"}, None, InvalidValueError, "rewards"),
        (THREE, {"elsewhere"}, None, InvalidValueError, "rewards"),
        (THREE, TRAIN, {"KNO": 1}, UnknownNameError, "weights"),
        (THREE, TRAIN, {GOAL: 0, REL: 0}, InvalidValueError, "weights"),
        (THREE, TRAIN, {}, InvalidValueError, "weights"),
    ],
)
def test_invalid_fits_are_refused(rewards, train, weights, error, field):
    with raises(error, field=field):
        fit_design(rewards, train, weights)


def test_a_turn_that_lacks_a_dimension_is_left_out_and_counted(caplog):
    with caplog.at_level(logging.WARNING):
        values = fit_design(THREE, TRAIN).values(THREE)
    assert ("episode 4", "agent_0", 4) not in values
    assert len(values) == 4
    assert "1 of 5 turns left out" in caplog.text
    with raises(InvalidValueError, field="rewards"):
        fit_design(THREE, TRAIN).combined({GOAL: 1.0})


def test_a_design_is_kept_exactly(tmp_path):
    design = fit_design(THREE, TRAIN, {GOAL: 1 / 3, REL: 0.1})
    design.save(tmp_path / "design.json")
    assert RewardDesign.model_validate_json((tmp_path / "design.json").read_text()) == design
    with raises(ValueError, field="dimensions.goal"):
        RewardDesign.model_validate_json('{"dimensions": {"goal": {"low": 2, "high": 1}}, "turns": 1}')
    with raises(ValueError, field="low"):
        RewardDesign(dimensions={GOAL: Bounds(low=float("nan"), high=1)}, turns=1)


# --- from runs to rows --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def attributed(tmp_path_factory):
    """A run of eight scenarios with deals, attributed."""
    folder = tmp_path_factory.mktemp("rewards")
    pair = (make_policy("linear:horizon=3"), make_policy("conceder:horizon=3"))
    plans = plan_episodes(generate("bargaining", 8, seed=4), [pair], rules=Rules(max_turns=8))
    asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), run_dir=folder / "run", progress=False))
    attribute(
        AttributionSettings(
            runs=(str(folder / "run"),),
            dimensions=(GOAL, FIN),
            attributors=("acts", "silence"),
            methods=("uniform", "direct"),
            output=str(folder / "stage"),
        )
    )
    return folder


def row_settings(folder, output, **fields):
    values = {"attributor": {"goal": "acts", FIN: "silence"}, "validation": 0.25, "seed": 3}
    values |= {"attributions": str(folder / "stage"), "runs": (str(folder / "run"),), "output": str(output)}
    return RewardRowSettings(**{**values, **fields})


def test_episodes_of_the_same_plan_with_other_turns_are_refused(attributed, tmp_path):
    """R5: a key says what was planned; the rewards would fall on words without an attribution."""
    others = []
    for episode in read_run(attributed / "run"):
        others.append(episode.model_copy(update={"turns": episode.turns[:2]}))
    write_episodes(tmp_path / "other.jsonl", others)
    with raises(InvalidValueError, field="episode", file="other.jsonl"):
        make_rows(row_settings(attributed, tmp_path / "rows", runs=(str(tmp_path / "other.jsonl"),)))
    assert not (tmp_path / "rows").exists()


def test_rows_carry_the_combined_reward_and_their_part(attributed, tmp_path):
    """Guards R2 and R19: the reward model's reader reads what is written here, and no scenario is in both parts."""
    make_rows(row_settings(attributed, tmp_path / "rows"))
    rows = [json.loads(line) for line in (tmp_path / "rows" / "rows.jsonl").read_text().splitlines()]
    source = read_rewards(attributed / "stage", "direct", {"goal": "acts", FIN: "silence"})
    split = split_scenarios(source.scenarios.values(), 0.25, 3)
    design = RewardDesign.model_validate_json((tmp_path / "rows" / "design.json").read_text())
    assert design == fit_design(source, split.train)
    assert len(rows) == len(source.by_turn)
    for row in rows:
        key = (row["episode"], row["seat"], row["turn"])
        assert row["value"] == pytest.approx(design.combined(source.by_turn[key]))
        assert row["split"] == ("train" if row["scenario"] in split.train else "validation")
        assert '"action_type"' in row["completion"][0]["content"]
    assert {row["split"] for row in rows} == {"train", "validation"}
    assert [row.value for row in read_rows(tmp_path / "rows")] == [row["value"] for row in rows]


def test_rows_are_refused_if_they_are_of_other_runs_or_kept_for_evaluation(attributed, tmp_path):
    other = tmp_path / "other"
    pair = (make_policy("linear"), make_policy("linear"))
    asyncio.run(run_episodes(plan_episodes(generate("bargaining", 1, seed=9), [pair]), run_dir=other, progress=False))
    with raises(InvalidValueError, field="runs"):
        make_rows(row_settings(attributed, tmp_path / "a", runs=(str(other),)))
    generate("bargaining", 1, seed=4).save(tmp_path / "kept.jsonl")
    with raises(InvalidValueError, field="episode"):
        make_rows(row_settings(attributed, tmp_path / "b", evaluation_tasks=str(tmp_path / "kept.jsonl")))
    for name in ("a", "b"):
        assert not (tmp_path / name).exists()
    with raises(InvalidValueError, field="validation"):
        make_rows(row_settings(attributed, tmp_path / "c", validation=0.99))


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ("attribute_offline", AttributionSettings),
        ("attribute_llm", AttributionSettings),
        ("design_rewards", RewardRowSettings),
    ],
)
def test_the_configs_are_read(config, kind, capsys):
    def never(settings):
        raise AssertionError

    code = run_script("", kind, never, ["--config", config, "--check"])
    # Without the run that it reads, a configuration is read up to this sentence.
    assert code == 0 or "sotopia train" in capsys.readouterr().err
    arguments = ["--config", config, "--check", "--set", "methods=[direkt]", "--set", "method=direkt"]
    assert run_script("", kind, never, arguments) == 2
    assert "direkt" in capsys.readouterr().err
