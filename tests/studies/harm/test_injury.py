"""The tasks about an injury, and what is measured on them."""

from __future__ import annotations

import asyncio

import pytest
from sotopia_training.evaluation import evaluation
from sotopia_training.evaluation.evaluation import EvaluationSettings

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.json_text import read_json
from sotopia_env.foundation.settings import settings_of
from sotopia_env.naming import task_set
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world import Action, Rules
from sotopia_env.world.action import ActionType
from sotopia_env.world.play.table import Table
from studies.harm import injury
from studies.harm.toxicity import Toxicity, ToxicTurns
from tests.sotopia_env.evaluators.judge_doubles import verdict

AGENTS = ("agent_0", "agent_1")


def played(actions: list[Action]):
    table = Table(injury.tasks()[0], Rules(max_turns=len(actions), max_silent_turns=0), 0)
    for number, action in enumerate(actions):
        assert table.answer(AGENTS[number % 2], action) is None
    return table.episode()


def test_each_role_is_in_the_first_seat_of_the_same_nine_situations():
    planner, friend = (task_set(f"studies.harm.injury:tasks:role={role}", None, 0, "medium") for role in injury.ROLES)
    assert len(planner) == len(friend) == 9
    for one, other in zip(planner, friend, strict=True):
        assert one.scenario.seats == other.scenario.seats[::-1]
        assert one.scenario.context == other.scenario.context
    with pytest.raises(UnknownNameError):
        injury.tasks("victim")


def test_a_seat_is_engaged_if_the_episode_is_long_and_it_mostly_acts():
    speech, nothing = Action(ActionType.SPEAK, "Let it be."), Action(ActionType.NONE)
    long, short = played([speech, nothing, speech, speech, speech, nothing]), played([speech] * 4)
    scores = asyncio.run(injury.Engagement().evaluate(long)).by_agent
    assert [scores[agent]["engagement"].value for agent in AGENTS] == [1, 0]
    assert {score.value for score in asyncio.run(injury.Engagement().evaluate(short)).scores} == {0}


def test_the_judge_answers_the_papers_questions():
    names = [dimension.name for dimension in injury.DIMENSIONS]
    model = ScriptedChatModel(
        [verdict(AGENTS, names, lambda agent, name: int(agent == "agent_0" and name == "injury"))]
    )
    judge = injury.judge(lambda name: model, "local/judge")
    result = asyncio.run(judge.evaluate(played([Action(ActionType.SPEAK, "I will do it.")] * 2)))
    assert {(score.agent, score.dimension) for score in result.scores if score.value} == {("agent_0", "injury")}
    assert len(result.scores) == 6


def test_toxic_turns_are_counted_by_the_classifier(classifier):
    texts = ["The lamp is mine.", "You are a liar.", "How about $45?", "Fine."]
    episode = played([Action(ActionType.SPEAK, text) for text in texts])
    values = Toxicity(classifier).of(texts)
    # Between two values: in a batch of another size, a value differs in its last digits.
    threshold = sum(sorted(values)[1:3]) / 2
    counts = asyncio.run(ToxicTurns(classifier.model, "toxic", threshold).evaluate(episode)).by_agent
    expected = [sum(value >= threshold for value in values[seat::2]) for seat in range(2)]
    assert [counts[agent]["toxic_turns"].value for agent in AGENTS] == expected
    assert sum(expected) == 2


def test_an_evaluation_compares_policies_on_these_dimensions(tmp_path, classifier):
    toxic = f"studies.harm.toxicity:ToxicTurns:model={classifier.model},label=toxic"
    values = {
        "output": str(tmp_path / "injury"),
        "tasks": "studies.harm.injury:tasks:role=friend",
        "policies": ["random", "silent"],
        "partners": ["leaver"],
        "judges": [f"studies.harm.injury:Engagement+{toxic}"],
        "metrics": ["engagement", "toxic_turns"],
        "both_seats": False,
        "max_turns": 6,
    }
    with pytest.raises(InvalidValueError) as caught:
        evaluation.run(settings_of({**values, "metrics": ["engaged"]}, EvaluationSettings, "test"))
    assert caught.value.field == "metrics"
    evaluation.run(settings_of(values, EvaluationSettings, "test"))
    rows = read_json(tmp_path / "injury" / "done.json")["differences"]
    assert {row["metric"] for row in rows} == {"engagement", "toxic_turns"}
    assert all("silent" in row.values() for row in rows)
