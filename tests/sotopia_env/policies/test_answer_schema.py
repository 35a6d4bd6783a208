"""The schema of an action: what it admits is read, and every legal action is admitted, in every family and state."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from sotopia_env import tasks
from sotopia_env.naming import make_policy
from sotopia_env.policies.answer_schema import LONGEST_ARGUMENT, action_schema
from sotopia_env.world.action import WORDLESS, Action, ActionType, to_json
from sotopia_env.world.dynamics import Rules, TurnOrder
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import turn_seed
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from tests.sotopia_env.factories import scenario, task
from tests.sotopia_env.outcome_tasks import ballot, contract, riddle
from tests.sotopia_env.policies.doubles import observed

FAMILIES = {name: next(iter(tasks.generate(name, 1, seed=3))) for name in tasks.FAMILIES}
TASKS: dict[str, Task] = {
    **FAMILIES,
    "talk": task(),
    "private talk": task(3, scenario=scenario(3, private_messages=True)),
    "contract": contract(),
    "ballot": ballot(3),
    "riddle": riddle(),
    "public riddle": riddle(shown=True),
}


def observations(task: Task, seed: int, rules: Rules) -> Iterator[Observation]:
    """What the acting seats see in an episode of random play, with a few offers that were meant."""
    table = Table(task, rules, seed)
    policies = [make_policy(name) for name in ("random", "linear", "random-offers")]
    while table.acting:
        agent = table.acting[0]
        observation = table.observe(agent)
        yield observation
        number = turn_seed(seed, len(table.turns), 0)
        decision = asyncio.run(policies[number % 3].act(observation, number))
        leaves = decision.action.action_type is ActionType.LEAVE and number % 4
        table.answer(agent, Action(ActionType.SPEAK, "Not yet.") if leaves else decision.action)


def text(rng: random.Random, schema: dict[str, Any]) -> str:
    longest = schema.get("maxLength", 50)
    length = rng.choice([schema.get("minLength", 0), longest, rng.randint(schema.get("minLength", 0), longest)])
    return "".join(rng.choices('a Z9{}[]":,\\/\n\t\x00\u2028é漢🙂<|', k=length)) if rng.random() < 0.8 else " " * length


def draw(schema: dict[str, Any], rng: random.Random) -> Any:
    """A value that ``schema`` admits; every keyword of ours has a meaning here, and any other is an error."""
    keywords = {"anyOf", "type", "enum", "properties", "required", "additionalProperties", "items", "maxItems"}
    assert set(schema) <= keywords | {"minLength", "maxLength", "minimum", "maximum", "multipleOf"}, schema
    if "anyOf" in schema:
        return draw(rng.choice(schema["anyOf"]), rng)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            return {key: draw(part, rng) for key, part in schema["properties"].items()}
        case "array":
            return [draw(schema["items"], rng) for _ in range(rng.randint(0, schema["maxItems"]))]
        case "string":
            return text(rng, schema)
        case "null":
            return None
        case "integer" | "number":
            step = schema.get("multipleOf", 1)
            return schema["minimum"] + step * rng.randint(0, int((schema["maximum"] - schema["minimum"]) / step))
    raise AssertionError(schema)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("order", [TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS, TurnOrder.REACTIVE])
def test_everything_that_the_schema_admits_is_read(task: Task, order: TurnOrder) -> None:
    rng = random.Random(7)
    for seed in range(3):
        for observation in observations(task, seed, Rules(max_turns=8, turn_order=order, end_when_settled=False)):
            schema = action_schema(observation, rng.choice([None, 1, 40]))
            validator = jsonschema.Draft202012Validator(schema)
            for _ in range(12):
                value = draw(schema, rng)
                validator.validate(value)
                action = observation.parse(json.dumps(value))
                assert isinstance(action, Action), (value, action)
                assert action.move is None or action.action_type not in WORDLESS


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_move_that_a_script_makes_is_admitted(task: Task) -> None:
    for seed, name in enumerate(("linear", "random", "sharer", "micro", "splitter")):
        table, policy = Table(task, Rules(max_turns=8), seed), make_policy(name)
        while table.acting:
            agent = table.acting[0]
            observation = table.observe(agent)
            action = asyncio.run(policy.act(observation, turn_seed(seed, len(table.turns), 0))).action
            jsonschema.Draft202012Validator(action_schema(observation)).validate(json.loads(to_json(action)))
            table.answer(agent, action)


@pytest.mark.parametrize("kind", [kind.value for kind in WORDLESS])
def test_doing_nothing_and_leaving_have_no_move(kind: str) -> None:
    validator = jsonschema.Draft202012Validator(action_schema(observed(riddle())))
    assert validator.is_valid({"action_type": kind, "argument": ""})
    assert not validator.is_valid({"action_type": kind, "argument": "", "move": {"claim": "Bo Li"}})
    assert not validator.is_valid({"action_type": "speak", "argument": ""})
    assert validator.is_valid({"action_type": "speak", "argument": "", "move": {"claim": "Bo Li"}})


@pytest.mark.parametrize(("max_tokens", "longest"), [(None, LONGEST_ARGUMENT), (160, 240), (4_096, LONGEST_ARGUMENT)])
def test_words_are_limited_so_that_an_answer_can_be_closed(max_tokens: int | None, longest: int) -> None:
    validator = jsonschema.Draft202012Validator(action_schema(observed(task()), max_tokens))
    for length in (1, longest, longest + 1):
        value = {"action_type": "speak", "argument": "x" * length}
        assert validator.is_valid(value) == (length <= longest)
