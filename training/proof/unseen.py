"""What a tiny model never sees in training: scenarios, characters, prices and phrasings, and some partners.

A *wording* is a text with its numbers and its item taken out: "How about $45?" and "How about $300?" are one wording.
Wordings and items are divided by their hash, a third of them held out. Whoever speaks in training (partners, expert,
the base model's talk) uses no held-out wording, and partners in tests no other one, though single words of both occur
everywhere (:mod:`training.proof.strange_words`); the same goes for the goals. Only the line of a seat's figures is the
same everywhere ("Your target price is ..."), as a form would be. Held-out tasks have people whose names occur in no
training task. Prices are made small, so that a model of less than a million parameters soon knows every number, and
even for training and odd for tests.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sotopia_env import tasks
from sotopia_env.errors import PolicyError
from sotopia_env.naming import make_policy as make
from sotopia_env.policies.policy import Decision, Policy
from sotopia_env.tasks.bargaining import read_acts
from sotopia_env.world.action import ActionType
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import Scenario, Seat, Task
from training.proof.strange_words import strangely

_SALT = "h"
_NUMBER = re.compile(r"\$?\d[\d,.]*\d|\$?\d")
_TRIES, _STRANGE_TRIES = 200, 40
_STEP = 0x9E3779B97F4A7C15
_DEAREST = (100, 220)
"""Listed prices above a price drawn from here come down to it, and the other prices of the task in proportion."""


def wording(text: str, item: str = "") -> str:
    """Returns a text with ``#`` for every number and ``@`` for the item."""
    found = _NUMBER.sub("#", text)
    return found.replace(item.split(" ", 1)[-1], "@") if item else found


def is_held_out(pattern: str) -> bool:
    """Whether a wording (or an item) is kept from training: a third of all, by hash."""
    return hashlib.sha256(f"{_SALT}{pattern}".encode()).digest()[0] % 3 == 0


@dataclass(frozen=True, slots=True)
class Worded:
    """A scripted speaker that says everything in wordings of one side of the split.

    What it does is the other policy's decision; only its seed is drawn again until the words are of the right side.

    Attributes:
        policy: decides.
        held_out: which side.
        strange: share of what it says in which it is tried to replace words so that what it does stays the same
            (:func:`~training.proof.strange_words.strangely`). Where that cannot be found it says it plainly: half of
            its offers and nearly all of its assents at 0.75.
    """

    policy: Policy
    held_out: bool
    strange: float = 0.0

    @property
    def name(self) -> str:
        """The policy's name, marked where its wordings are held out."""
        return f"{self.policy.name}*" if self.held_out else self.policy.name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The policy's parameters, the side, and how strange its words are."""
        return {**self.policy.parameters, "held_out_wordings": self.held_out, "strange": self.strange}

    async def act(self, observation: Observation, seed: int) -> Decision:
        """Returns the policy's decision in permitted words.

        Raises:
            PolicyError: it has no words of this side for what it wants to say.
        """
        for number in range(_TRIES):
            decision = await self.policy.act(observation, (seed + number * _STEP) & ((1 << 63) - 1))
            text = decision.action.argument
            if not text or is_held_out(wording(text)) == self.held_out:
                return self._strangely(observation, decision, random.Random(seed))
        raise PolicyError(f"{self.name}: no wording of this side for {text!r}")

    def _strangely(self, observation: Observation, decision: Decision, rng: random.Random) -> Decision:
        action = decision.action
        if action.action_type is not ActionType.SPEAK or rng.random() >= self.strange:
            return decision
        listed = int(str(observation.briefing.shared_data["listed_price"]))
        for _ in range(_STRANGE_TRIES):
            text = strangely(action.argument, rng)
            same = read_acts(text, listed) == read_acts(action.argument, listed)
            if same and is_held_out(wording(text)) == self.held_out:
                return replace(decision, action=replace(action, argument=text))
        return decision


@dataclass(frozen=True, slots=True)
class TaskSplit:
    """Tasks for training, for choosing (a recipe, a checkpoint), and for the report.

    Training tasks share no price, person, item or wording with the other two, which are of one kind: choosing by
    ``dev`` sees held-out content, though no test task.

    Attributes:
        base: what the base model's aimless talk is about: of the training side, but with odd and even prices, so that
            the base has met every number, as real ones have.
        train: may be trained on.
        dev: for choosing; never reported.
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
    found: list[Task] = []
    while len(found) < count:
        task = family.generate(index, seed, level)
        index += 1
        if _side(task) is held_out and not avoid & set(task.names.values()):
            found += _with_prices(task, odd)
    return found


def _side(task: Task) -> bool | None:
    """Whether item and goals of a task are all held out (true), all for training (false), or neither (``None``)."""
    item = str(task.scenario.shared_data["item"])
    parts = {is_held_out(item)}
    parts |= {is_held_out(wording(goal, item)) for seat in task.scenario.seats for goal in seat.goals}
    return parts.pop() if len(parts) == 1 else None


def _with_prices(task: Task, odd: bool | None) -> list[Task]:
    """The task with one more price for each seat and all prices small and odd or even; none where two become one."""
    scale = min(1.0, random.Random(task.id).randint(*_DEAREST) / prices(task)[0])
    changed = {str(price): str(_parity(round(price * scale), odd)) for price in prices(task)}
    if len(set(changed.values())) < len(changed):
        return []
    pattern = re.compile(rf"(?<![\d.,])({'|'.join(changed)})(?![\d]|[.,]\d)")
    text = task.scenario.model_copy(update={"id": "x"}).model_dump_json()
    scenario = Scenario.model_validate_json(pattern.sub(lambda match: changed[match.group(1)], text))
    seats = tuple(_with_dream(seat, scenario, odd) for seat in scenario.seats)
    found = Task(
        id=task.id,
        scenario=scenario.model_copy(update={"id": task.scenario.id, "seats": seats}),
        characters=task.characters,
        relationships=task.relationships,
    )
    tasks.check(found)
    return [found]


def _parity(price: int, odd: bool | None) -> int:
    return price if odd is None else price - price % 2 + odd


def _with_dream(seat: Seat, scenario: Scenario, odd: bool | None) -> Seat:
    """The seat with one more price to its name, the best it dares to dream of, in the line of its figures.

    Without it the boldest price that a model could copy would be a modest one.
    """
    dream = _parity(dream_price(seat, scenario), odd)
    info = f"{seat.private_info} Your dream is ${dream}."
    return seat.model_copy(update={"private_info": info, "private_data": {**seat.private_data, "dream_price": dream}})


def dream_price(seat: Seat, scenario: Scenario) -> int:
    """The listed price for a seller; for a buyer as far below its target as that is below its limit."""
    target, limit = (int(str(seat.private_data[key])) for key in ("target_price", "walk_away_price"))
    listed = int(str(scenario.shared_data["listed_price"]))
    return listed if seat.private_data["role"] == "seller" else max(2 * target - limit, listed // 4)


def prices(task: Task) -> tuple[int, ...]:
    """The listed price and both sides' target and walk-away prices; even ones are for training, odd ones held out."""
    sides = [seat.private_data for seat in task.scenario.seats]
    private = [int(str(side[key])) for side in sides for key in ("target_price", "walk_away_price")]
    return (int(str(task.scenario.shared_data["listed_price"])), *private)


def overlaps(split: TaskSplit) -> dict[str, dict[str, tuple[int, int]]]:
    """Returns how many of the tests' prices, people, items and goal wordings occur elsewhere, and how many there are.

    By where: in ``training`` none does. In the ``base`` model's talk the numbers do, in other situations. The ``dev``
    tasks, by which checkpoints are chosen, are of the tests' kind.
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
        where: {name: (len(found[name] & tested[name]), len(tested[name])) for name in tested}
        for where, found in elsewhere.items()
    }


def worded(policy: str, held_out: bool = False, strange: float = 0.0, **parameters: Any) -> Worded:
    """Makes a partner by name, for settings: ``training.proof.unseen:worded:policy=linear,horizon=3,held_out=true``.

    Args:
        policy: a scripted policy's name.
        held_out: whose wordings it uses.
        strange: share of what it says in which it is tried to replace words.
        parameters: of the policy.
    """
    given = ",".join(f"{key}={value}" for key, value in parameters.items())
    return Worded(make(f"{policy}:{given}" if given else policy), held_out, strange)
