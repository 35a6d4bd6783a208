"""Measures of games of choices where there is nothing to measure."""

import asyncio

import pytest

from sotopia_env import Table, tasks
from sotopia_env.evaluators.evaluator import NothingMeasuredError
from sotopia_env.evaluators.games import GameMeasures
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.runs import plan_episodes, run_episodes


def test_an_episode_without_a_round_has_the_scores_of_the_other_evaluators():
    task = tasks.generate("dilemma", 1, 0, "hard")[0]
    plans = plan_episodes([task], [(make_policy("silent"),)])

    def evaluated(name: str):
        run = asyncio.run(run_episodes(plans, evaluator=make_evaluator(name), progress=False))
        return run.episodes[0].evaluation()

    together = evaluated("verified+games")
    assert together.unscored is None
    assert {score.value for score in together.scores if score.dimension == "goal"} == {0.0}
    assert "no round was played" in together.comment
    assert "no round was played" in evaluated("games").unscored


def test_nothing_measured_is_told_from_a_failure():
    table = Table(tasks.generate("dilemma", 1, 0, "hard")[0])
    with pytest.raises(NothingMeasuredError, match="no round was played"):
        asyncio.run(GameMeasures().evaluate(table.episode()))
