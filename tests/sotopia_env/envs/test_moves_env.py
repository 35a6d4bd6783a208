"""The game as numbers: what is seen, what is done, and that it is the same game."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sotopia_env.envs.moves import ACCEPT, FIRST_OFFER, LEAVE, REMEMBERED, WAIT
from sotopia_env.envs.moves_env import SotopiaMovesEnv
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, SotopiaError
from sotopia_env.outcomes import MoveKind
from sotopia_env.testing import FixedEvaluator
from sotopia_env.world.episode import replay
from tests.errors import raises

EXAMPLE = Path(__file__).parents[3] / "examples/ppo_moves.py"
LEFT, OPEN, BEST, PARTNERS, OWN, WORTHS = 0, 1, 2, 3, 3 + REMEMBERED, 3 + 2 * REMEMBERED


def make(**options):
    return gymnasium.make("sotopia_env/SotopiaMoves-v0", **options)


@pytest.mark.filterwarnings("ignore:.*different render mode")
@pytest.mark.parametrize("task", ["bargaining", "division:level=hard", "negotiation", "job_committee"])
def test_gymnasium_s_checks_pass_for_agreements(task: str) -> None:
    check_env(make(task=task).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("seat", [0, 1])
def test_open_actions_are_never_violations_and_the_episode_replays(seat: int) -> None:
    env = make(partner="linear", focal_seat=seat)
    kinds = set()
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        env.action_space.seed(seed)
        over = False
        while not over:
            assert env.observation_space.contains(observation)
            assert "violation" not in info
            assert info["action_mask"].tolist() == env.unwrapped.action_masks().astype(int).tolist()
            observation, _, terminated, truncated, info = env.step(env.action_space.sample(info["action_mask"]))
            over = terminated or truncated
        episode = env.unwrapped.episode()
        replay(episode)
        kinds |= {turn.turn.action.move.kind for turn in episode.turns if turn.turn.action.move}
    assert {MoveKind.PROPOSE, MoveKind.ACCEPT} <= kinds


def test_offers_ask_for_what_the_observation_says_and_are_remembered() -> None:
    env = make(partner="silent", max_silent_turns=0, offers=10)
    observation, _ = env.reset(seed=3)
    worths = observation[WORTHS:]
    assert len(worths) == 10
    assert worths[0] == 1
    assert (np.diff(worths) <= 0).all()
    assert (worths >= 1 - np.arange(10) / 10 - 1e-6).all()
    first, _, *_ = env.step(FIRST_OFFER)
    second, _, *_ = env.step(FIRST_OFFER + 6)
    assert first[OWN] == 1
    assert second[OWN : OWN + 2].tolist() == [worths[6], 1]
    assert second[LEFT] < first[LEFT] < observation[LEFT] == 1
    assert second[PARTNERS:OWN].tolist() == [-1] * REMEMBERED


def test_accepting_the_open_offer_ends_the_game_with_the_verified_goal() -> None:
    env = make(partner="conceder", focal_seat=1)
    observation, info = env.reset(seed=1)
    while observation[BEST] <= 0.05:
        observation, _, _, _, info = env.step(WAIT)
    assert observation[OPEN] == 1
    assert observation[PARTNERS] == observation[BEST]
    _, reward, terminated, _, info = env.step(ACCEPT)
    assert terminated
    assert info["outcome"]["agreed"]
    assert reward == pytest.approx(min(1, info["outcome"]["share"]))
    assert reward > 0


def test_leaving_ends_the_game_and_a_closed_action_is_a_violation() -> None:
    env = make(partner="silent", max_silent_turns=0)
    _, info = env.reset(seed=1)
    assert not info["action_mask"][ACCEPT]
    *_, info = env.step(ACCEPT)
    assert info["acting"]
    _, reward, terminated, _, info = env.step(LEAVE)
    assert (reward, terminated, info["stop_reason"]) == (0, True, "left")


def test_the_turn_limit_terminates_for_the_turns_left_are_observed() -> None:
    env = make(partner="stubborn:demand=1", max_turns=6)
    env.reset(seed=0)
    ends = []
    while not any(ends[-1:]):
        _, reward, terminated, truncated, info = env.step(FIRST_OFFER)
        ends.append(terminated)
        assert not truncated
    assert (len(ends), reward, info["stop_reason"]) == (3, 0, env.unwrapped.episode().stop.value)
    assert env.unwrapped.episode().stop.truncated


def test_every_reset_is_another_bargain_and_seeds_repeat_them() -> None:
    env = make()
    runs = []
    for _ in range(2):
        env.reset(seed=5)
        names = [env.unwrapped.episode().task.id]
        for _ in range(9):
            env.reset()
            names.append(env.unwrapped.episode().task.id)
        runs.append(names)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 10


@pytest.mark.filterwarnings("ignore:.*not in the possible render_modes")
@pytest.mark.parametrize("name", ["sotopia_env/SotopiaMoves-v0", "sotopia_env/Sotopia-v0"])
def test_a_mode_that_cannot_be_drawn_is_refused_as_stable_baselines3_expects(name: str) -> None:
    # Its make_vec_env asks for "rgb_array", and for no mode only if that raises a TypeError.
    with pytest.raises(TypeError, match="rgb_array") as refused:
        gymnasium.make(name, render_mode="rgb_array")
    assert isinstance(refused.value, SotopiaError)


def test_other_tasks_and_invalid_actions_are_refused() -> None:
    with raises(InvalidValueError, field="task"):
        SotopiaMovesEnv(task="mutual_friend")
    with raises(InvalidValueError, field="task"):
        SotopiaMovesEnv(task="starter", seats=2, evaluator=FixedEvaluator())
    with raises(InvalidValueError, field="offers"):
        SotopiaMovesEnv(offers=1)
    env = SotopiaMovesEnv()
    env.reset(seed=0)
    for action in (-1, 13, 1.5, None, "accept"):
        with raises(InvalidActionError, field="action"):
            env.step(action)


def test_the_example_plays_without_a_learner_and_says_what_it_lacks() -> None:
    command = [sys.executable, EXAMPLE, "--games", "4", "--steps", "64"]
    result = subprocess.run(command, capture_output=True, text=True)
    if importlib.util.find_spec("stable_baselines3") is None:
        assert result.stderr == "to train: pip install stable-baselines3\n"
    assert result.stdout.count("uniform moves") == 2
