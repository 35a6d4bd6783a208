"""The tasks of the study, from several verified families, with separate things and wordings for training and tests.

Every seat's private information names its *plan*, a complete offer in the JSON of a move: a model of less than a
million parameters can learn to copy in a minute on a CPU, but not to calculate. The plan is the best outcome for the
seat that leaves its partner a fixed part of the partner's maximum gain.

Things that are sold or divided are on the training side or on the held-out side by their hash, and so are the wordings
of goals (a *wording* is a text without its numbers and things).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sotopia_env import tasks
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.outcomes import AdditiveWorth, OutcomeSpec
from sotopia_env.outcomes.space import Terms
from sotopia_env.world.scenario import Scenario, Task

PLAN = "plan"
"""The name of the seat's own offer in its private data."""
LEFT = 0.2
"""The part of the partner's maximum gain over no agreement that a plan leaves the partner."""
PARTS = ("things", "goal wordings")
_SALT = "h"
_NUMBER = re.compile(r"\$?\d[\d,.]*\d|\$?\d")
_DEAREST = (100, 220)
"""The range of a drawn limit: higher listed prices are reduced to it, and the task's other prices in proportion."""


@dataclass(frozen=True, slots=True)
class TaskSplit:
    """Tasks for training, for choosing a recipe, and for the report.

    Attributes:
        base: tasks of the base model's aimless talk, with all things and wordings, as a real base model has read every
            word. Otherwise a tiny model could not copy a thing's name that is split into letters.
        train: tasks for training.
        dev: tasks for choosing a recipe and for looks during GRPO; never reported.
        test: tasks for the report; not used before.
    """

    base: tuple[Task, ...]
    train: tuple[Task, ...]
    dev: tuple[Task, ...]
    test: tuple[Task, ...]


def split_tasks(
    families: Sequence[str], base: int, train: int, dev: int, test: int, level: str, seed: int
) -> TaskSplit:
    """Returns the tasks of each part; the families alternate.

    Args:
        families: names of families of agreements between two seats.
        base: the number of tasks for the base model.
        train: the number of tasks for training.
        dev: the number of tasks for choosing a recipe.
        test: the number of tasks for the report.
        level: the difficulty of the tasks.
        seed: the seed of the tasks; the split does not depend on any training seed.
    """

    def draw(count: int, seed: int, side: bool, parts: Sequence[str]) -> tuple[Task, ...]:
        streams = [_stream(family, level, seed, side, parts) for family in families]
        return tuple(itertools.islice((task for turn in zip(*streams, strict=False) for task in turn), count))

    held_out = draw(dev + test, seed + 1, True, PARTS)
    trained = draw(train, seed, False, PARTS)
    return TaskSplit(draw(base, seed + 2, False, ()), trained, held_out[:dev], held_out[dev:])


def _stream(family: str, level: str, seed: int, side: bool, parts: Sequence[str]) -> Iterator[Task]:
    for index in itertools.count():
        task = tasks.family(family).generate(index, seed, level)
        content = facts(task)
        # A task is used only if all of its things and wordings are on one side.
        if all(is_held_out(item) is side for part in parts for item in content[part]):
            yield from map(_with_plans, _with_small_prices(task))


def facts(task: Task) -> dict[str, set[str]]:
    """Returns the things of a task and the wordings of its goals, by which tasks are held out."""
    things = _things(task)
    goals = (goal for seat in task.scenario.seats for goal in seat.goals)
    return dict(zip(PARTS, (set(things), {wording(goal, things) for goal in goals}), strict=True))


def _things(task: Task) -> tuple[str, ...]:
    """The item for sale, or else the kinds of pieces, in the singular."""
    assert task.scenario.outcome is not None
    item = task.scenario.shared_data.get("item")
    names = [str(item)] if item else [issue.name for issue in task.scenario.outcome.issues]
    return tuple(name.split(" ", 1)[-1].removesuffix("s") for name in names)


def wording(text: str, things: Sequence[str] = ()) -> str:
    """Returns a text with ``#`` for every number and ``@`` for every thing."""
    text = _NUMBER.sub("#", text)
    return re.sub(rf"\b({'|'.join(map(re.escape, things))})s?\b", "@", text) if things else text


@lru_cache(maxsize=4096)
def is_held_out(text: str) -> bool:
    """Whether a thing or a wording is held out from training: half of them are, by hash."""
    return hashlib.sha256(f"{_SALT}{text}".encode()).digest()[0] % 2 == 0


def _with_small_prices(task: Task) -> Iterator[Task]:
    """Yields the task with prices below 221, or unchanged if it has no prices; nothing if two prices become equal."""
    named = _prices(task)
    if not named:
        yield task
        return
    # Numbers below 256 are one token each in the base model's vocabulary.
    scale = min(1.0, random.Random(task.id).randint(*_DEAREST) / named[0])
    changes = {price: round(price * scale) for price in named}
    if len(set(changes.values())) < len(changes):
        return
    spec = task.scenario.outcome
    assert spec is not None
    scenario = _renumbered(task.scenario.model_copy(update={"id": "x", "outcome": None}), changes)
    outcome, listed = spec.model_dump(), changes[named[0]]
    # The range of prices as the family computes it.
    outcome["issues"] = [{**outcome["issues"][0], "low": listed // 4, "high": listed}]
    for worth in outcome["worth"]:
        worth["constant"] = math.copysign(changes[abs(round(worth["constant"]))], worth["constant"])
    update = {"id": task.scenario.id, "outcome": OutcomeSpec.model_validate(outcome)}
    yield task.model_copy(update={"scenario": scenario.model_copy(update=update)})


def _prices(task: Task) -> tuple[int, ...]:
    """The listed price and both sides' target and walk-away prices; none in other families."""
    spec, listed = task.scenario.outcome, task.scenario.shared_data.get("listed_price")
    assert spec is not None
    if listed is None:
        return ()
    targets = (int(str(seat.private_data["target_price"])) for seat in task.scenario.seats)
    limits = (abs(round(worth.constant)) for worth in spec.worth if isinstance(worth, AdditiveWorth))
    return (int(str(listed)), *targets, *limits)


def _renumbered(scenario: Scenario, changes: Mapping[int, int]) -> Scenario:
    """The scenario with its numbers replaced in all texts and data."""
    # All at once, and whole numbers only: a replacement must not be replaced again.
    pattern = re.compile(rf"(?<![\d.,])({'|'.join(map(str, changes))})(?![\d]|[.,]\d)")
    text = pattern.sub(lambda match: str(changes[int(match.group(1))]), scenario.model_dump_json())
    return Scenario.model_validate(decode_json(text))


def _with_plans(task: Task) -> Task:
    """The task in which every seat's private information is its plan, as a move writes it.

    A model of two layers copies the token that followed the one it has just written, so the plan's numbers follow the
    same tokens as in a move.
    """
    seats = tuple(
        seat.model_copy(
            update={
                "private_info": f"Your plan: {json.dumps(terms)}.",
                "private_data": {**seat.private_data, PLAN: terms},
            }
        )
        for seat, terms in zip(task.scenario.seats, (plan(task, number) for number in range(2)), strict=True)
    )
    scenario = task.scenario.model_copy(update={"seats": seats})
    return Task.model_validate({**task.model_dump(), "scenario": scenario.model_dump()})


def plan(task: Task, seat: int) -> Terms:
    """Returns the best outcome for a seat that leaves its partner :data:`LEFT`; of equal ones the partner's best."""
    spec = task.scenario.outcome
    assert spec is not None
    space = spec.space({agent: agent for agent in task.agents})

    def gain(of: int, terms: Terms) -> float:
        return spec.worth[of].value(space, terms, task.agents[of]) - spec.worth[of].disagreement

    outcomes = list(space.outcomes())
    most = max(gain(1 - seat, terms) for terms in outcomes)
    fair = [terms for terms in outcomes if gain(1 - seat, terms) >= LEFT * most]
    return max(fair, key=lambda terms: (gain(seat, terms), gain(1 - seat, terms)))


def overlaps(split: TaskSplit) -> dict[str, dict[str, tuple[int, int]]]:
    """Returns the number of the tests' things and goal wordings that also occur elsewhere, and their total.

    By part: none occurs in ``training``. The ``dev`` tasks, on which training is monitored, are drawn like the tests.
    """

    def all_facts(side: Sequence[Task]) -> dict[str, set[Any]]:
        every = list(map(facts, side))
        return {part: set().union(*(content[part] for content in every)) for part in PARTS}

    tested = all_facts(split.test)
    elsewhere = {"training": split.train, "base": split.base, "dev": split.dev}
    contents = {where: all_facts(side) for where, side in elsewhere.items()}
    return {
        where: {part: (len(content[part] & tested[part]), len(tested[part])) for part in PARTS}
        for where, content in contents.items()
    }
