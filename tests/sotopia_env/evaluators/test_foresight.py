"""Beliefs on coming choices: asked until a choice falls, scored by what it turned out to be."""

from __future__ import annotations

import asyncio

import pytest

from sotopia_env.evaluators.probes.asking import coming_choices
from sotopia_env.evaluators.probes.foresight import foresight, outcomes_of_choices
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.tasks.families.mini_mafia import HIDDEN, INFORMED, PLAIN
from sotopia_env.tasks.families.registry import generate
from sotopia_env.world.answers import Belief
from sotopia_env.world.play.table import Table
from tests.sotopia_env.tasks.test_mini_mafia import seats

TURNS = 9


def game(names, seed: int = 0, evaluator: str = "facts:probe=turns,choices=true"):
    """A game by scripts of mafioso, detective and villager, evaluated; and the agents by role."""
    task = generate("mini_mafia", 1, seed)[0]
    agents = seats(task)
    policies = {agents[role]: make_policy(name) for role, name in zip((HIDDEN, INFORMED, PLAIN), names, strict=True)}
    table = Table(task, seed=seed)
    asyncio.run(table.play(policies))
    asyncio.run(table.evaluate(make_evaluator(evaluator, policies=policies.values())))
    return table.episode(), agents


def values(episode, agent):
    return {str(name): score.value for name, score in episode.evaluation().by_agent[agent].items()}


def test_a_choice_is_asked_about_until_it_falls_and_never_afterwards():
    episode, _ = game(("uniform", "honest", "mute"))
    falls = {
        turn.actor: turn.index for turn in episode.plain_turns if turn.action.move and turn.action.move.kind == "vote"
    }
    names = {agent: f"vote of {name}" for agent, name in episode.task.names.items()}
    asked = {(b.variable, b.turns) for b in episode.evaluation().beliefs if b.variable.startswith("vote of")}
    assert asked == {(names[agent], turns) for agent, fall in falls.items() for turns in range(fall + 1)}
    truth = outcomes_of_choices(episode)
    votes = {turn.actor: turn.action.move.content for turn in episode.plain_turns if turn.index in falls.values()}
    assert truth == {
        (name, turns)[::-1]: votes[agent] for agent, name in names.items() for turns in range(falls[agent] + 1)
    }


def test_who_knows_what_it_will_do_is_certain_and_uniform_beliefs_have_no_skill():
    episode, agents = game(("uniform", "honest", "bayesian:doubt=0"))
    assert values(episode, agents[INFORMED])["intention"] == pytest.approx(1), "it knows for whom it will vote"
    assert values(episode, agents[HIDDEN])["intention"] == pytest.approx(0), "it votes by lot"
    villager = [b for b in episode.evaluation().beliefs if b.respondent == agents[PLAIN]]
    own = [b for b in villager if b.variable == f"vote of {episode.task.names[agents[PLAIN]]}"]
    assert own[0].shares == (0.5, 0.5), "before the detective speaks"
    assert sorted(own[-1].shares) == [0, 1]
    assert 0 < values(episode, agents[PLAIN])["intention"] < 1
    assert values(episode, agents[PLAIN])["foresight"] == pytest.approx(0), "nobody promised anything"


def test_knowledge_credit_and_the_hash_of_turns_are_the_same_with_and_without_these_questions():
    without, agents = game(("deceiver", "honest", "bayesian"), evaluator="facts:probe=turns")
    asked, _ = game(("deceiver", "honest", "bayesian"))
    assert without.turns_hash == asked.turns_hash
    for agent in agents.values():
        more = values(asked, agent)
        added = more.keys() - values(without, agent).keys()
        assert added == {"foresight", "intention"}
        assert {name: value for name, value in more.items() if name not in added} == values(without, agent)


def test_a_choice_that_was_never_made_is_scored_for_nobody():
    task = generate("mini_mafia", 1, 0)[0]
    table = Table(task)
    policy = make_policy("silent")
    asyncio.run(table.play(policy))
    episode = table.episode()
    assert outcomes_of_choices(episode) == {}
    assert len(coming_choices(task, table.state.table)) == 3
    evaluation = asyncio.run(make_evaluator("facts:choices=true,interviewee=random").evaluate(episode))
    assert {belief.variable for belief in evaluation.beliefs} > {f"vote of {name}" for name in task.names.values()}
    assert not {"foresight", "intention"} & {str(score.dimension) for score in evaluation.scores}


def test_an_unanswered_question_is_unknown_and_not_uniform():
    unknown = Belief(respondent="agent_0", turns=0, variable="vote", options=("a", "b"), reason="no answer")
    certain = Belief(respondent="agent_0", turns=1, variable="vote", options=("a", "b"), shares=(1.0, 0.0))
    truth = {(0, "vote"): "a", (1, "vote"): "a"}
    assert foresight([unknown], truth) is None
    value, text = foresight([unknown, certain], truth)
    assert value == 1
    assert text.startswith("1 answers")
    assert foresight([certain], {(1, "vote"): "b"})[0] == -3


def test_the_evaluators_name_says_that_choices_are_asked_about():
    name = "facts:probe=turns,choices=true"
    assert make_evaluator(name).name == name
    assert make_evaluator("facts:choices=true").name == "facts:choices=true"
    assert "choices" not in make_evaluator("facts").parameters
