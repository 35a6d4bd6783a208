"""PettingZoo's suites on agreements in numbers, for every family of them and every turn order."""

from __future__ import annotations

import copy
import functools
import itertools
import multiprocessing
import pickle

import numpy as np
import pettingzoo
import pytest
from gymnasium.utils.env_checker import data_equivalence
from momaland.test.api_test import api_test as mo_api_test
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.test.state_test import state_test

from sotopia_env import MoveKind, sotopia_moves_v0
from sotopia_env.envs.moves import ACCEPT, FIRST_OFFER, LEAVE, WAIT
from sotopia_env.envs.moves_env import SotopiaMovesEnv
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError
from sotopia_env.tasks.families.registry import FAMILIES
from sotopia_env.world.episode import replay
from sotopia_env.world.reward import Dimension
from tests.errors import raises
from tests.sotopia_env.envs.env_doubles import ORDERS, Tally
from tests.sotopia_env.world.scenarios import verified_task

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # "not a NumPy array": a mask is beside it


def first_task(family):
    return FAMILIES[family].generate(0, 0, "medium")


AGREEMENTS = [name for name in FAMILIES if first_task(name).scenario.outcome.protocol.kind == "agreement"]
# Private actions, which others do not see, with three seats.
TABLES = {**{name: {"task": name, "seats": len(first_task(name).agents)} for name in AGREEMENTS},
          "private": {"task": verified_task("agreement", 3, True)}}  # fmt: skip
CASES = list(itertools.product(TABLES, ORDERS, ("observation", "info")))
# Each case once: masks alternate between both locations.
every_case = pytest.mark.parametrize(
    ("table", "order", "masks"), [case for number, case in enumerate(CASES) if number % 2 == number // 2 % 2]
)


def options(table, order, masks="observation", **more):
    return {**TABLES[table], "turn_order": order, "action_masks": masks, "max_turns": 12, **more}


def sample(env, agent, observation, info):
    mask = info["action_mask"] if env.unwrapped.masks_in_infos else observation["action_mask"]
    return env.action_space(agent).sample(mask)


@every_case
def test_one_at_a_time(table, order, masks):
    tally = Tally(VerifiedOutcome())
    make = functools.partial(
        sotopia_moves_v0.env, **options(table, order, masks, evaluator=tally, scalarisation="goal")
    )
    api_test(make(), num_cycles=40)
    assert tally.episodes
    seed_test(make, num_cycles=30)


@every_case
def test_in_parallel(table, order, masks):
    tally = Tally(VerifiedOutcome())
    make = functools.partial(
        sotopia_moves_v0.parallel_env, **options(table, order, masks, evaluator=tally, scalarisation="goal")
    )
    parallel_api_test(make(), num_cycles=30)
    assert tally.episodes
    parallel_seed_test(make, num_cycles=20)
    state_test(sotopia_moves_v0.env(**options(table, order, masks)), make())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("table", TABLES)
def test_copies_play_on_as_the_original(table, order):
    env = sotopia_moves_v0.parallel_env(**options(table, order))
    observations, infos = env.reset(seed=3)
    actions = {agent: sample(env, agent, observations[agent], infos[agent]) for agent in env.agents}
    env.step(actions)
    copies = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    while env.agents:
        actions = dict.fromkeys(env.agents, FIRST_OFFER + 4)
        result = env.step(actions)
        assert all(data_equivalence(each.step(actions), result) for each in copies)
    assert all(each.episode() == env.episode() for each in copies)
    replay(env.episode())


def played_on(env):
    """The rest of the episode and all of the next one, as the records of both."""
    records = []
    for _ in range(2):
        while env.agents:
            env.step(dict.fromkeys(env.agents, FIRST_OFFER + 4))
        records.append(env.episode().model_dump_json())
        env.reset()
    return records


def test_a_forked_process_plays_on_as_the_original():
    env = sotopia_moves_v0.parallel_env(**options("bargaining", ORDERS[0]))
    env.reset(seed=3)
    env.step(dict.fromkeys(env.agents, FIRST_OFFER))
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(played_on(env)))
    process.start()
    sender.close()
    records = receiver.recv()
    process.join()
    assert records == played_on(env)
    assert len(set(records)) == 2


def payments(env):
    """The rewards of an episode in which all make the same offers and then accept, and its record."""
    observations, _ = env.reset(seed=4)
    number = 0
    while env.agents:
        masks = {agent: observation["action_mask"] for agent, observation in observations.items()}
        index = FIRST_OFFER + min(number, 9)
        observations, rewards, *_ = env.step({agent: ACCEPT if masks[agent][ACCEPT] else index for agent in env.agents})
        number += 1
    return rewards, env.episode()


def test_rewards_can_be_vectors_and_the_game_is_the_same():
    vectors, record = payments(sotopia_moves_v0.parallel_env(vector=True))
    numbers, same = payments(sotopia_moves_v0.parallel_env(scalarisation="goal"))
    assert record == same
    goals = {agent: vector[list(Dimension).index(Dimension.GOAL)] for agent, vector in vectors.items()}
    assert goals == pytest.approx(numbers)
    assert max(numbers.values()) > 0
    tally = Tally(VerifiedOutcome())
    mo_api_test(sotopia_moves_v0.env(**options("bargaining", ORDERS[0], evaluator=tally, vector=True)), num_cycles=40)
    assert tally.episodes


@pytest.mark.parametrize("order", ORDERS)
def test_open_actions_settle_episodes_and_are_violations_in_a_veiled_round_alone(order):
    env = sotopia_moves_v0.env(task="division", turn_order=order, max_turns=20)
    kinds, rewards = set(), []
    for seed in range(12):
        env.reset(seed=seed)
        for agent in env.agents:
            env.action_space(agent).seed(seed)
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, info = env.last()
            assert not truncated
            if terminated:
                rewards.append(reward)
            env.step(None if terminated else sample(env, agent, observation, info))
        for recorded in env.unwrapped.episode().turns:
            assert recorded.turn.violation is None or recorded.turn.veiled
            kinds |= {recorded.turn.action.move.kind} if recorded.turn.action.move else set()
    assert kinds == {MoveKind.PROPOSE, MoveKind.ACCEPT}
    assert max(rewards) > 0


def demand(observation):
    """A concession rule on numbers alone: what it demands falls from 0.9 with the share of its turns that is left."""
    numbers, target = observation["observation"], 0.9 * observation["observation"][0]
    if observation["action_mask"][ACCEPT] and numbers[2] >= target:
        return ACCEPT
    worths = numbers[-10:]
    return FIRST_OFFER + int(np.flatnonzero(worths >= target)[-1])


def mean_reward(policies, games=20):
    """The mean reward of each agent when ``policies`` act."""
    env, totals = sotopia_moves_v0.env(task="bargaining"), np.zeros(2)
    rng = np.random.default_rng(0)
    for seed in range(games):
        env.reset(seed=seed)
        for agent in env.agent_iter():
            observation, reward, terminated, _, _ = env.last()
            totals[env.possible_agents.index(agent)] += reward
            rule = policies[env.possible_agents.index(agent)]
            env.step(None if terminated else rule(observation, rng))
    return totals / games


def test_a_rule_of_concession_earns_more_than_random_moves():
    def scripted(observation, rng):
        return demand(observation)

    def uniform(observation, rng):
        return int(rng.choice(np.flatnonzero(observation["action_mask"])))

    both, mixed, neither = (mean_reward(pair) for pair in ((scripted,) * 2, (scripted, uniform), (uniform,) * 2))
    assert both.sum() > neither.sum()
    assert mixed[0] > neither[0]


def test_a_seat_observes_the_same_numbers_as_in_the_single_agent_environment():
    single = SotopiaMovesEnv(task="bargaining", partner="silent", max_silent_turns=0)
    alone, _ = single.reset(seed=2)
    env = sotopia_moves_v0.raw_env(task="bargaining", max_silent_turns=0)
    env.reset(seed=0, options={"task": single.episode().task})
    for _ in range(5):
        assert env.agent_selection == "agent_0"
        observation = env.observe("agent_0")
        assert np.array_equal(observation["observation"], alone)
        assert np.array_equal(observation["action_mask"].astype(bool), single.action_masks())
        alone, *_ = single.step(FIRST_OFFER + 2)
        env.step(FIRST_OFFER + 2)
        assert not env.observe("agent_0")["action_mask"][WAIT + 1 :].any()
        env.step(WAIT)


def test_offers_of_several_partners_are_remembered_in_the_order_of_time():
    env = sotopia_moves_v0.raw_env(**options("private", "round-robin", max_turns=30, max_silent_turns=0))
    env.reset(seed=0)
    newest = []
    for number in range(5):
        env.step(WAIT)
        for offer in (FIRST_OFFER + number, FIRST_OFFER + 9 - number):
            env.step(offer)
            ranking = env.observation("agent_0").turns[-1].action.move.content
            newest.insert(0, ranking)
    latest = env.observe("agent_0")["observation"][3:7]
    for agent in ("agent_1", "agent_2"):
        assert env.observe(agent)["observation"][7] != -1
    env.step(WAIT)
    env.step(FIRST_OFFER)
    assert np.array_equal(env.observe("agent_0")["observation"][4:7], latest[:3])


def test_wrong_arguments_tasks_and_actions_are_refused_and_change_nothing():
    for wrong, field in (
        ({"offers": 1}, "offers"),
        ({"action_masks": "both"}, "action_masks"),
        ({"offer": 3}, "offer"),
    ):
        with raises(InvalidValueError, field=field):
            sotopia_moves_v0.raw_env(**wrong)
    with raises(InvalidValueError, field="task"):
        sotopia_moves_v0.raw_env(task="mutual_friend")
    env = sotopia_moves_v0.parallel_env()
    env.reset(seed=0)
    before = env.episode()
    with raises(InvalidValueError, field="task"):
        env.reset(options={"task": "mutual_friend"})
    for wrong in (-1, 13, 1.5, None, "accept", {"move": {"accept": 1}}):
        with raises(InvalidActionError, field="action"):
            env.step({"agent_0": FIRST_OFFER, "agent_1": wrong})
    assert env.episode() == before
    *_, terminations, truncations, _ = env.step({"agent_0": LEAVE, "agent_1": WAIT})
    assert (all(terminations.values()), any(truncations.values())) == (True, False)


def test_the_turn_limit_terminates():
    env = sotopia_moves_v0.parallel_env(max_cycles=3)
    env.reset(seed=0)
    for _ in range(3):
        *_, terminations, truncations, infos = env.step(dict.fromkeys(env.agents, FIRST_OFFER))
    assert (all(terminations.values()), any(truncations.values())) == (True, False)
    assert infos["agent_0"]["stop_reason"] == env.episode().stop.value
    assert not env.agents


@pytest.mark.parametrize("form", ["aec", "parallel"])
def test_the_registry_knows_both_forms(form):
    env = pettingzoo.make(form, "sotopia_env/sotopia_moves_v0", max_cycles=3)
    assert str(env.unwrapped) == "sotopia_moves_v0"
    assert env.unwrapped.options.rules.max_rounds == 3
