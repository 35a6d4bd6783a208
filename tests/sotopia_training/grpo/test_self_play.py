"""Self-play: shares of scripts, frozen policies and past selves, the pool on disk, and one run of it for real."""

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.self_play import SelfPlay
from sotopia_training.grpo.settings import GRPOSettings
from sotopia_training.grpo.situations import SituationSettings, situations

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import read_settings, settings_of
from sotopia_env.naming import make_policy
from sotopia_env.naming.seats import role_of
from sotopia_env.tasks import generate
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT, StoppedError, killed_after
from tests.sotopia_training.grpo.grpo_settings import situated

CONFIGS = Path(__file__).parents[3] / "configs"
PAST = ({"policy": "past", "share": 1},)


class Saver:
    """In place of a trainer, for one that saves its model."""

    accelerator = SimpleNamespace(wait_for_everyone=lambda: None)

    def __init__(self, checkpoints="nowhere"):
        self.args = SimpleNamespace(output_dir=str(checkpoints))

    def save_model(self, folder):
        Path(folder).mkdir(parents=True)

    def is_world_process_zero(self):
        return True


def drawing(partners=PAST, **values):
    return SituationSettings(families=("bargaining",), count=1, partners=partners, **values)


def pool_of(folder, partners=PAST, **past):
    return SelfPlay(drawing(partners, past=past), folder, SHORT)


def test_partners_are_drawn_by_their_shares(tmp_path):
    partners = ("linear:horizon=2", "stubborn", {"policy": "leaver", "share": 2})
    pool, (situation, _) = pool_of(tmp_path, partners), situations(drawing(partners))
    counts = Counter(pool.with_partners(situation, step).partner for step in range(1200))
    assert counts["leaver"] == pytest.approx(600, abs=60)
    assert counts["stubborn"] == pytest.approx(300, abs=60)
    drawn = [pool.with_partners(situation, 3).partners["agent_1"] for _ in range(2)]
    assert drawn[0] is drawn[1]  # of one group, in any process


def test_the_past_self_that_wins_most_is_drawn_most(tmp_path, monkeypatch):
    monkeypatch.setattr("sotopia_training.grpo.self_play.load", lambda path, **options: make_policy("linear"))
    pool = pool_of(tmp_path, priority=2)
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
    pool = pool_of(tmp_path, size=3)
    for step in (0, 10, 20, 30):
        pool.keep(Saver(), step)
    assert [path.name for path in pool.members] == ["step_10", "step_20", "step_30"]
    pool.results = [{"step": step, "member": "step_10", "episodes": 1, "lost": 1} for step in (10, 20)]
    pool.rewind(Saver(), 20)
    assert [path.name for path in pool.members] == ["step_10", "step_20"]
    assert [row["step"] for row in pool.results] == [10]


def test_a_run_killed_long_after_its_last_checkpoint_draws_from_the_pool_of_that_checkpoint(tmp_path):
    """Past selves that were members at a checkpoint are kept as long as the checkpoint is."""
    pool, saver = pool_of(tmp_path / "pool", size=2), Saver(tmp_path / "checkpoints")
    for step in (0, 10, 20, 30, 40, 50):
        pool.keep(saver, step)
        if step == 20:
            (tmp_path / "checkpoints" / "checkpoint-20").mkdir(parents=True)
    assert [path.name for path in pool.members] == ["step_40", "step_50"]
    resumed = pool_of(tmp_path / "pool", size=2)
    resumed.rewind(saver, 20)
    assert [path.name for path in resumed.members] == ["step_10", "step_20"]


def test_a_lost_pool_restarts_with_the_policy_of_the_checkpoint(tmp_path):
    pool = pool_of(tmp_path)
    pool.rewind(Saver(), 20)
    assert [path.name for path in pool.members] == ["step_20"]


def test_results_are_counted_by_past_self_and_role(tmp_path):
    """A seat is compared with the seats that the past self has, not with those of others."""
    pool = pool_of(tmp_path)
    pool.keep(Saver(), 0)
    (task,) = generate(["mini_mafia"], 1, 0, "medium")
    roles = {role_of(task, agent): agent for agent in task.agents}
    past, other = SimpleNamespace(name="step_0"), make_policy("honest")

    def episode(role, rewards, partners):
        payments = {roles[name]: SimpleNamespace(reward=reward) for name, reward in rewards.items()}
        seats = SimpleNamespace(payments=payments)
        partners = {roles[name]: policy for name, policy in partners.items()}
        table = SimpleNamespace(task=task)
        return SimpleNamespace(
            agent=roles[role], failure="", seat=SimpleNamespace(seats=seats), partners=partners, table=table
        )

    town, mafia = {"hidden": 0.0, "informed": 1.0, "plain": 1.0}, {"hidden": 1.0, "informed": 0.0, "plain": 0.0}
    against = {"hidden": past, "informed": other}
    episodes = [episode("plain", town, against), episode("plain", mafia, against)]
    episodes += [episode("hidden", mafia, {"informed": past, "plain": past})]
    episodes += [episode("plain", town, {"hidden": other, "informed": past})]  # an ally: neither won nor lost
    pool.note(episodes, 1, list)
    assert pool.results == [
        {"step": 1, "member": "step_0", "role": "hidden", "episodes": 1, "won": 1, "lost": 0},
        {"step": 1, "member": "step_0", "role": "plain", "episodes": 3, "won": 1, "lost": 1},
    ]


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        (
            {"self_play": {"scripts": {"share": 1}}},
            {"field": "situations.self_play.scripts", "got": "a share of 1 for 0 policies"},
        ),
        ({"self_play": {"past": {"share": 0}}}, {"field": "situations.partners", "expected": "at least one policy"}),
        ({"self_play": {"past": {"every_step": 3}}}, {"field": "situations.past.every_step", "nearest": "every"}),
        ({"partners": ["linear"], "self_play": {"past": {}}}, {"field": "situations.self_play"}),
        ({"partners": []}, {"field": "situations.partners", "expected": "at least one policy"}),
        ({"partners": {"buyer": []}}, {"field": "situations.partners", "got": "none for buyer"}),
        ({"partners": 3}, {"field": "situations.partners.other", "expected": "a list"}),
        ({"partners": [{"policy": "linear", "share": 0}]}, {"field": "situations.partners.other.0.share"}),
        ({"partners": {"buyer": [{"policy": "linear", "shar": 1}]}}, {"nearest": "share"}),
        ({}, {"field": "situations.partners"}),
    ],
)
def test_partners_that_are_missing_or_there_twice_are_refused_in_one_sentence(values, fields):
    stage = {"mode": "multi-turn", "start_from": "x", "output": "y"}
    situation = {"families": ["bargaining"], **values}
    with raises(InvalidValueError, **fields) as caught:
        settings_of({**stage, "situations": situation}, GRPOSettings, "c.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("partner", ["self", "past"])
def test_dev_episodes_have_partners_that_stay_the_same(partner):
    values = {"mode": "multi-turn", "start_from": "x", "output": "y"}
    dev = {"situations": {"families": ["bargaining"], "partners": ["linear", partner]}}
    with raises(InvalidValueError, field="dev.situations.partners"):
        settings_of({**values, "dev": dev}, GRPOSettings, "c.yaml")


def test_an_empty_pool_is_refused(tmp_path):
    (situation, _) = situations(drawing())
    with raises(InvalidValueError, field="past"):
        pool_of(tmp_path / "pool").with_partners(situation, 0)


def test_settings_of_earlier_versions_are_read_in_the_present_form():
    pools = {"scripts": {"share": 0.5, "policies": ["linear", "boulware"]}, "past": {"share": 2, "size": 3}, "seed": 0}
    earlier = {"families": ["bargaining"], "partners": [], "self_play": pools, "both_seats": False}
    settings = settings_of(earlier, SituationSettings, "c.yaml")
    assert [(rung.policy, rung.share) for rung in settings.partners["other"]] == [
        ("past", 2), ("linear", 0.25), ("boulware", 0.25)
    ]  # fmt: skip
    assert (settings.past.size, settings.learners) == (3, ("agent_0",))
    assert settings_of(
        {"partners": ["linear"], "self_play": None, "both_seats": True}, SituationSettings, "c.yaml"
    ) == (SituationSettings(partners=("linear",)))


@pytest.mark.parametrize(
    ("partner", "failure", "fields"),
    [
        ("concedr", UnknownNameError, {"nearest": "conceder"}),
        ("./runs/none", InvalidValueError, {"got": "./runs/none"}),
        ("linear:horizn=3", UnknownNameError, {"nearest": "horizon"}),
    ],
)
def test_an_unknown_partner_of_a_ladder_is_named_with_its_setting(partner, failure, fields):
    rungs = [{"policy": "linear", "share": 0.5}, {"policy": partner, "share": 0.5}]
    with raises(failure, **fields) as caught:
        situations(situated(partners=rungs))
    assert caught.value.field.startswith("partners.")


def test_a_policy_is_trained_against_itself_and_a_killed_run_continues_as_an_unbroken_one(
    cloned, tmp_path, monkeypatch
):
    """The shipped configuration, shortened."""
    short = {"trainer.max_steps": 2, "trainer.save_steps": 1, "trainer.logging_steps": 1, "situations.count": 4}
    short |= {
        "situations.past.every": 1,
        "situations.past.size": 2,
        "trainer.per_device_train_batch_size": 16,
    }
    short |= {"situations.partners": f"['linear:horizon=3', '{cloned}', past]"}
    short |= {"dev.situations.count": 2, "dev.every": 1}
    short |= {"start_from": cloned, "output": tmp_path / "whole", "evaluation_tasks": "null"}
    overrides = [f"{name}={value}" for name, value in short.items()]
    settings = read_settings(CONFIGS / "grpo_self_play_tiny.yaml", GRPOSettings, overrides)
    figures = grpo.run(settings)
    assert settings.situations is not None
    pool = SelfPlay(settings.situations, tmp_path / "whole" / "pool", SHORT)
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
