"""Games of choices in numbers and in texts: the suites for every family and order, and what an observation says."""

from __future__ import annotations

import functools
import itertools

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test, seed_test

from sotopia_env import sotopia_moves_v0, sotopia_v0, tasks
from sotopia_env.envs.fact_moves import FIRST_MOVE, WAIT
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.tasks.families.registry import FAMILIES
from sotopia_env.world.episode import replay
from sotopia_env.world.tables import final_table
from tests.sotopia_env.envs.env_doubles import ORDERS, Tally

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # "not a NumPy array": a mask is beside it
GAMES = {name: len(FAMILIES[name].generate(0, 0, "hard").agents) for name in FAMILIES if FAMILIES[name].about}
# Every game once and every order twice; a second order each would double the time and find no more.
CASES = list(zip(GAMES, itertools.cycle(ORDERS), strict=False))


@pytest.mark.parametrize(("name", "order"), CASES)
def test_the_suites_pass_and_end_episodes(name: str, order: str) -> None:
    tally = Tally(VerifiedOutcome())
    task, seats = f"{name}:level=hard", GAMES[name]
    options = {"task": task, "seats": seats, "turn_order": order, "max_turns": 12, "evaluator": tally,
               "scalarisation": "goal"}  # fmt: skip
    make = functools.partial(sotopia_moves_v0.env, **options)
    api_test(make(), num_cycles=30)
    seed_test(make, num_cycles=20)
    parallel_api_test(sotopia_moves_v0.parallel_env(**options), num_cycles=15)
    assert tally.episodes
    api_test(sotopia_v0.env(**options), num_cycles=15)


def test_one_seat_in_gymnasium() -> None:
    env = gymnasium.make("sotopia_env/SotopiaMoves-v0", task="dilemma:level=easy", partner="grim")
    check_env(env.unwrapped, skip_render_check=True)


def test_numbers_say_what_was_chosen_what_it_paid_and_what_is_left_and_replay() -> None:
    env = sotopia_moves_v0.parallel_env(task="commons:level=hard", seats=5)
    env.reset(seed=0)
    tens, twenties = FIRST_MOVE + 2, FIRST_MOVE + 4  # of 0, 5, 10, 15, 20
    numbers = env.step(dict.fromkeys(env.agents, tens))[0]["agent_0"]["observation"]
    assert numbers[-3:] == pytest.approx([11 / 12, 0.5, 1.0])  # rounds left, paid of the best, stock
    choices, worths = numbers[-13:-8], numbers[-8:-3]
    assert choices.tolist() == pytest.approx([0, 0, 5 / 5, 0, 0], abs=0.2)
    assert worths.tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    rewards = env.step(dict.fromkeys(env.agents, twenties))[1]
    episode = env.episode()
    assert replay(episode).turns == episode.plain_turns
    assert set(rewards.values()) == {np.float32(30 / 240)}  # all that was left, over the best that one seat could get


def test_a_mask_opens_choices_only_when_they_are_due() -> None:
    env = sotopia_moves_v0.raw_env(task="dilemma:level=hard", seats=2)
    env.reset(seed=0)
    due = slice(FIRST_MOVE, FIRST_MOVE + 2)
    assert not env.observe("agent_0")["action_mask"][due].any()  # it talks first
    for _ in range(2):
        env.step(FIRST_MOVE + 2)  # states its own coming choice
    assert env.observe("agent_0")["action_mask"][due].all()
    env.step(FIRST_MOVE)
    env.step(FIRST_MOVE + 1)
    assert all(env.terminations.values())
    assert [turn.violation for turn in env.episode().plain_turns] == [None] * 4


def test_contracts_are_offered_and_accepted_in_numbers_and_bind_all_rounds() -> None:
    env = sotopia_moves_v0.raw_env(task=[tasks.family("dilemma-contract").generate(0, 0, "medium")])
    env.reset(seed=0)
    first_contract = env.action_space("agent_0").n - 3  # of two options, and to accept the newest
    before = env.observe("agent_0")
    assert before["action_mask"][-3:].tolist() == [1, 1, 0]
    assert before["observation"][-4:].tolist() == pytest.approx([0, 0, 3 / 5, 1 / 5])  # nobody offers; what they bring
    env.step(first_contract)  # that both choose their first option
    after = env.observe("agent_1")
    assert after["action_mask"][-1]
    assert after["observation"][-4:-2].tolist() == [0.5, 0]
    env.step(first_contract + 2)
    assert all(env.terminations.values())
    rounds = env.episode().task.scenario.outcome.protocol.rounds
    assert [turn.violation for turn in env.episode().plain_turns] == [None, None]
    assert len(final_table(env.episode().task, env.episode().plain_turns)[0].inner.played) == rounds == 3


@pytest.mark.parametrize("name", ["public_goods-contract", "trust-contract", "dilemma-mediation", "commons-reputation"])
def test_mechanisms_pass_the_suites_in_numbers(name: str) -> None:
    seats = GAMES[name.partition("-")[0]]
    options = {"task": f"{name}:level=hard", "seats": seats, "max_turns": 12}
    api_test(sotopia_moves_v0.env(**options), num_cycles=30)
    seed_test(functools.partial(sotopia_moves_v0.env, **options), num_cycles=20)


def test_games_with_and_without_contracts_do_not_mix() -> None:
    mixed = [tasks.family(name).generate(0, 0, "hard") for name in ("dilemma", "dilemma-contract")]
    with pytest.raises(InvalidValueError, match="without contracts"):
        sotopia_moves_v0.parallel_env(task=mixed).observation_space("agent_0")


def test_games_and_other_tasks_do_not_mix() -> None:
    mixed = [tasks.FAMILIES[name].generate(0, 0, "hard") for name in ("dilemma", "bargaining")]
    with pytest.raises(InvalidValueError, match="games of choices"):
        sotopia_moves_v0.parallel_env(task=mixed).observation_space("agent_0")
    assert WAIT == 0
    assert np.isfinite(sotopia_moves_v0.parallel_env(task=mixed[0]).reset(seed=0)[0]["agent_0"]["observation"]).all()
