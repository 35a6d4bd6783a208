"""Random endings: their distribution, what seats know of them, and from which probability on grim trigger pays."""

from __future__ import annotations

import asyncio
from statistics import fmean, stdev

import pytest
from pydantic import ValidationError

from sotopia_env import Rules, Table, tasks
from sotopia_env.naming.policies import make_policy
from sotopia_env.outcomes.games.game import game_of
from sotopia_env.outcomes.games.rules import RandomEnding
from sotopia_env.outcomes.solutions.equilibria import grim_threshold
from sotopia_env.world import Task
from sotopia_env.world.dynamics import initial_state
from sotopia_env.world.observation import observe
from sotopia_env.world.tables import final_table

from .games import FISHERY, game

PRISONER = {"payoffs": {"C": {"C": 2, "D": 0}, "D": {"C": 3, "D": 1}}}


def drawn(task: Task, continues: float, draw: int) -> Task:
    """The task with a random ending, in the prisoner's dilemma of 2, 0, 3 and 1 and without talk."""
    spec = game(PRISONER, rounds=50, ending={"continues": continues, "draw": draw})
    scenario = task.scenario.model_copy(update={"outcome": spec, "facts": None, "max_turns": 120})
    return Task(id=task.id, scenario=scenario, characters=task.characters, relationships=task.relationships)


def test_the_number_of_rounds_is_geometric() -> None:
    lengths = [RandomEnding(continues=0.75, draw=draw).length(200) for draw in range(4000)]
    assert abs(fmean(lengths) - 4) <= 3 * stdev(lengths) / len(lengths) ** 0.5
    assert abs(fmean(length == 1 for length in lengths) - 0.25) < 0.03
    assert max(RandomEnding(continues=0.99, draw=draw).length(20) for draw in range(100)) == 20


@pytest.mark.parametrize(("continues", "pays"), [(0.35, False), (0.65, True)])
def test_grim_trigger_holds_beyond_its_threshold(continues: float, pays: bool) -> None:
    plain = tasks.generate("dilemma", 1, 0, "hard")[0]
    spec = drawn(plain, continues, 0).scenario.outcome
    assert spec is not None
    threshold = grim_threshold(game_of(spec.protocol, spec.worth))  # type: ignore[arg-type]
    assert threshold == 0.5
    gains = []
    for draw in range(250):
        task, paid = drawn(plain, continues, draw), []
        for policy in ("grim", "cheater"):
            table = Table(task, Rules(), seed=0)
            asyncio.run(table.play({"agent_0": make_policy(policy), "agent_1": make_policy("grim")}))
            paid.append(float(final_table(task, table.state.turns)[0].paid[0]))
        gains.append(paid[0] - paid[1])
    # To keep to it gains L − 2 in L rounds, so 1 / (1 − δ) − 2 in the mean.
    assert abs(fmean(gains) - (1 / (1 - continues) - 2)) <= 3 * stdev(gains) / len(gains) ** 0.5
    assert (fmean(gains) > 0) is pays


def test_no_seat_can_know_the_last_round_before_it() -> None:
    plain = tasks.generate("dilemma", 1, 0, "hard")[0]
    draws = {RandomEnding(continues=0.75, draw=draw).length(50): draw for draw in range(200)}
    short, long = (initial_state(drawn(plain, 0.75, draws[length]), Rules(), 0) for length in (2, 9))
    for agent in ("agent_0", "agent_1"):
        first, second = observe(short, agent), observe(long, agent)
        assert first.text == second.text
        assert first.briefing.rules == second.briefing.rules
        assert first.briefing.game is not None
        assert first.briefing.game.rules.ending.draw is None  # type: ignore[union-attr]
    assert "75 percent" in observe(short, "agent_0").system
    assert "of at most 50" in observe(short, "agent_0").text


def test_the_family_ends_at_random_and_scores_by_the_rounds_that_were_played() -> None:
    lengths = set()
    for task in tasks.generate("dilemma-ending", 12, 0, "hard"):
        table = Table(task, Rules(), seed=0)
        asyncio.run(table.play(make_policy("cooperator")))
        end = final_table(task, table.state.turns)[0].inner
        lengths.add(len(end.played))
        outcome = table.state
        assert outcome.stop is not None
        assert outcome.stop.value == "settled"
    assert len(lengths) > 3


def test_a_stock_has_a_fixed_number_of_rounds() -> None:
    with pytest.raises(ValidationError, match="leave out 'ending'"):
        game(
            {"per": {"own": 1}}, amounts={"low": 0, "high": 20, "step": 5}, rounds=12, stock=FISHERY,
            ending={"continues": 0.5},
        )  # fmt: skip
