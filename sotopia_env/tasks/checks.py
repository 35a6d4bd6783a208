"""Whether a task of a family can be played and scored: what its file says must be what the family's code reads.

A record that is well formed (:mod:`sotopia_env.world.scenario`) may still describe no game: a family that does not
exist, two buyers, prices as text, nobody who could gain. :func:`check` finds that before an episode is played. The
numbers stand three times in a task, for the reader of outcomes (``outcome.parameters``), for the programs in the seats
(``private_data``, ``shared_data``) and in words; the first two must agree. Data of a task's own may stand beside them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from sotopia_env.errors import InvalidTaskError, name_hint
from sotopia_env.records import Name, Record, canonical_json, explain
from sotopia_env.tasks.contract_terms import ISSUES, SALARY, START_DATE, Options, to_option
from sotopia_env.tasks.texts import mutual_friend as mutual_friend_words
from sotopia_env.world.scenario import Task

Price = Annotated[int, Field(ge=0, le=1_000_000)]
"""Whole dollars; the reference points list every price between the sides, so there is an upper limit."""
Points = Annotated[int, Field(ge=0, le=1_000_000)]
Pieces = Annotated[int, Field(ge=1, le=6)]
"""Pieces of one kind of items; phrases have words for up to six."""
DIVISION_TOTAL = 10
MOST_ALLOCATIONS = 20_000
"""Reference points list every allocation."""
GROUP_SIZES = (3, 4, 5)


class _Given(Record):
    """Base of what a family reads; types are taken literally: ``"95"`` is no number."""

    model_config = ConfigDict(strict=True)


class _Known(_Given):
    """Base of what programs read beside data of the task's own."""

    model_config = ConfigDict(extra="ignore")


class BargainingSide(_Given):
    """One side's private numbers."""

    role: Literal["buyer", "seller"]
    target_price: Price
    walk_away_price: Price


class Bargaining(_Given):
    """Outcome parameters of ``bargaining``."""

    listed_price: Annotated[Price, Field(ge=1)]
    sides: Annotated[tuple[BargainingSide, ...], Field(min_length=2, max_length=2)]


class Division(_Given):
    """Outcome parameters of ``division``."""

    items: Annotated[dict[Name, Pieces], Field(min_length=1)]
    points: Annotated[tuple[dict[Name, Points], ...], Field(min_length=2, max_length=2)]


class MutualFriend(_Given):
    """Outcome parameters of ``mutual_friend``."""

    friend: Name
    people: Annotated[tuple[Name, ...], Field(min_length=1)]


class HiringSide(_Given):
    """One side's points by issue and option."""

    role: Literal["manager", "candidate"]
    points: dict[Name, Annotated[dict[Name, Points], Field(min_length=1)]]
    walk_away_points: Points


class Hiring(_Given):
    """Outcome parameters of ``hiring``."""

    sides: Annotated[tuple[HiringSide, ...], Field(min_length=2, max_length=2)]


class GroupDecision(_Given):
    """Outcome parameters of ``group_decision``."""

    options: Annotated[tuple[Name, ...], Field(min_length=2)]
    utilities: tuple[tuple[float, ...], ...]
    no_decision: tuple[float, ...]


class _BargainingSeat(_Known):
    role: str
    target_price: Price
    walk_away_price: Price


class _BargainingTable(_Known):
    listed_price: Price


class _DivisionSeat(_Known):
    points: dict[Name, Points]


class _DivisionTable(_Known):
    items: dict[Name, Pieces]


class _FriendSeat(_Known):
    friends: Annotated[tuple[dict[Name, str], ...], Field(min_length=1)]


class _FriendTable(_Known):
    pass


class _HiringSeat(_Known):
    role: str
    points: dict[Name, dict[Name, Points]]
    walk_away_points: Points


class _HiringTable(_Known):
    issues: dict[Name, tuple[Name, ...]]


class _GroupSeat(_Known):
    utilities: dict[Name, float]
    no_decision: float


class _GroupTable(_Known):
    options: tuple[Name, ...]


class _UnreadableError(InvalidTaskError):
    """Data of a task that its family cannot read at all; the message begins with the field."""


_ModelT = TypeVar("_ModelT", bound=Record)
_Problems = Iterator[str]
_OUTCOME = "scenario.outcome.parameters"


def check(task: Task) -> None:
    """Finds out whether a task can be played and its outcome be read; a task without a family can.

    Raises:
        InvalidTaskError: names the task, the first field that is wrong, its value and the nearest valid name.
    """
    problem = next(_problems(task), None)
    if problem is not None:
        raise InvalidTaskError(f"task {task.id!r}, {problem}")


def _problems(task: Task) -> _Problems:
    scenario = task.scenario
    told = scenario.shared_data.get("family")
    if scenario.outcome is None:
        if told is not None:
            yield f"scenario.shared_data.family: expected none in a scenario without an outcome, got {told!r}"
        return
    family = scenario.outcome.family
    if family not in _RULES:
        yield f"scenario.outcome.family: {name_hint(family, _RULES)}"
    elif told != family:
        yield f"scenario.shared_data.family: expected {family!r}, as in scenario.outcome.family, got {told!r}"
    else:
        try:
            yield from _RULES[family](task, scenario.outcome.parameters)
        except _UnreadableError as error:
            yield str(error)


def _read(model: type[_ModelT], data: Mapping[str, Any], where: str) -> _ModelT:
    """Returns the model read as JSON, in which tuples are arrays."""
    try:
        return model.model_validate_json(canonical_json(data))
    except ValidationError as error:
        names = sorted(name for model in _MODELS for name in model.model_fields)
        raise _UnreadableError(f"{where}.{explain(error, names)}") from None


def _seats(model: type[_ModelT], task: Task) -> list[_ModelT]:
    return [
        _read(model, seat.private_data, f"scenario.seats.{number}.private_data")
        for number, seat in enumerate(task.scenario.seats)
    ]


def _count(task: Task, allowed: Sequence[int]) -> _Problems:
    if len(task.agents) not in allowed:
        listed = " or ".join(map(str, allowed))
        yield f"scenario.seats: expected {listed} seats for {_family(task)!r}, got {len(task.agents)}"


def _family(task: Task) -> str:
    return "" if task.scenario.outcome is None else task.scenario.outcome.family


def _agree(where: str, got: object, expected: object, source: str = _OUTCOME) -> _Problems:
    if got != expected:
        yield f"{where}: expected {expected!r}, as in {source}, got {got!r}"


def _roles(sides: Sequence[BargainingSide | HiringSide], roles: Sequence[str]) -> _Problems:
    got = [side.role for side in sides]
    if sorted(got) != sorted(roles):
        yield f"{_OUTCOME}.sides: expected the roles {' and '.join(map(repr, roles))}, one each, got {got}"


def _bargaining(task: Task, parameters: Mapping[str, Any]) -> _Problems:
    given = _read(Bargaining, parameters, _OUTCOME)
    yield from _count(task, (2,))
    yield from _roles(given.sides, ("buyer", "seller"))
    for number, side in enumerate(given.sides):
        sign = 1 if side.role == "seller" else -1
        if sign * (side.target_price - side.walk_away_price) < 0:
            yield (
                f"{_OUTCOME}.sides.{number}.target_price: expected a price that is no worse for the {side.role} than "
                f"its walk-away price {side.walk_away_price}, got {side.target_price}"
            )
    most = {side.role: side.walk_away_price for side in given.sides}
    if most["buyer"] <= most["seller"]:
        yield (
            f"{_OUTCOME}.sides: expected a zone of agreement, the buyer's walk-away price above the seller's, "
            f"got {most['buyer']} and {most['seller']}"
        )
    table = _read(_BargainingTable, task.scenario.shared_data, "scenario.shared_data")
    yield from _agree("scenario.shared_data.listed_price", table.listed_price, given.listed_price)
    yield from _same_numbers(_seats(_BargainingSeat, task), given.sides)


def _same_numbers(seats: Sequence[Record], sides: Sequence[Record]) -> _Problems:
    for number, (seat, side) in enumerate(zip(seats, sides, strict=True)):
        for field, value in side.model_dump().items():
            where = f"scenario.seats.{number}.private_data.{field}"
            yield from _agree(where, seat.model_dump()[field], value, f"{_OUTCOME}.sides.{number}")


def _division(task: Task, parameters: Mapping[str, Any]) -> _Problems:
    given = _read(Division, parameters, _OUTCOME)
    yield from _count(task, (2,))
    allocations = 1
    for count in given.items.values():
        allocations *= count + 1
    if allocations > MOST_ALLOCATIONS:
        yield f"{_OUTCOME}.items: expected at most {MOST_ALLOCATIONS} ways to divide them, got {allocations}"
    for number, points in enumerate(given.points):
        yield from _agree(f"{_OUTCOME}.points.{number}", sorted(points), sorted(given.items), f"{_OUTCOME}.items")
        total = sum(points[name] * count for name, count in given.items.items())
        if total != DIVISION_TOTAL:
            yield f"{_OUTCOME}.points.{number}: expected all pieces to be worth {DIVISION_TOTAL} points, got {total}"
    table = _read(_DivisionTable, task.scenario.shared_data, "scenario.shared_data")
    yield from _agree("scenario.shared_data.items", table.items, given.items)
    for number, seat in enumerate(_seats(_DivisionSeat, task)):
        yield from _agree(f"scenario.seats.{number}.private_data.points", seat.points, given.points[number])


def _mutual_friend(task: Task, parameters: Mapping[str, Any]) -> _Problems:
    given = _read(MutualFriend, parameters, _OUTCOME)
    yield from _count(task, (2,))
    if len(set(given.people)) != len(given.people):
        yield f"{_OUTCOME}.people: expected different names, got {list(given.people)}"
    if given.friend not in given.people:
        yield f"{_OUTCOME}.friend: {name_hint(given.friend, given.people)}"
    lists = [seat.friends for seat in _seats(_FriendSeat, task)]
    for number, friends in enumerate(lists):
        yield from _friends(f"scenario.seats.{number}.private_data.friends", friends, given)
    shared = [friend["name"] for friend in lists[0] if friend in lists[1]]
    if shared != [given.friend]:
        yield f"scenario.seats: expected {given.friend!r} alone to stand alike on both lists of friends, got {shared}"
    listed = {friend["name"] for friends in lists for friend in friends}
    yield from _agree(f"{_OUTCOME}.people", sorted(given.people), sorted(listed), "the lists of friends")


def _friends(where: str, friends: Sequence[Mapping[str, str]], given: MutualFriend) -> _Problems:
    known = ("name", *mutual_friend_words.FACTS)
    for number, friend in enumerate(friends):
        for field in friend:
            if field not in known:
                yield f"{where}.{number}: {name_hint(field, known)}"
        if len(friend) < 2 or friend.get("name") not in given.people:
            yield f"{where}.{number}: expected a name of {_OUTCOME}.people and at least one fact, got {dict(friend)!r}"
    names = [friend["name"] for friend in friends]
    if len(set(names)) != len(names):
        yield f"{where}: expected different names, got {names}"


def _hiring(task: Task, parameters: Mapping[str, Any]) -> _Problems:
    given = _read(Hiring, parameters, _OUTCOME)
    yield from _count(task, (2,))
    yield from _roles(given.sides, ("manager", "candidate"))
    for number, side in enumerate(given.sides):
        where = f"{_OUTCOME}.sides.{number}.points"
        yield from _agree(where, sorted(side.points), sorted(ISSUES), "every contract")
    first, second = ({issue: sorted(side.points[issue]) for issue in ISSUES} for side in given.sides)
    yield from _agree(f"{_OUTCOME}.sides.1.points", second, first, f"{_OUTCOME}.sides.0.points")
    yield from _readable(Options(tuple(given.sides[0].points[SALARY]), tuple(given.sides[0].points[START_DATE])))
    yield from _worthwhile(given.sides)
    table = _read(_HiringTable, task.scenario.shared_data, "scenario.shared_data")
    issues = {issue: sorted(labels) for issue, labels in table.issues.items()}
    yield from _agree("scenario.shared_data.issues", issues, first, f"{_OUTCOME}.sides.0.points")
    yield from _same_numbers(_seats(_HiringSeat, task), given.sides)


def _readable(options: Options) -> _Problems:
    for issue, labels in options.by_issue().items():
        kind = "an amount of money such as '$100k'" if issue == SALARY else "a date such as 'June 15'"
        for label in labels:
            if not _reads(issue, label):
                yield f"{_OUTCOME}.sides.0.points.{issue}: expected {kind}, got {label!r}"
    for issue, label in ((issue, label) for issue, labels in options.by_issue().items() for label in labels):
        if to_option(issue, label, options) != label:
            yield f"{_OUTCOME}.sides.0.points.{issue}: expected options that differ as amounts and dates, got {label!r}"


def _reads(issue: str, label: str) -> bool:
    """Whether the option is understood when it stands alone, beside a plain option of the other issue."""
    options = Options((label,), ("June 1",)) if issue == SALARY else Options(("$100k",), (label,))
    try:
        return to_option(issue, label, options) == label
    except (ValueError, IndexError):
        return False


def _worthwhile(sides: Sequence[HiringSide]) -> _Problems:
    pairs = [
        [sum(side.points[issue][label] for issue, label in zip(ISSUES, terms, strict=True)) for side in sides]
        for terms in itertools.product(*(sides[0].points[issue] for issue in ISSUES))
    ]
    walk_away = [side.walk_away_points for side in sides]
    if not any(all(own > low for own, low in zip(pair, walk_away, strict=True)) for pair in pairs):
        yield (
            f"{_OUTCOME}.sides: expected a contract that is worth more to both than their walk_away_points, "
            f"got {walk_away} and contracts up to {[max(pair[seat] for pair in pairs) for seat in range(2)]}"
        )


def _group_decision(task: Task, parameters: Mapping[str, Any]) -> _Problems:
    given, seats = _read(GroupDecision, parameters, _OUTCOME), len(task.agents)
    yield from _count(task, GROUP_SIZES)
    if len({option.casefold() for option in given.options}) != len(given.options):
        yield f"{_OUTCOME}.options: expected different options, got {list(given.options)}"
    for field, got in (("utilities", len(given.utilities)), ("no_decision", len(given.no_decision))):
        if got != seats:
            yield f"{_OUTCOME}.{field}: expected {seats} entries, one per seat, got {got}"
    for number, row in enumerate(given.utilities):
        if len(row) != len(given.options):
            yield f"{_OUTCOME}.utilities.{number}: expected {len(given.options)}, one per option, got {len(row)}"
    by_option = [[row[place] for row in given.utilities] for place in range(len(given.options))]
    if not any(_gains(points, given.no_decision) for points in by_option):
        yield (
            f"{_OUTCOME}.utilities: expected an option that is worse for nobody than no decision and better for "
            f"somebody, got none (no_decision: {list(given.no_decision)})"
        )
    table = _read(_GroupTable, task.scenario.shared_data, "scenario.shared_data")
    yield from _agree("scenario.shared_data.options", sorted(table.options), sorted(given.options))
    for number, seat in enumerate(_seats(_GroupSeat, task)):
        where, row = f"scenario.seats.{number}.private_data", given.utilities[number]
        yield from _agree(f"{where}.utilities", seat.utilities, dict(zip(given.options, row, strict=True)))
        yield from _agree(f"{where}.no_decision", seat.no_decision, given.no_decision[number])


def _gains(points: Sequence[float], low: Sequence[float]) -> bool:
    return all(own >= least for own, least in zip(points, low, strict=True)) and sum(points) > sum(low)


_MODELS: tuple[type[Record], ...] = (
    BargainingSide, Bargaining, Division, MutualFriend, HiringSide, Hiring, GroupDecision,
)  # fmt: skip
_RULES: Mapping[str, Callable[[Task, Mapping[str, Any]], _Problems]] = MappingProxyType(
    {
        "bargaining": _bargaining,
        "division": _division,
        "mutual_friend": _mutual_friend,
        "hiring": _hiring,
        "group_decision": _group_decision,
    }
)

__all__ = ["check"]
