"""Social acts: games with talk, neutrality of probes, leaks of facts, and chance beside its closed forms.

With ``SOTOPIA_BENCH_LARGE=1``: 100,000 games, 10,000 episodes with probes, 1,000,000 observations and 100,000 episodes
of chance in each game; an hour of CPU time. Otherwise a hundredth of these.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from benchmarks.measure import Figure
from sotopia_env import tasks
from sotopia_env.evaluators.probes.asking import Moments
from sotopia_env.evaluators.probes.evaluator import FactsEvaluator
from sotopia_env.naming import make_policy
from sotopia_env.outcomes.facts import Facts, consistent
from sotopia_env.world.dynamics import EpisodeState, initial_state, transition
from sotopia_env.world.observation import observe
from sotopia_env.world.play.policy import Policy
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from studies.social_acts.closed_forms import closed_form

LARGE = bool(os.environ.get("SOTOPIA_BENCH_LARGE"))
SCALE = 1 if LARGE else 100
TALKERS = ("honest", "deceiver", "bayesian", "deceiver:lies=0.5")
LEVELS = tuple(itertools.product(("mini_mafia", "briefing"), ("easy", "medium", "hard")))
CHANCE = {
    ("mini_mafia", "medium"): ("truth_telling", "promise_keeping", "persuasion"),
    ("briefing", "hard"): ("asking", "secrecy"),
}
"""The acts whose chance has a closed form, by game."""
OBSERVER, PARTNER, GUESSER = "bayesian:doubt=0.5", "mute", "guesser"


def seated(task: Task, policies: Sequence[Policy], number: int) -> dict[str, Policy]:
    """Returns policies for the seats of a task, another seating for each number."""
    return {agent: policies[number // len(policies) ** seat % len(policies)] for seat, agent in enumerate(task.agents)}


def talk_seconds(games: int) -> float:
    """Returns the CPU seconds of games of Mini-Mafia between scripts that talk, with a warm start."""
    sample, policies = tasks.generate("mini_mafia", 1000, 0), [make_policy(name) for name in TALKERS]

    async def play(count: int) -> None:
        for number in range(count):
            task = sample[number % len(sample)]
            await Table(task, seed=number).play(seated(task, policies, number))

    asyncio.run(play(len(sample)))
    start = time.process_time()
    asyncio.run(play(games))
    return time.process_time() - start


def changed_by_probes(episodes: int, start: int = 0) -> int:
    """Returns how many episodes have other turns if they are probed after every turn."""
    policies = [make_policy(name) for name in (*TALKERS, GUESSER, "oracle", "random")]
    evaluator = FactsEvaluator(policies=policies, probe="turns")
    samples = [tasks.generate(family, 50, 1, level) for family, level in LEVELS]

    async def hashes(number: int) -> tuple[str, str]:
        sample = samples[number % len(samples)]
        task = sample[number // len(samples) % len(sample)]
        plain, probed = (Table(task, seed=number) for _ in range(2))
        await plain.play(seated(task, policies, number))
        await probed.play(seated(task, policies, number))
        evaluation = await probed.evaluate(evaluator)
        assert evaluation.beliefs
        return plain.episode().turns_hash, probed.episode().turns_hash

    pairs = (asyncio.run(hashes(number)) for number in range(start, start + episodes))
    return sum(plain != probed for plain, probed in pairs)


def leaks(observations: int, start: int = 0) -> tuple[int, int]:
    """Returns how many observations depend on what their seat cannot know, and how many were compared.

    The actions of an episode are carried out in two worlds between which the seat cannot tell; ``start`` is the number
    of the first episode.
    """
    policies = [make_policy(name) for name in (*TALKERS, GUESSER, GUESSER, "oracle", "broadcaster", "random")]
    samples = [tasks.generate(family, 50, 2, level) for family, level in LEVELS]
    different = compared = 0
    for number in itertools.count(start):
        sample = samples[number % len(samples)]
        table = Table(sample[number // len(samples) % len(sample)], seed=number)
        asyncio.run(table.play(seated(table.task, policies, number)))
        for agent in table.task.agents:
            pairs = in_two_worlds(table.state, agent, random.Random(number))
            for first, second in itertools.islice(pairs, observations - compared):
                compared += 1
                different += everything(first, agent) != everything(second, agent)
        if compared == observations:
            break
    return different, compared


def in_two_worlds(episode: EpisodeState, agent: str, rng: random.Random) -> Iterator[tuple[EpisodeState, EpisodeState]]:
    """Yields the states of an episode and of its twin as long as ``agent`` cannot tell their worlds apart."""
    task = episode.task
    facts = task.scenario.facts
    assert facts is not None
    other = _other_world(facts, agent, rng)
    if other == facts:  # the seat knows everything
        return
    # Facts and task are made anew: a copy would share what was derived from the other values.
    scenario = task.scenario.model_copy(update={"facts": other})
    twin = Task(id=task.id, scenario=scenario, characters=task.characters, relationships=task.relationships)
    first, second = (initial_state(one, episode.rules, episode.seed) for one in (task, twin))
    yield first, second
    for turn in episode.turns:
        action = turn.attempted or turn.action
        first, second = transition(first, action), transition(second, action)
        view = observe(first, agent).table
        assert view is not None
        assert view.knowledge is not None
        # Who knows other things in the other world may be refused what it shows here; then the actions were others.
        refusals = [state.turns[-1].violation is None for state in (first, second)]
        if not view.knowledge.items() <= other.truth.items() or len(set(refusals)) > 1:
            return
        yield first, second


def _other_world(facts: Facts, agent: str, rng: random.Random) -> Facts:
    """The facts with other values of what a seat does not know at the start, as far as the deals allow it."""
    knowledge, values = facts.knowledge(facts.initial(agent)), dict(facts.truth)
    dealt = {name for deal in facts.deals for name in deal.variables}
    for variable in facts.variables:
        if variable.name in values.keys() - knowledge.keys() - dealt:
            values[variable.name] = rng.choice([option for option in variable.options if option != variable.value])
    for deal in facts.deals:
        ways = consistent(deal, knowledge)
        values |= rng.choice([way for way in ways if not way.items() <= facts.truth.items()] or ways)
    variables = tuple(v.model_copy(update={"value": values.get(v.name)}) for v in facts.variables)
    return Facts(variables=variables, deals=facts.deals, norms=facts.norms, open_wants=facts.open_wants)


def everything(state: EpisodeState, agent: str) -> tuple[object, ...]:
    """Returns all texts of an observation, and its table."""
    observation = observe(state, agent)
    assert observation.table is not None
    return observation.text, observation.moves_text, observation.table.to_json(), observation.refusal


def chance_values(family: str, level: str, episodes: int, seed: int = 0) -> dict[str, list[float]]:
    """Returns what a seat that acts at random gets for each act, in every seat in turn of ``episodes`` episodes."""
    acts = CHANCE[family, level]
    guesser, partner = make_policy(GUESSER), make_policy(PARTNER)
    moment: Moments = "turns" if "persuasion" in acts else "end"
    evaluator = FactsEvaluator(interviewee=make_policy(OBSERVER), probe=moment)
    sample = tasks.generate(family, min(1000, episodes), seed, level)
    values: dict[str, list[float]] = {act: [] for act in acts}

    async def play(number: int) -> None:
        task = sample[number % len(sample)]
        focal = task.agents[number // len(sample) % len(task.agents)]
        table = Table(task, seed=seed * 10**9 + number)
        await table.play({agent: guesser if agent == focal else partner for agent in task.agents})
        for score in (await table.evaluate(evaluator)).scores:
            if score.agent == focal and score.dimension in values:
                values[score.dimension].append(score.value)

    for number in range(episodes):
        asyncio.run(play(number))
    return values


def _chance() -> Iterator[Figure]:
    for (family, level), acts in CHANCE.items():
        values = chance_values(family, level, 100_000 // SCALE)
        for act in acts:
            exact, mean = float(closed_form(family, level, GUESSER, act) or 0), fmean(values[act])
            error = stdev(values[act]) / len(values[act]) ** 0.5
            note = f"{mean:.5f} of {len(values[act])} seats, exactly {exact:.5f}"
            yield Figure(
                f"chance of {act}: distance from its closed form", abs(mean - exact) / error, "s.e.", 2, note=note
            )


def figures() -> Iterator[Figure]:
    """Yields the figures."""
    games = 100_000 // SCALE
    seconds = talk_seconds(games) * SCALE
    yield Figure("100,000 games of Mini-Mafia with talk", seconds, "CPU s", 120, note=f"from {games} games")
    episodes = 10_000 // SCALE
    yield Figure("episodes that probes changed", changed_by_probes(episodes), "", 0, note=f"of {episodes}")
    different, compared = leaks(1_000_000 // SCALE)
    yield Figure("observations that depend on what a seat cannot know", different, "", 0, note=f"of {compared}")
    yield from _chance()
