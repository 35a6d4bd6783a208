"""The faults of earlier environments that this one promises not to have: those not guarded beside a module's own tests.

Rows are named after the list of faults: S1 … S29 for SOTOPIA's code, and TextArena and MOMAland by name. The last test
checks that every promised row has a guard somewhere.
"""

import asyncio
import random
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest

from sotopia_env import sotopia_v0
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, StopReason, TurnOrder
from sotopia_env.world.episode import Evaluation, Score, replay
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.reward import DIMENSIONS, RANGES, Dimension, Scalarisation
from tests.sotopia_env.factories import scenario, task

PROMISED = {f"S{number}" for number in (*range(1, 19), 22, 25, 29)}


def say(text: str) -> Action:
    return Action(ActionType.SPEAK, text)


class BySeat:
    """Gives seat k the goal score k and the lowest score elsewhere, so that no two seats have equal vectors."""

    name = "by seat"
    parameters: Mapping[str, Any] = MappingProxyType({})

    async def evaluate(self, episode):
        scores = [
            Score(agent=a, dimension=d, value=seat if d is Dimension.GOAL else RANGES[d][0])
            for seat, a in enumerate(episode.task.agents)
            for d in DIMENSIONS
        ]
        return Evaluation(evaluator=self.name, scores=tuple(scores))


class Scripted:
    """Says line after line, by the turn's number, and leaves when its lines are used up."""

    name = "scripted"

    def __init__(self, *lines: str) -> None:
        self.parameters = {"lines": list(lines)}
        self.lines = lines

    async def act(self, observation: Observation, seed: int) -> Decision:
        own = sum(turn.actor == observation.agent for turn in observation.turns)
        await asyncio.sleep(0)
        return Decision(say(self.lines[own]) if own < len(self.lines) else Action(ActionType.LEAVE))


@pytest.mark.parametrize("order", list(TurnOrder))
def test_s14_the_synchronous_and_the_asynchronous_way_are_one_transition(order):
    """The predecessor had two copies of its transition, and only one of them ended episodes rightly."""
    rules = Rules(turn_order=order, max_turns=12)
    plan = EpisodePlan(task(3), (Scripted("a", "b"), Scripted("c", "d", "e"), Scripted("f")), rules, seed=5)
    (recorded,) = asyncio.run(run_episodes([plan], evaluator=BySeat(), progress=False)).episodes
    env = sotopia_v0.raw_env(task=task(3), turn_order=order, max_turns=12, evaluator=BySeat())
    env.reset(seed=0)
    while env.episode_state.stop is None:
        env.step(say("Hm.") if len(env.episode_state.turns) < 5 else Action(ActionType.LEAVE))
    for episode in (recorded, env.episode()):
        assert replay(episode).turns == tuple(item.turn for item in episode.turns)
        assert episode.stop is StopReason.LEFT


@pytest.mark.parametrize("order", ["round-robin", "random"])
def test_s14_one_agent_leaving_does_not_end_an_episode_of_three(order):
    env = sotopia_v0.raw_env(task=task(3), turn_order=order, evaluator=BySeat())
    env.reset(seed=1)
    env.step(say("Hello."))
    assert env.episode_state.stop is None
    env.step(Action(ActionType.LEAVE))
    assert env.episode_state.stop is None
    env.step(Action(ActionType.LEAVE))
    assert env.episode_state.stop is StopReason.LEFT


def test_s10_five_seats_are_paid_each_its_own():
    """Guards S10: only two agents' ratings survived for more than two agents."""
    env = sotopia_v0.mo_parallel_env(task=task(5), evaluator=BySeat(), max_rounds=1)
    env.reset(seed=0)
    _, rewards, _, _, _ = env.step({agent: say(agent) for agent in env.agents})
    assert [float(rewards[f"agent_{seat}"][-1]) for seat in range(5)] == [0, 1, 2, 3, 4]


def test_s11_infos_hold_agents_only_and_real_sentences_are_in_the_spaces():
    env = sotopia_v0.raw_env(task=task(), evaluator=BySeat(), max_turns=2)
    env.reset(seed=0)
    for text in ("“Curly” quotes, an emoji 🙂 and spaces", "x" * 4_000):
        action = {"action_type": 1, "argument": text, "to": np.zeros(2, dtype=np.int8), "move": ""}
        assert env.action_space(env.agent_selection).contains(action)
        env.step(action)
        assert set(env.infos) == set(env.possible_agents)
        for agent in env.possible_agents:
            assert env.observation_space(agent).contains(env.observe(agent))


def test_textarena_two_environments_in_one_process_do_not_disturb_each_other():
    """TextArena's state object seeds the global generator."""
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    def alone():
        env = sotopia_v0.env(turn_order="random", evaluator=BySeat())
        env.reset(seed=3)
        return env

    reference, first, second = alone(), alone(), alone()
    expected = []
    for number in range(8):
        expected.append(reference.agent_selection)
        reference.step(say(f"line {number}"))
    sequence = []
    for number in range(8):
        sequence.append(first.agent_selection)
        first.step(say(f"line {number}"))
        second.step(say("something else"))
    assert sequence == expected
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_textarena_reading_changes_nothing_and_close_returns_nothing():
    """There an observation is emptied by reading it, and ``close`` hands out the rewards."""
    env = sotopia_v0.env(task=task(), evaluator=BySeat())
    env.reset(seed=0)
    env.step(say("Hello."))
    first, second = env.last(), env.last()
    assert first[0]["text"] == second[0]["text"]
    assert "Hello." in first[0]["text"]
    assert env.close() is None
    assert env.last()[0]["text"] == first[0]["text"]


def test_textarena_no_mutable_thing_is_shared_between_episodes_or_agents():
    env = sotopia_v0.env(task=task(), evaluator=BySeat())
    env.reset(seed=0)
    env.infos["agent_0"]["mine"] = True
    assert "mine" not in env.infos["agent_1"]
    env.reset(seed=0)
    assert "mine" not in env.infos["agent_0"]


@pytest.mark.parametrize("registry", [pettingzoo.aec_registry, pettingzoo.parallel_registry])
def test_textarena_variants_are_arguments_and_not_names(registry):
    """One entry per interface; there variants multiply by string suffix, 579 lines of them."""
    ours = [key for key in registry if key.startswith("sotopia_env/")]
    # A name of its own is for another interface: a task, an order or a reward's weights would repeat one of these.
    interfaces = [_interface(registry, key) for key in ours]
    assert set(interfaces) == {("texts", "number"), ("texts", "vector"), ("numbers", "number")}
    assert len(interfaces) == len(set(interfaces)), ours


def _interface(registry, key):
    """The kind of an entry's actions and of its rewards."""
    form = "aec" if registry is pettingzoo.aec_registry else "parallel"
    env = pettingzoo.make(form, key.replace("-v", "_v"), task="bargaining", max_cycles=1)
    env.reset(seed=0)
    is_numeric = isinstance(env.action_space("agent_0"), gymnasium.spaces.Discrete)
    action = 0 if is_numeric else say("Well?")
    if form == "aec":
        env.step(action)
        rewards = env.rewards
    else:
        rewards = env.step(dict.fromkeys(env.agents, action))[1]
    return "numbers" if is_numeric else "texts", "vector" if np.ndim(rewards["agent_0"]) else "number"


def finished_env(**options):
    env = sotopia_v0.env(task=task(3), evaluator=BySeat(), max_turns=3, **options)
    env.reset(seed=0)
    for word in "abc":
        env.step(say(word))
    return env


def test_momaland_rewards_and_last_agree_in_the_scalar_form():
    """Its linearising wrapper changes ``last`` only, so that ``rewards`` stays a vector."""
    env = finished_env(scalarisation={"goal": 1.0})
    for agent in env.agents:
        vector = env.infos[agent]["reward_vector"]
        assert env.rewards[agent] == Scalarisation.of({"goal": 1.0})(vector)
    assert env.last()[1] == env.rewards[env.agent_selection]


def test_momaland_reading_a_reward_does_not_change_it():
    """Its normalising wrapper normalises again at every call, in place."""
    env = sotopia_v0.mo_env(task=task(), evaluator=BySeat(), max_turns=1)
    env.reset(seed=0)
    env.step(say("x"))
    first = env.last()[1].copy()
    env.last()[1][:] = env.last()[1]
    assert env.last()[1].tolist() == first.tolist()
    assert env.last()[1].tolist() == first.tolist()


def test_momaland_one_agents_reward_is_not_anothers():
    """Its statistics wrapper adds the acting agent's reward to every agent's total."""
    env = finished_env(scalarisation="goal")
    totals = {}
    for agent in env.agent_iter():
        totals[agent] = totals.get(agent, 0.0) + env.last()[1]
        env.step(None)
    assert totals == {"agent_0": 0.0, "agent_1": 1.0, "agent_2": 2.0}


def test_momaland_reward_space_is_a_method_always():
    for env in (sotopia_v0.mo_env(), sotopia_v0.mo_parallel_env()):
        spaces = env.unwrapped.reward_spaces
        assert all(env.unwrapped.reward_space(agent) is spaces[agent] for agent in spaces)


def test_every_promised_row_has_a_guard():
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.parent.rglob("test_*.py"))
    guarded = {f"S{number}" for number in re.findall(r"def test_s(\d+)_", text)}
    guarded |= {row for line in re.findall(r"Guards [^\n]*", text) for row in re.findall(r"\bS\d+\b", line)}
    assert guarded >= PROMISED, sorted(PROMISED - guarded)


def test_private_scenarios_are_no_special_case():
    """A whisper through the environment reaches its recipient only."""
    env = sotopia_v0.raw_env(task=task(3, scenario=scenario(3, private_messages=True)), evaluator=BySeat())
    env.reset(seed=0)
    env.step({"action_type": "speak", "argument": "psst", "to": ["agent_2"]})
    assert "psst" in env.observe("agent_2")["text"]
    assert "psst" not in env.observe("agent_1")["text"]
