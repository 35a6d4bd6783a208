"""One sentence becomes a simulation that can be played without a model, or nothing is written."""

import asyncio
import json
import re

import pytest

from sotopia_env import tasks
from sotopia_env.evaluators.judge.dimensions_file import load_dimensions
from sotopia_env.evaluators.judge.question import Manner
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_env.naming import task_rules
from sotopia_env.tasks.lint.texts import GENDERED, PHRASE_LIMIT, WORD_LIMIT
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.writing.drafting import Drafter
from sotopia_env.writing.inspirations import Inspiration
from sotopia_env.writing.kinds import ScenarioWriting
from sotopia_env.writing.simulation import simulation_question
from tests.errors import raises
from tests.sotopia_env.factories import character

NAMES = ("Ada", "Ben", "Cleo")


SECRET = "The owner promised the large room to a cousin last winter."


def simulation(**changes):
    worths = [{"options": {"Ada": 0, "Ben": 0, "Cleo": 0} | {name: 9}, "no_decision": -1} for name in NAMES]
    content = {
        "id": "large-room",
        "context": "Ada, Ben and Cleo share a flat, and must decide today who gets the large room.",
        "characters": [
            character(name, last_name=f"{name}sen", occupation="clerk", secret=SECRET).model_dump(mode="json")
            for name in NAMES
        ],
        "seats": [{"goals": ["Get the large room."], "private_info": "You work at home."} for _ in NAMES],
        "relationships": [
            {"seats": pair, "kind": "friend", "backstory": "They share a flat."} for pair in ([0, 1], [0, 2], [1, 2])
        ],
        "private_messages": True,
        "turn_order": "simultaneous",
        "max_turns": 9,
        "max_silent_turns": 5,
        "end_when_settled": True,
        "dimensions": [{"name": "fairness", "low": 0, "high": 5, "instruction": "How fair was it?"}],
        "outcome": {"protocol": {"kind": "ballot", "options": list(NAMES), "rule": "majority"}, "worth": worths},
    }
    return content | changes


def draft(*answers, reasks=1):
    model = ScriptedChatModel([item if isinstance(item, str) else json.dumps(item) for item in answers])
    question = simulation_question("Three flatmates decide who gets the large room.")
    return asyncio.run(Drafter(model, Manner(reasks=reasks)).ask(question)), model


def test_a_simulation_has_people_rules_outcome_and_dimensions(tmp_path):
    reply, model = draft(simulation())
    file = tmp_path / "flat.yaml"
    file.write_text(to_yaml(reply.result), encoding="utf-8")
    (task,) = tasks.load(file)
    assert [person.first_name for person in task.characters] == list(NAMES)
    assert (task.scenario.max_turns, task.scenario.private_messages) == (9, True)
    assert task.protocol is not None
    rules = task_rules(str(file))
    assert (rules.turn_order, rules.max_silent_turns, rules.end_when_settled) == ("simultaneous", 5, True)
    assert [one.name for one in load_dimensions(file)] == ["fairness"]
    assert '"Three flatmates decide who gets the large room."' in model.requests[0].messages[0]["content"]


REFUSED = [
    ("I cannot.", 'got "I cannot."'),
    (simulation(turn_order="roundrobin"), "turn_order: "),
    (simulation(relationships=[]), "relationships: "),
    (simulation(seats=simulation()["seats"][:2]), "outcome.worth: "),
    (simulation(seats=[{"goals": []}] * 3), "seats.0.goals: "),
    (simulation(dimensions=simulation()["dimensions"] * 2), "dimensions: "),
    (
        simulation(dimensions=[{"name": "goal", "low": 0, "high": 5, "instruction": "?"}]),
        "built-in",
    ),
    (simulation(max_turns=0), "max_turns: "),
    (simulation(id="The Room"), "id: "),
    (simulation(seats=[{"goals": ["Get 77 points."]}] * 3), "seats.0.goals.0: 77 "),
    (
        simulation(
            characters=[{**person, "age": 16} for person in simulation()["characters"]],
            relationships=[{"seats": pair, "kind": "romantic"} for pair in ([0, 1], [0, 2], [1, 2])],
        ),
        "relationships.0.kind: ",
    ),
    (simulation(moderator="Ada"), "moderator: unknown field"),
    (simulation(context="Ada, Ben and Cleo, who is a girl, share a flat with one large room."), "got 'girl'; write"),
    (
        simulation(context=f"Ada, Ben and Cleo share a flat. {simulation()['seats'][0]['private_info']} {SECRET}"),
        "of it in scenario.context, ",
    ),
]


@pytest.mark.parametrize(("bad", "reason"), REFUSED)
def test_an_unusable_simulation_is_asked_for_again_with_the_reason_and_then_refused(bad, reason):
    reply, model = draft(bad, simulation())
    assert reply.result is not None
    assert reason in json.loads(re.search(r'".*"', model.requests[1].messages[-1]["content"]).group())
    refused, _ = draft(bad, bad)
    assert (refused.result, refused.reasks) == (None, 1)
    assert reason in refused.refusal


@pytest.mark.parametrize(
    "question",
    [
        simulation_question("Two meet."),
        *(ScenarioWriting(verified=v).question(Inspiration("a", "b")) for v in (False, True)),
    ],
)
def test_the_model_reads_the_rules_by_which_its_texts_are_checked(question):
    text = question.message["content"]
    assert set(re.findall(r"\w+", text)) >= GENDERED
    for limit in (WORD_LIMIT, PHRASE_LIMIT):
        assert f"less than {limit * 100:g} %" in text
    assert "one of that seat's worth, of the issues or of the context" in text


def test_a_sentence_is_needed():
    with raises(InvalidValueError, field="sentence", got=" "):
        simulation_question(" ")
