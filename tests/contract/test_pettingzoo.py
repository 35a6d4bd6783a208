"""PettingZoo's and MOMAland's own checks, with 2 and 3 seats and every turn order to which they apply."""

import functools
import importlib
import itertools
import pickle
from types import SimpleNamespace

import pettingzoo
import pytest
from gymnasium.utils.env_checker import data_equivalence
from momaland.test.api_test import api_test as mo_api_test
from pettingzoo.test import (
    api_test,
    max_cycles_test,
    parallel_api_test,
    parallel_seed_test,
    performance_benchmark,
    render_test,
    seed_test,
)
from pettingzoo.test.state_test import state_test
from pettingzoo.utils import aec_to_parallel

from sotopia_env import sotopia_v0
from tests.sotopia_env.envs.env_doubles import ORDERS, Tally, options

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # "not a Box", "not an array": true of any text

SEATS = (2, 3)
every_table = pytest.mark.parametrize(
    ("seats", "order", "private"),
    [case for case in itertools.product(SEATS, ORDERS, (False, True)) if case != (2, "random", True)],
)


@every_table
@pytest.mark.parametrize("constructor", [sotopia_v0.env, sotopia_v0.raw_env])
def test_api(constructor, seats, order, private):
    for max_turns in (1, 4, 20):
        tally = Tally()
        settings = options(seats, private, turn_order=order, max_turns=max_turns, evaluator=tally)
        api_test(constructor(**settings), num_cycles=200)
        assert tally.episodes


@every_table
def test_momaland_api(seats, order, private):
    for max_turns in (1, 4, 20):
        tally = Tally()
        settings = options(seats, private, turn_order=order, max_turns=max_turns, evaluator=tally)
        mo_api_test(sotopia_v0.mo_env(**settings), num_cycles=200)
        assert tally.episodes


@every_table
@pytest.mark.parametrize("constructor", [sotopia_v0.env, sotopia_v0.mo_env])
def test_seeds(constructor, seats, order, private):
    tally = Tally()
    settings = options(seats, private, turn_order=order, evaluator=tally)
    seed_test(functools.partial(constructor, **settings), num_cycles=100)
    assert tally.episodes


@every_table
@pytest.mark.parametrize("constructor", [sotopia_v0.parallel_env, sotopia_v0.mo_parallel_env])
def test_parallel_api_and_seeds(constructor, seats, order, private):
    tally = Tally()
    make = functools.partial(constructor, **options(seats, private, turn_order=order, evaluator=tally))
    parallel_api_test(make(), num_cycles=200)
    assert tally.episodes
    parallel_seed_test(make, num_cycles=100)
    # The suite compares one step only: it stops at ``any`` of a dictionary, which reads the keys.
    one, other = make(), make()
    assert data_equivalence(one.reset(seed=5), other.reset(seed=5))
    while one.agents:
        actions = {agent: one.action_space(agent).sample() for agent in one.agents}
        assert data_equivalence(one.step(actions), other.step(actions))
    assert other.agents == []


@pytest.mark.parametrize("seats", SEATS)
@pytest.mark.parametrize("aec_order", sorted({*ORDERS} - {"reactive"}))
def test_max_cycles(seats, aec_order):
    """Without leaving and the silence rule, for a random action would end the episode earlier.

    In reactive order a cycle is a tick of the clock, in which not every agent acts.
    """
    tally = Tally()
    no_exit = {
        "evaluator": tally,
        "action_types": ("none", "speak", "non-verbal communication", "action"),
        "max_silent_turns": 0,
    }
    max_cycles_test(
        SimpleNamespace(
            parallel_env=functools.partial(sotopia_v0.parallel_env, **options(seats, **no_exit)),
            env=functools.partial(sotopia_v0.env, **options(seats, **no_exit, turn_order=aec_order)),
        )
    )
    assert tally.episodes == 2


@pytest.mark.parametrize("seats", SEATS)
@pytest.mark.parametrize("constructor", [sotopia_v0.env, sotopia_v0.mo_env])
def test_rendering(constructor, seats, capsys):
    render_test(
        functools.partial(constructor, **options(seats)), custom_tests={"ansi": lambda text: "Situation" in text}
    )
    assert capsys.readouterr().out.count("Situation: ") == 1


@pytest.mark.parametrize("order", ORDERS)
def test_state(order):
    env, parallel = (make(**options(3, turn_order=order)) for make in (sotopia_v0.env, sotopia_v0.parallel_env))
    state_test(env, parallel)
    assert parallel.state_space.contains(parallel.state())
    assert env.unwrapped.episode_state.turns


def test_only_what_steps_in_cycles_calls_itself_parallelizable():
    """An agent of three that leaves is not selected again, which the conversion does not know."""
    stays = {"action_types": ("none", "speak")}
    cases = [(order, seats, more) for order in ORDERS for seats in SEATS for more in ({}, stays)]
    claims = {
        (order, seats, bool(more))
        for order, seats, more in cases
        if sotopia_v0.env(**options(seats, turn_order=order, **more)).metadata["is_parallelizable"]
    }
    assert claims == {("simultaneous", 2, False), ("simultaneous", 2, True), ("simultaneous", 3, True)}
    assert sotopia_v0.raw_env(**options(3)).metadata is not sotopia_v0.raw_env(**options(3)).metadata


@pytest.mark.parametrize(("seats", "more"), [(2, {}), (3, {"action_types": ("none", "speak", "action")})])
def test_aec_to_parallel_plays_as_the_parallel_environment(seats, more):
    settings = {**options(seats, turn_order="simultaneous", max_turns=12), **more}
    converted, own = aec_to_parallel(sotopia_v0.env(**settings)), sotopia_v0.parallel_env(**settings)
    parallel_api_test(aec_to_parallel(sotopia_v0.env(**settings)), num_cycles=50)
    lengths = set()
    for seed in range(12):
        assert data_equivalence(converted.reset(seed=seed), own.reset(seed=seed))
        for agent in own.agents:
            own.action_space(agent).seed(seed)
        rounds = 0
        while own.agents:
            actions = {agent: own.action_space(agent).sample() for agent in own.agents}
            observations, rewards, *rest = converted.step(actions)
            assert data_equivalence((observations, dict(rewards), *rest), own.step(actions))
            rounds += 1
        assert converted.agents == []
        lengths.add(rounds)
    assert len(lengths) > 1


@pytest.mark.parametrize("seats", SEATS)
@pytest.mark.parametrize("constructor", [sotopia_v0.env, sotopia_v0.mo_env])
def test_performance_benchmark_runs(constructor, seats, monkeypatch):
    module = importlib.import_module("pettingzoo.test.performance_benchmark")
    ticks = itertools.count(step=0.25)  # the benchmark stops after five seconds of this clock: some twenty cycles
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: next(ticks)))
    tally = Tally()
    performance_benchmark(constructor(**options(seats, evaluator=tally)))
    assert tally.episodes


@pytest.mark.parametrize("seats", SEATS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_pickled_environment_plays_on_as_the_original(seats, order):
    env = sotopia_v0.env(**options(seats, turn_order=order))
    env.reset(seed=3)
    env.step({"action_type": "speak", "argument": "Hello."})
    copy = pickle.loads(pickle.dumps(env))
    for agent in env.agent_iter():
        assert copy.agent_selection == agent
        assert (env.last()[0]["text"], env.last()[1:4]) == (copy.last()[0]["text"], copy.last()[1:4])
        action = None if env.last()[2] or env.last()[3] else {"action_type": 1, "argument": f"{agent} speaks."}
        env.step(action)
        copy.step(action)
    assert copy.unwrapped.episode() == env.unwrapped.episode()
    assert not copy.agents
    parallel = pickle.loads(pickle.dumps(sotopia_v0.parallel_env(**options(seats))))
    assert set(parallel.reset(seed=1)[0]) == set(parallel.possible_agents)


@pytest.mark.parametrize(
    ("form", "name", "vector"),
    [
        ("aec", "sotopia", False),
        ("aec", "mo_sotopia", True),
        ("parallel", "sotopia", False),
        ("parallel", "mo_sotopia", True),
    ],
)
def test_the_registry_knows_every_form(form, name, vector):
    sotopia_v0.register_environments()
    sotopia_v0.register_environments()  # twice does no harm
    env = pettingzoo.make(form, f"sotopia_env/{name}_v0", max_cycles=3, **options())
    assert env.unwrapped.vector is vector
    assert env.unwrapped.options.rules.max_rounds == 3
    assert str(env.unwrapped) == "sotopia_v0"


@pytest.mark.parametrize("constructor", [sotopia_v0.env, sotopia_v0.mo_env])
def test_the_defaults_make_a_complete_environment(constructor):
    env = constructor()
    env.reset(seed=0)
    assert env.possible_agents == ["agent_0", "agent_1"]
    for _ in env.agent_iter():
        _, _, terminated, truncated, info = env.last()
        env.step(None if terminated or truncated else {"action_type": "speak", "argument": "Good evening."})
    assert info["stop_reason"] == "turn limit"
    assert info["reward_vector"].shape == (7,)
