"""Held-out content of the proof: scenarios, characters and prices that a tiny model never meets in training.

A *wording* is a text with its numbers and its item taken out: "at most $45" and "at most $300" are one wording. Items
and the wordings of goals are divided by their hash, a third of them held out. Held-out tasks have people whose names
occur in no training task. Prices are made small, so that a model of less than a million parameters soon knows every
number, and even for training and odd for tests. What partners say is not divided: words bind nobody, and what counts is
read from moves.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env import tasks
from sotopia_env.json_text import decode_json
from sotopia_env.outcomes import AdditiveWorth, OutcomeSpec
from sotopia_env.world.scenario import Scenario, Seat, Task

_SALT = "h"
_NUMBER = re.compile(r"\$?\d[\d,.]*\d|\$?\d")
_DEAREST = (100, 220)
"""Listed prices above a price drawn from here come down to it, and the other prices of the task in proportion."""


def wording(text: str, item: str = "") -> str:
    """Returns a text with ``#`` for every number and ``@`` for the item."""
    text = _NUMBER.sub("#", text)
    return text.replace(item.split(" ", 1)[-1], "@") if item else text


def is_held_out(pattern: str) -> bool:
    """Whether a wording (or an item) is kept from training: a third of all, by hash."""
    return hashlib.sha256(f"{_SALT}{pattern}".encode()).digest()[0] % 3 == 0


@dataclass(frozen=True, slots=True)
class TaskSplit:
    """Tasks for training, for choosing a recipe, and for the report.

    Training tasks share no price, person, item or wording with the other two, which are of one kind: choosing by
    ``dev`` sees held-out content, though no test task.

    Attributes:
        base: what the base model's aimless talk is about: of the training side, but with odd and even prices, so that
            the base has met every number, as real ones have.
        train: may be trained on.
        dev: for choosing a recipe, and looked at during GRPO; never reported.
        test: for the report; never looked at before.
    """

    base: tuple[Task, ...]
    train: tuple[Task, ...]
    dev: tuple[Task, ...]
    test: tuple[Task, ...]


def split_bargaining(base: int, train: int, dev: int, test: int, level: str, seed: int) -> TaskSplit:
    """Returns bargaining tasks, split.

    Args:
        base: how many for the base model.
        train: how many for training.
        dev: how many for choosing.
        test: how many for the report.
        level: difficulty.
        seed: of the tasks; the split does not depend on any training seed.
    """
    talked = _draw(base, level, seed + 2, held_out=False, odd=None, avoid=set())
    trained = _draw(train, level, seed, held_out=False, odd=False, avoid=set())
    people = {name for task in (*talked, *trained) for name in task.names.values()}
    chosen = _draw(dev + test, level, seed + 1, held_out=True, odd=True, avoid=people)
    return TaskSplit(tuple(talked), tuple(trained), tuple(chosen[:dev]), tuple(chosen[dev:]))


def _draw(count: int, level: str, seed: int, *, held_out: bool, odd: bool | None, avoid: set[str]) -> list[Task]:
    family, index = tasks.family("bargaining"), 0
    drawn: list[Task] = []
    while len(drawn) < count:
        task = family.generate(index, seed, level)
        index += 1
        if _side(task) is held_out and not avoid & set(task.names.values()):
            drawn += _with_prices(task, odd)
    return drawn


def _side(task: Task) -> bool | None:
    """Whether item and goals of a task are all held out (true), all for training (false), or neither (``None``)."""
    item = str(task.scenario.shared_data["item"])
    parts = {is_held_out(item)}
    parts |= {is_held_out(wording(goal, item)) for seat in task.scenario.seats for goal in seat.goals}
    return parts.pop() if len(parts) == 1 else None


def _with_prices(task: Task, odd: bool | None) -> list[Task]:
    """The task with one more price for each seat and all prices small and odd or even; none where two become one."""
    scale = min(1.0, random.Random(task.id).randint(*_DEAREST) / prices(task)[0])
    changes = {price: _parity(round(price * scale), odd) for price in prices(task)}
    if len(set(changes.values())) < len(changes):
        return []
    spec, limits = task.scenario.outcome, _limits(task)
    assert spec is not None
    scenario = _renumbered(task.scenario.model_copy(update={"id": "x", "outcome": None}), changes)
    outcome = spec.model_dump()
    listed = changes[prices(task)[0]]
    # As in the family, with room for odd dreams.
    outcome["issues"] = [{**outcome["issues"][0], "low": listed // 4 - 1, "high": listed}]
    for seat, worth in enumerate(outcome["worth"]):
        worth["constant"] = math.copysign(changes[limits[seat]], worth["constant"])
    update = {"id": task.scenario.id, "outcome": OutcomeSpec.model_validate(outcome)}
    scenario = scenario.model_copy(update=update)
    changed = task.model_copy(update={"scenario": scenario})
    seats = tuple(_with_dream(seat, changed, number, odd) for number, seat in enumerate(scenario.seats))
    return [Task.model_validate({**changed.model_dump(), "scenario": {**scenario.model_dump(), "seats": seats}})]


def _renumbered(scenario: Scenario, changes: Mapping[int, int]) -> Scenario:
    """The scenario with other numbers in all its texts and data."""
    pattern = re.compile(rf"(?<![\d.,])({'|'.join(map(str, changes))})(?![\d]|[.,]\d)")
    text = pattern.sub(lambda match: str(changes[int(match.group(1))]), scenario.model_dump_json())
    return Scenario.model_validate(decode_json(text))


def _parity(price: int, odd: bool | None) -> int:
    return price if odd is None else price - price % 2 + odd


def _with_dream(seat: Seat, task: Task, number: int, odd: bool | None) -> Seat:
    """The seat with one more price to its name, the best it dares to dream of, and its prices as a move writes them.

    Without a dream the boldest price that a model could copy would be a modest one. A model of two layers copies what
    followed the token that it has just written, so its prices stand behind the tokens that a move has before them.
    """
    dream = _parity(dream_price(task, number), odd)
    named = {"target": seat.private_data["target_price"], "dream": dream}
    info = " ".join(f"Your {name}: {json.dumps({'price': price})}." for name, price in named.items())
    return seat.model_copy(update={"private_info": info, "private_data": {**seat.private_data, "dream_price": dream}})


def dream_price(task: Task, number: int) -> int:
    """The listed price for a seller; for a buyer as far below its target as that is below its limit."""
    data, listed = task.scenario.seats[number].private_data, int(str(task.scenario.shared_data["listed_price"]))
    if data["role"] == "seller":
        return listed
    return max(2 * int(str(data["target_price"])) - _limits(task)[number], listed // 4)


def _limits(task: Task) -> tuple[int, ...]:
    """The walk-away price of each seat: where its worth is that of no agreement."""
    assert task.scenario.outcome is not None
    return tuple(
        abs(round(worth.constant)) for worth in task.scenario.outcome.worth if isinstance(worth, AdditiveWorth)
    )


def prices(task: Task) -> tuple[int, ...]:
    """The listed price and both sides' target and walk-away prices; even ones are for training, odd ones held out."""
    targets = (int(str(seat.private_data["target_price"])) for seat in task.scenario.seats)
    pairs = (price for pair in zip(targets, _limits(task), strict=True) for price in pair)
    return (int(str(task.scenario.shared_data["listed_price"])), *pairs)


def overlaps(split: TaskSplit) -> dict[str, dict[str, tuple[int, int]]]:
    """Returns how many of the tests' prices, people, items and goal wordings occur elsewhere, and how many there are.

    By where: in ``training`` none does. In the ``base`` model's talk the numbers do, in other situations. The ``dev``
    tasks, which are looked at in training, are of the tests' kind.
    """

    def facts(side: Sequence[Task]) -> dict[str, set[Any]]:
        item = {task.id: str(task.scenario.shared_data["item"]) for task in side}
        goals = ((task, goal) for task in side for seat in task.scenario.seats for goal in seat.goals)
        return {
            "prices": {price for task in side for price in prices(task)},
            "people": {name for task in side for name in task.names.values()},
            "items": set(item.values()),
            "goal wordings": {wording(goal, item[task.id]) for task, goal in goals},
        }

    tested = facts(split.test)
    elsewhere = {"training": facts(split.train), "base": facts(split.base), "dev": facts(split.dev)}
    return {
        where: {name: (len(facts_there[name] & tested[name]), len(tested[name])) for name in tested}
        for where, facts_there in elsewhere.items()
    }
