"""Briefings: a hidden profile that talk reveals, channels that scripts keep or break, and no leak of secrets."""

import asyncio
import itertools
from collections import Counter
from fractions import Fraction

import pytest

from sotopia_env.evaluators.information import breaches_of, information_measures
from sotopia_env.naming.policies import make_policy
from sotopia_env.tasks.families.registry import generate
from sotopia_env.world.outcome import outcome_of, references
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from sotopia_env.world.social_acts import social_acts

LEVELS = ("easy", "medium", "hard")


def played(task: Task, name: str, seed: int = 0) -> Table:
    table = Table(task, seed=seed)
    asyncio.run(table.play(make_policy(name)))
    assert [turn.violation for turn in table.state.turns if turn.violation] == []
    return table


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["oracle", "keeper", "asker", "broadcaster"])
def test_those_who_tell_and_ask_find_the_best_choice_and_only_the_broadcaster_breaks_a_confidence(name, level):
    for index, task in enumerate(generate("briefing", 12, 3, level)):
        table = played(task, name, index)
        assert outcome_of(task, table.state.turns).payoffs == references(task).best
        assert task.scenario.facts is not None
        acts = breaches_of(task.scenario.facts, social_acts(task, table.state.turns))
        assert bool(acts) is (name == "broadcaster" and level != "easy")


def test_the_oracle_teaches_everybody_what_they_are_to_learn():
    for task in generate("briefing", 10, 4, "medium"):
        table = played(task, "oracle")
        facts = task.scenario.facts
        assert facts is not None
        for agent in task.agents:
            view = table.observe(agent).table
            assert view is not None
            assert set(facts.view(agent).targets) <= (view.knowledge or {}).keys()


def test_uniform_votes_are_decided_as_often_as_the_closed_form_says():
    """Three seats and three options: by majority a decision falls with probability 7/9."""
    decided = Fraction(sum(max(Counter(v).values()) >= 2 for v in itertools.product(range(3), repeat=3)), 27)
    assert decided == Fraction(7, 9)
    games = 200
    tasks = list(generate("briefing", 20, 5, "easy"))
    share = sum(
        outcome_of(tasks[game % 20], played(tasks[game % 20], "uniform", game).state.turns).agreed
        for game in range(games)
    )
    assert abs(share / games - 7 / 9) <= 2 * (7 / 9 * 2 / 9 / games) ** 0.5


@pytest.mark.parametrize("level", LEVELS)
def test_no_seat_can_tell_the_best_choice_from_its_own_notes(level):
    for task in generate("briefing", 40, 6, level):
        spec, facts = task.scenario.outcome, task.scenario.facts
        assert spec is not None
        assert facts is not None
        for agent, worth in zip(task.agents, spec.worth, strict=True):
            view = facts.view(agent)
            gains = [worth.gains(option, view.beliefs()) for option in spec.protocol.options]
            assert gains.count(max(gains)) > 1 or references(task).best[0] > worth.gains(
                spec.protocol.options[gains.index(max(gains))], {n: {v: 1.0} for n, v in facts.truth.items()}
            )


def test_the_order_of_options_tells_no_value():
    first = Counter(
        variable.options.index(variable.value)
        for task in generate("briefing", 60, 7, "hard")
        for variable in task.scenario.facts.variables
        if len(variable.options) == 2
    )
    assert abs(first[0] / first.total() - 0.5) < 0.06


def test_nobody_reads_of_what_is_for_nobody():
    task = generate("briefing", 1, 8, "hard")[0]
    table = Table(task)
    facts = task.scenario.facts
    assert facts is not None
    for variable in facts.variables:
        if variable.may_know == ():
            for agent in task.agents:
                assert (variable.name in table.observe(agent).text) is (agent in variable.known_by)


ANCHORS = {
    # disclosure, acquisition, breaches, on each level; efficiency is 0 for those who learn nothing
    ("oracle", "medium"): (1, 1, 0),
    ("oracle", "hard"): (1, 1, 0),
    ("keeper", "hard"): (1, 0, 0),
    ("uniform", "medium"): (0, 0, 0),
    ("uniform", "hard"): (0.2, 0, 0),  # of three sides, a confidence and a secret only the secret is rightly not told
    ("broadcaster", "medium"): (0.75, 0, 1),  # the three sides aloud are right, the confidence aloud is not
    ("broadcaster", "hard"): (0.6, 0, 1),
}


@pytest.mark.parametrize(("name", "level"), ANCHORS)
def test_the_measures_of_passing_facts_on_have_their_anchors(name, level):
    for index, task in enumerate(generate("briefing", 4, 9, level)):
        for measures in information_measures(task, played(task, name, index).state.turns, horizon=7).values():
            assert (measures.disclosure, measures.acquisition, measures.breaches) == pytest.approx(ANCHORS[name, level])
            assert (measures.efficiency == 0) is (name == "uniform")
            # Whoever does not ask, or breaks every confidence, manages no information.
            assert (measures.management > 0) is (name == "oracle")
