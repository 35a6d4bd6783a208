"""Self-play: shares of scripts, frozen policies and past selves, the pool on disk, and one run of it for real."""

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.self_play import SelfPlay
from sotopia_training.grpo.settings import GRPOSettings
from sotopia_training.grpo.situations import SelfPlaySettings, situations

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import read_settings, settings_of
from sotopia_env.naming import make_policy
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT, StoppedError, killed_after
from tests.sotopia_training.grpo.grpo_settings import SITUATIONS

CONFIGS = Path(__file__).parents[3] / "configs"
SCRIPTS = {"share": 2, "policies": ("linear:horizon=2", "stubborn")}
FROZEN = {"share": 1, "policies": ("leaver",)}


class Saver:
    """In place of a trainer, for one that saves its model."""

    accelerator = SimpleNamespace(wait_for_everyone=lambda: None)

    def __init__(self, checkpoints="nowhere"):
        self.args = SimpleNamespace(output_dir=str(checkpoints))

    def save_model(self, folder):
        Path(folder).mkdir(parents=True)

    def is_world_process_zero(self):
        return True


def pool_of(folder, **values):
    return SelfPlay(SelfPlaySettings.model_validate(values), folder, SHORT)


def test_partners_are_drawn_by_their_shares(tmp_path):
    pool = pool_of(tmp_path, scripts=SCRIPTS, frozen=FROZEN, past={"share": 0})
    (situation,) = situations(SITUATIONS)[:1]
    counts = Counter(pool.with_partner(situation, number, 0).partner.name for number in range(1200))
    assert counts["leaver"] == pytest.approx(400, abs=60)
    assert counts["stubborn"] == pytest.approx(400, abs=60)
    assert (
        pool.with_partner(situation, 7, 3).partner is pool.with_partner(situation, 7, 3).partner
    )  # of one group, in any process


def test_the_past_self_that_wins_most_is_drawn_most(tmp_path, monkeypatch):
    monkeypatch.setattr("sotopia_training.grpo.self_play.load", lambda path, **options: make_policy("linear"))
    pool = pool_of(tmp_path, past={"share": 1, "priority": 2})
    for step in (0, 25):
        pool.keep(Saver(), step)
    pool.results = [{"step": 0, "member": "step_0", "episodes": 98, "lost": 9}]
    assert (pool.loss_rate("step_0"), pool.loss_rate("step_25")) == (0.1, 0.5)
    rng = random.Random(0)
    monkeypatch.setattr(
        "sotopia_training.grpo.self_play.load", lambda path, name, **options: SimpleNamespace(name=name)
    )
    pool._loaded.clear()
    counts = Counter(pool._past(rng).name for _ in range(1000))
    assert counts["step_25"] / counts["step_0"] == pytest.approx(25, rel=0.3)  # 0.5² to 0.1²


def test_the_pool_keeps_the_newest_and_drops_members_that_a_resumed_run_repeats(tmp_path):
    pool = pool_of(tmp_path, past={"share": 1, "size": 3})
    for step in (0, 10, 20, 30):
        pool.keep(Saver(), step)
    assert [path.name for path in pool.members] == ["step_10", "step_20", "step_30"]
    pool.results = [{"step": step, "member": "step_10", "episodes": 1, "lost": 1} for step in (10, 20)]
    pool.rewind(Saver(), 20)
    assert [path.name for path in pool.members] == ["step_10", "step_20"]
    assert [row["step"] for row in pool.results] == [10]


def test_a_run_killed_long_after_its_last_checkpoint_draws_from_the_pool_of_that_checkpoint(tmp_path):
    """Past selves that were members at a checkpoint are kept as long as the checkpoint is."""
    pool, saver = pool_of(tmp_path / "pool", past={"share": 1, "size": 2}), Saver(tmp_path / "checkpoints")
    for step in (0, 10, 20, 30, 40, 50):
        pool.keep(saver, step)
        if step == 20:
            (tmp_path / "checkpoints" / "checkpoint-20").mkdir(parents=True)
    assert [path.name for path in pool.members] == ["step_40", "step_50"]
    resumed = pool_of(tmp_path / "pool", past={"share": 1, "size": 2})
    resumed.rewind(saver, 20)
    assert [path.name for path in resumed.members] == ["step_10", "step_20"]


def test_a_lost_pool_restarts_with_the_policy_of_the_checkpoint(tmp_path):
    pool = pool_of(tmp_path, past={"share": 1})
    pool.rewind(Saver(), 20)
    assert [path.name for path in pool.members] == ["step_20"]


def test_a_seat_below_the_mean_of_the_others_has_lost(tmp_path):
    pool = pool_of(tmp_path, past={"share": 1})
    (situation,) = situations(SITUATIONS)[:1]
    pool.keep(Saver(), 0)
    for values, lost in (((3.0, 5.0), 1), ((5.0, 5.0), 0)):
        rewards = zip(situation.task.agents, values, strict=True)
        payments = {agent: SimpleNamespace(reward=reward) for agent, reward in rewards}
        episode = SimpleNamespace(
            partner=SimpleNamespace(name="step_0"),
            agent=situation.seat,
            failure="",
            seat=SimpleNamespace(seats=SimpleNamespace(payments=payments)),
        )
        pool.results = []
        pool.note([episode], 1, list)
        assert pool.results == [{"step": 1, "member": "step_0", "episodes": 1, "lost": lost}]


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({"scripts": {"share": 1}}, {"field": "situations.self_play.scripts", "got": "a share of 1 for 0 policies"}),
        (
            {"frozen": {"share": 0, "policies": ["linear"]}},
            {"field": "situations.self_play.frozen", "got": "a share of 0 for 1 policies"},
        ),
        ({"past": {"share": 0}}, {"field": "situations.self_play", "expected": "a share above 0"}),
        (
            {"past": {"share": 1, "every_step": 3}},
            {"field": "situations.self_play.past.every_step", "nearest": "every"},
        ),
    ],
)
def test_shares_without_members_are_refused_in_one_sentence(values, fields):
    stage = {"mode": "multi-turn", "start_from": "x", "output": "y"}
    situation = {"families": ["bargaining"], "self_play": values}
    with raises(InvalidValueError, **fields) as caught:
        settings_of({**stage, "situations": situation}, GRPOSettings, "c.yaml")
    assert "\n" not in str(caught.value)


def test_dev_episodes_have_partners_that_stay_the_same():
    values = {"mode": "multi-turn", "start_from": "x", "output": "y"}
    dev = {"situations": {"families": ["bargaining"], "self_play": {}}}
    with raises(InvalidValueError, field="dev.situations.self_play"):
        settings_of({**values, "dev": dev}, GRPOSettings, "c.yaml")


def test_empty_pools_and_two_kinds_of_partners_are_refused(tmp_path):
    (situation,) = situations(SITUATIONS)[:1]
    with raises(InvalidValueError, field="self_play.past"):
        pool_of(tmp_path / "pool", past={"share": 1}).with_partner(situation, 0, 0)
    for values in ({}, {"partners": ["linear"], "self_play": {}}):
        with raises(ValueError, field="partners"):
            type(SITUATIONS)(families=("bargaining",), **values)


def test_a_policy_is_trained_against_itself_and_a_killed_run_continues_as_an_unbroken_one(
    cloned, tmp_path, monkeypatch
):
    """The shipped configuration, shortened."""
    short = {"trainer.max_steps": 2, "trainer.save_steps": 1, "trainer.logging_steps": 1, "situations.count": 4}
    short |= {
        "situations.self_play.past.every": 1,
        "situations.self_play.past.size": 2,
        "trainer.per_device_train_batch_size": 16,
    }
    short |= {"situations.self_play.frozen.policies": f"['{cloned}']", "dev.situations.count": 2, "dev.every": 1}
    short |= {"start_from": cloned, "output": tmp_path / "whole", "evaluation_tasks": "null"}
    overrides = [f"{name}={value}" for name, value in short.items()]
    settings = read_settings(CONFIGS / "grpo_self_play_tiny.yaml", GRPOSettings, overrides)
    figures = grpo.run(settings)
    assert settings.situations.self_play is not None
    pool = SelfPlay(settings.situations.self_play, tmp_path / "whole" / "pool", SHORT)
    assert [path.name for path in pool.members] == ["step_1", "step_2"]
    assert {row["member"] for row in pool.results} <= {"step_0", "step_1"}
    assert sum(row["episodes"] for row in pool.results) > 0
    broken = settings.model_copy(update={"output": str(tmp_path / "broken")})
    with monkeypatch.context() as patched:
        killed_after(patched, 2)
        with pytest.raises(StoppedError):
            grpo.run(broken)
    again = grpo.run(broken)
    losses = [[entry["loss"] for entry in one["log"]] for one in (figures, again)]
    assert losses[0] == losses[1]
    files = [tmp_path / name / "pool" / "results.json" for name in ("whole", "broken")]
    assert files[0].read_text() == files[1].read_text()
