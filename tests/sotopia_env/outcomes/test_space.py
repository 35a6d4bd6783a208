"""Outcome spaces: exact numbers, options, divisions."""

import math
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sotopia_env.outcomes import ChoiceIssue, InvalidMoveError, ItemsIssue, NumberIssue
from tests.errors import raises

from .specs import names, trade

SEATS = names(2)
DOLLARS = NumberIssue(name="price", low=0, high=2000, step=1, unit="$")  # type: ignore[arg-type]
CENTS = NumberIssue(name="price", low="0.10", high=5, step=0.1, unit="€")  # type: ignore[arg-type]
DAYS = NumberIssue(name="days", low=-3, high=12, step=5, unit="days")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("issue", "value", "expected"),
    [
        *(
            (DOLLARS, value, 84)
            for value in (84, 84.0, "84", "$84", "84.00", "$ 84.0", "+84", " 84 ", "\uff18\uff14", "84$")
        ),
        *((DOLLARS, value, 1250) for value in ("1,250", "$1,250.00", "1250")),
        (CENTS, 0.3, 0.3),
        (CENTS, "0.30", 0.3),
        (CENTS, "€2", 2),
        (CENTS, 2.0, 2),
        (DAYS, "-3 days", -3),
        (DAYS, "\u22123", -3),
        (DAYS, 12, 12),
    ],
)
def test_one_value_has_one_form(issue: NumberIssue, value: Any, expected: Any) -> None:
    read = issue.read(value, SEATS)
    assert (read, type(read)) == (expected, type(expected))
    assert issue.read(read, SEATS) == read
    assert issue.read(issue.text(read, SEATS), SEATS) == read


@pytest.mark.parametrize(
    ("issue", "value", "nearest"),
    [
        (DOLLARS, True, None),
        (DOLLARS, None, None),
        (DOLLARS, "84 €", None),
        (DOLLARS, "1,25", None),
        (DOLLARS, "12,50", None),
        (DOLLARS, "--1", None),
        (DOLLARS, float("nan"), None),
        (DOLLARS, float("inf"), None),
        (DOLLARS, "9" * 1000, None),
        (DOLLARS, 10**400, None),
        (DOLLARS, 84.4, "$84"),
        (DOLLARS, "84." + "0" * 30 + "1", "$84"),
        (DOLLARS, 1e300, "$2,000"),
        (DOLLARS, -5, "$0"),
        (DAYS, 3, "2 days"),
        (CENTS, 0.1 + 0.2, "€0.30"),
    ],
)
def test_an_invalid_value_is_refused_with_the_nearest(issue: NumberIssue, value: Any, nearest: str | None) -> None:
    with raises(InvalidMoveError, field=issue.name, nearest=nearest):
        issue.read(value, SEATS)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"low": 0, "high": 5, "step": 0}, "step"),
        ({"low": 6, "high": 5}, "low"),
        ({"low": 0, "high": 5, "step": 2}, "high"),
        ({"low": 0, "high": 10**20}, "low, high, step"),
        ({"low": 0, "high": True}, "high"),
        ({"low": "x", "high": 1}, "low"),
    ],
)
def test_an_impossible_grid_is_refused(fields: dict[str, Any], field: str) -> None:
    with raises(ValidationError, field=field):
        NumberIssue.model_validate({"name": "price", **fields})


@given(
    step=st.integers(1, 999),
    decimals=st.integers(0, 6),
    low=st.integers(-(10**6), 10**6),
    count=st.integers(0, 10**6),
    index=st.integers(0, 10**6),
)
def test_numbers_are_exact(step: int, decimals: int, low: int, count: int, index: int) -> None:
    scale = Decimal(1).scaleb(-decimals)
    issue = NumberIssue(name="x", low=low * scale, high=(low + count * step) * scale, step=step * scale)
    value = issue.value_at(min(index, count))
    assert issue.read(value, SEATS) == value
    assert Decimal(repr(value)) == (low + min(index, count) * step) * scale
    assert NumberIssue.model_validate_json(issue.model_dump_json()) == issue
    assert issue.units(value) == round(Decimal(repr(value)).scaleb(issue.decimals))


def test_options_are_read_by_name_whatever_the_case() -> None:
    issue = ChoiceIssue(name="where", options=("Straße", "Café"))
    assert issue.read("STRASSE", SEATS) == "Straße"
    assert issue.read("cafe\u0301", SEATS) == "Café"
    for value in ("Strase", 3, None, ["Café"], "x" * 10**6):
        with pytest.raises(InvalidMoveError):
            issue.read(value, SEATS)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ana": 2, "Ben": 1}, (2, 1)),
        ({"ana": "2", "agent_1": 1.0}, (2, 1)),
        ({"BEN": 3}, (0, 3)),
        ({"agent_1": 1, "agent_0": 2}, (2, 1)),
    ],
)
def test_a_division_is_by_seat_or_name(value: Any, expected: tuple[int, int]) -> None:
    division = ItemsIssue(name="wood", count=3).read(value, SEATS)
    assert list(division.items()) == list(zip(SEATS, expected, strict=True))


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ({"Ana": 2}, {"field": "wood"}),
        ({"Ana": 2, "Ben": 2}, {"field": "wood"}),
        ({"Ana": 4, "Ben": -1}, {"field": 'wood, "Ana"', "nearest": "3"}),
        ({"Ana": 1.5, "Ben": 1.5}, {"field": 'wood, "Ana"'}),
        ({"Ana": True, "Ben": 2}, {"field": 'wood, "Ana"'}),
        ({"Ana": 1, "agent_0": 2}, {"field": "wood"}),
        ({"Anna": 3}, {"field": "wood", "nearest": "Ana"}),
        ({7: 3}, {"field": "wood"}),
        (3, {"field": "wood", "got": 3}),
    ],
)
def test_an_impossible_division_is_refused(value: Any, fields: dict[str, Any]) -> None:
    with raises(InvalidMoveError, **fields):
        ItemsIssue(name="wood", count=3).read(value, SEATS)


@pytest.mark.parametrize(
    ("terms", "fields"),
    [
        (None, {"field": "terms"}),
        ({"price": 1, "start": "June 1"}, {"field": "terms"}),
        ({"price": 1, "start": "June 1", "firewod": {}}, {"field": "terms", "nearest": "firewood"}),
        ({"price": 1, "PRICE": 1, "start": "June 1", "firewood": {"Ana": 3}}, {"field": "terms"}),
        ({"price": 1, 3: 4}, {"field": "terms"}),
    ],
)
def test_terms_are_complete(terms: Any, fields: dict[str, Any]) -> None:
    with raises(InvalidMoveError, **fields):
        trade().space(SEATS).normalise(terms)


@pytest.mark.parametrize("seats", [2, 3, 4])
def test_a_space_lists_exactly_its_size(seats: int) -> None:
    space = trade(seats).space(names(seats))
    outcomes = list(space.outcomes())
    assert len(outcomes) == space.size == 11 * 2 * math.comb(3 + seats - 1, seats - 1)
    assert len({space.key(terms) for terms in outcomes}) == space.size
    assert all(space.normalise(terms) == terms for terms in outcomes)
    assert all(space.terms_at(index) == terms for index, terms in enumerate(outcomes))
    rng = random.Random(0)
    assert all(space.draw(rng) in outcomes for _ in range(50))


def test_terms_are_written_for_people() -> None:
    space = trade().space(SEATS)
    terms = space.normalise({"Price": "$8", "start": "june 1", "firewood": {"Ben": 1, "Ana": 2}})
    assert space.describe(terms) == "price $8, start June 1, firewood: Ana 2, Ben 1"


FINE = NumberIssue(name="fee", low=-5000, high=5000, step="0.125", unit="$")  # type: ignore[arg-type]
YEARS = NumberIssue(name="year", low=0, high=3000, step=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("issue", "value", "text"),
    [
        (DOLLARS, 84, "$84"),
        (DOLLARS, 1250, "$1,250"),
        (CENTS, 2, "€2.00"),
        (CENTS, 0.5, "€0.50"),
        (FINE, -1250.125, "-$1,250.125"),
        (DAYS, -3, "-3 days"),
        (YEARS, 2026, "2026"),
    ],
)
def test_what_is_written_is_money_for_people_and_is_read_back(issue: NumberIssue, value: float, text: str) -> None:
    assert issue.text(value, SEATS) == text
    assert issue.read(text, SEATS) == value


def test_a_name_that_several_seats_have_is_refused() -> None:
    issue = ItemsIssue(name="wood", count=3)
    twins = {"agent_0": "Ana", "agent_1": "ana", "agent_2": "Ben", "agent_3": "Ben"}
    assert issue.read({"Ana": 1, "ana": 2}, twins) == {"agent_0": 1, "agent_1": 2, "agent_2": 0, "agent_3": 0}
    assert issue.read({"agent_3": 3}, twins)["agent_3"] == 3
    for name in ("ANA", "Ben"):
        with raises(InvalidMoveError, field="wood"):
            issue.read({name: 3}, twins)
    # An agent id is read as one, even if it is also a character's name.
    assert issue.read({"agent_1": 3}, {"agent_0": "agent_1", "agent_1": "Ben"}) == {"agent_0": 0, "agent_1": 3}


@pytest.mark.parametrize(
    ("step", "value", "expected"), [(0.01, 0.29, 0.29), (0.05, 0.15, 0.15), (0.05, 1, 1), (0.01, 3.0, 3)]
)
def test_cents_are_exact(step: float, value: Any, expected: Any) -> None:
    issue = NumberIssue(name="price", low=0.1, high=5, step=step, unit="€")  # type: ignore[arg-type]
    for form in (value, str(value), f"{value} €", f"€ {value}", f"{value:.2f}€"):
        read = issue.read(form, SEATS)
        assert (read, type(read)) == (expected, type(expected))
    with raises(InvalidMoveError, field="price"):
        issue.read(0.1 + 0.2, SEATS)


def test_a_bare_number_is_read_before_its_unit() -> None:
    issue = NumberIssue(name="area", low=0, high=100, unit="2")  # type: ignore[arg-type]
    assert issue.read("82", SEATS) == 82
