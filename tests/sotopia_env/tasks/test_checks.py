"""A task that passes the check can be played and scored; what is wrong with one that does not is said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from sotopia_env import tasks
from sotopia_env.errors import InvalidTaskError
from sotopia_env.world.dynamics import Rules, initial_state
from sotopia_env.world.observation import observe
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet

NAMES = tuple(tasks.FAMILIES)
Change = Callable[[Any], object]


def raw_task(family: str) -> Any:
    """A generated task as plain data, parameters included."""
    raw = json.loads(tasks.generate(family, 1, seed=0)[0].model_dump_json())
    raw["scenario"]["outcome"]["parameters"] = json.loads(raw["scenario"]["outcome"]["parameters"])
    raw["scenario"]["shared_data"] = json.loads(raw["scenario"]["shared_data"])
    for seat in raw["scenario"]["seats"]:
        seat["private_data"] = json.loads(seat["private_data"])
    return raw


def parameters(raw: Any) -> Any:
    return raw["scenario"]["outcome"]["parameters"]


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
@pytest.mark.parametrize("family", NAMES)
def test_generated_tasks_pass(family: str, level: str) -> None:
    for task in tasks.generate(family, 25, seed=3, level=level):
        tasks.check(task)
        tasks.check(Task.model_validate_json(task.model_dump_json()))


def test_starter_tasks_pass() -> None:
    for task in tasks.starter_tasks():
        tasks.check(task)


def both(raw: Any, field: str, value: Any) -> None:
    """Sets a number of side 0 where it stands twice."""
    parameters(raw)["sides"][0][field] = raw["scenario"]["seats"][0]["private_data"][field] = value


WRONG: list[tuple[str, Change, str]] = [
    (
        "bargaining",
        lambda r: r["scenario"]["outcome"].update(family="bargainin"),
        "outcome.family: expected one of .* did you mean 'bargaining'",
    ),
    (
        "bargaining",
        lambda r: r["scenario"]["outcome"].update(parameters={}),
        "outcome.parameters.listed_price: Field required",
    ),
    ("bargaining", lambda r: parameters(r).update(sides=[1, 2]), r"outcome.parameters.sides.0: .*got 1"),
    (
        "bargaining",
        lambda r: parameters(r).update(listed_price="394"),
        "outcome.parameters.listed_price: .*got '394'",
    ),
    ("bargaining", lambda r: parameters(r).update(listed_prize=3), "did you mean 'listed_price'"),
    ("bargaining", lambda r: parameters(r)["sides"].pop(), "outcome.parameters.sides: .*at least 2"),
    ("bargaining", lambda r: both(r, "role", "seller"), "expected the roles 'buyer' and 'seller', one each"),
    ("bargaining", lambda r: both(r, "walk_away_price", 121), "zone of agreement, .*got 121 and 128"),
    ("bargaining", lambda r: both(r, "target_price", 390), "sides.0.target_price: expected a price that is no worse"),
    ("bargaining", lambda r: both(r, "target_price", True), "sides.0.target_price: .*got True"),
    (
        "bargaining",
        lambda r: r["scenario"].update(shared_data={}),
        "shared_data.family: expected 'bargaining', .*got None",
    ),
    (
        "bargaining",
        lambda r: r["scenario"]["shared_data"].update(family="hiring"),
        "shared_data.family: .*got 'hiring'",
    ),
    (
        "bargaining",
        lambda r: r["scenario"]["shared_data"].update(listed_price=7),
        "shared_data.listed_price: expected 394",
    ),
    ("bargaining", lambda r: r["scenario"].update(outcome=None), "shared_data.family: expected none"),
    (
        "bargaining",
        lambda r: r["scenario"]["seats"][1].update(private_data={}),
        "seats.1.private_data.role: Field required",
    ),
    (
        "bargaining",
        lambda r: r["scenario"]["seats"][0]["private_data"].update(target_price="120"),
        "seats.0.private_data.target_price: .*got '120'",
    ),
    (
        "bargaining",
        lambda r: r["scenario"]["seats"][0]["private_data"].update(target_price=100),
        "seats.0.private_data.target_price: expected 120, .*got 100",
    ),
    ("division", lambda r: parameters(r)["points"].pop(), "parameters.points: .*at least 2"),
    (
        "division",
        lambda r: parameters(r)["points"][1].update(rope=9),
        "points.1: expected all pieces to be worth 10 points, got",
    ),
    ("division", lambda r: parameters(r)["points"][1].pop("rope"), r"points.1: expected \["),
    ("division", lambda r: parameters(r)["items"].update(rope=70), "items.rope: .*got 70"),
    ("division", lambda r: r["scenario"]["shared_data"]["items"].pop("rope"), "shared_data.items: expected"),
    (
        "mutual_friend",
        lambda r: parameters(r).update(friend="Gaspard Stavropoulo"),
        "did you mean 'Gaspard Stavropoulos'",
    ),
    ("mutual_friend", lambda r: parameters(r)["people"].append("Nobody"), "parameters.people: expected"),
    ("mutual_friend", lambda r: parameters(r).update(friend="Dagmar Albrecht"), "expected 'Dagmar Albrecht' alone"),
    (
        "mutual_friend",
        lambda r: r["scenario"]["seats"][0]["private_data"]["friends"][0].update(hoby="chess"),
        "did you mean 'hobby'",
    ),
    ("hiring", lambda r: both(r, "walk_away_points", 8400), "expected a contract that is worth more to both"),
    ("hiring", lambda r: parameters(r)["sides"][0]["points"].pop("salary"), "sides.0.points: expected"),
    ("hiring", lambda r: r["scenario"]["shared_data"].pop("issues"), "shared_data.issues: Field required"),
    (
        "group_decision",
        lambda r: parameters(r)["utilities"].pop(),
        "utilities: expected 4 entries, one per seat, got 3",
    ),
    (
        "group_decision",
        lambda r: parameters(r)["utilities"][2].pop(),
        "utilities.2: expected 4, one per option, got 3",
    ),
    (
        "group_decision",
        lambda r: parameters(r).update(no_decision=[11, 11, 11, 11]),
        "expected an option that is worse for nobody",
    ),
    ("group_decision", lambda r: parameters(r).update(options=["a", "A", "b", "c"]), "expected different options"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "change", "said"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)])
def test_what_is_wrong_is_named_by_task_field_and_value(family: str, change: Change, said: str) -> None:
    raw = raw_task(family)
    change(raw)
    with pytest.raises(InvalidTaskError, match=f"task '{family}-medium-0-0', scenario.*{said}"):
        tasks.check(Task.model_validate(raw))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a piece of JSON."""
    pairs = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in pairs] + [place for _, inner in pairs for place in places(inner)]


@pytest.mark.parametrize("family", NAMES)
def test_whatever_passes_can_be_read_referred_to_and_played(family: str) -> None:
    generator, passed = random.Random(family), 0
    values = [0, 1, -1, 7, 400, 10**9, 1.5, "x", "", None, True, [], {}, ["a"], "1", "agent_0"]
    for _ in range(250):
        raw = raw_task(family)
        scenario = raw["scenario"]
        where = [parameters(raw), scenario["shared_data"], *(seat["private_data"] for seat in scenario["seats"])]
        container, key = generator.choice([place for data in where for place in places(data)])
        old = container[key]
        container[key] = generator.choice(values)
        if generator.random() < 0.5:  # the same change wherever the value stands
            for data in where:
                for inner, name in places(data):
                    if name == key and inner[name] == old:
                        inner[name] = container[key]
        task = Task.model_validate(raw)
        try:
            tasks.check(task)
        except InvalidTaskError:
            continue
        passed += 1
        made, state = tasks.family(family), initial_state(task, Rules(), 0)
        assert len(made.read(task, ()).shares) == len(task.agents)
        assert len(made.reference(task).best) == len(task.agents)
        for agent in task.agents:
            problem = made.problem(observe(state, agent))
            terms, worth = problem.candidates()[0]
            assert worth <= 1.0 + 1e-9
            assert problem.phrase_offer(terms, 1)
    assert passed > 0


def test_load_checks_every_task_and_names_file_and_line(tmp_path: Any) -> None:
    good, bad = tasks.generate("bargaining", 1, seed=1)[0], raw_task("division")
    parameters(bad)["points"].pop()
    path = tmp_path / "t.jsonl"
    path.write_text(good.model_dump_json() + "\n\n" + json.dumps(bad) + "\n")
    assert len(TaskSet.load(path)) == 2
    with pytest.raises(InvalidTaskError, match=r"t\.jsonl, line 3: task 'division-medium-0-0', scenario\.outcome"):
        tasks.load(path)
    path.write_text(good.model_dump_json() + "\n")
    assert list(tasks.load(path)) == [good]
    path.write_text("\n")
    for load in (tasks.load, TaskSet.load):
        with pytest.raises(InvalidTaskError, match=r"t\.jsonl: expected at least one task, got none"):
            load(path)
