"""Equilibria and closed forms of games, by enumeration, and checked against nashpy."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes.games.game import Game, game_of
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.outcomes.solutions.equilibria import (
    check_kind,
    diagram,
    grim_threshold,
    mixed_equilibria,
    payoff_array,
    pure_equilibria,
    security_levels,
    symmetric_mixture,
)
from sotopia_env.tasks.families.registry import FAMILIES

from .games import FISHERY, PRISONER, game


def whole(worth: Any = PRISONER, seats: int = 2, **rules: Any) -> Game:
    spec = game(worth, seats, **rules)
    assert isinstance(spec.protocol, ChoicesRules)
    return game_of(spec.protocol, spec.worth)


def table(cc: float, cd: float, dc: float, dd: float) -> dict[str, Any]:
    return {"payoffs": {"C": {"C": cc, "D": cd}, "D": {"C": dc, "D": dd}}}


STAG, CHICKEN = table(4, 0, 3, 2), table(3, 1, 5, 0)
SEXES = [table(3, 0, 0, 2), table(2, 0, 0, 3)]
GOODS = {"constant": 20, "per": {"own": -1, "total": 0.4}}
TWENTY = {"amounts": {"low": 0, "high": 20, "step": 5}}


def volunteers(seats: int) -> Game:
    """Benefit 2, cost 1."""
    return whole({"of": "C", "counts": {"C": [1] * seats, "D": [0, *[2] * (seats - 1)]}}, seats)


@pytest.mark.parametrize(
    ("worth", "pure"),
    [
        (PRISONER, {("D", "D")}),
        (STAG, {("C", "C"), ("D", "D")}),
        (CHICKEN, {("C", "D"), ("D", "C")}),
        (SEXES, {("C", "C"), ("D", "D")}),
    ],
)
def test_pure_equilibria_of_the_classical_games(worth: Any, pure: set[tuple[str, ...]]) -> None:
    assert set(pure_equilibria(whole(worth))) == pure


def test_nobody_gains_by_leaving_a_mixed_equilibrium_in_any_of_the_121_games() -> None:
    for t, r in itertools.product(range(5, 16), range(11)):
        payoffs = payoff_array(one := whole(table(10, r, t, 5)))
        assert mixed_equilibria(one)
        for row, column in mixed_equilibria(one):
            assert max(payoffs[..., 0] @ column) <= np.array(row) @ payoffs[..., 0] @ column + 1e-9
            assert max(row @ payoffs[..., 1]) <= np.array(row) @ payoffs[..., 1] @ column + 1e-9


@pytest.mark.parametrize("seats", [2, 3, 4, 5, 8])
def test_volunteers_mix_as_diekmann_says(seats: int) -> None:
    assert symmetric_mixture(volunteers(seats), "C") == pytest.approx(1 - 0.5 ** (1 / (seats - 1)))
    assert len(pure_equilibria(volunteers(seats))) == seats  # one volunteers, whoever it is


def test_public_goods_are_20_32_and_44() -> None:
    one = whole(GOODS, 4, **TWENTY)
    assert pure_equilibria(one) == (("0",) * 4,)
    assert one.gain(0, ("0",) * 4) == 20
    assert one.cooperation == ("20",) * 4
    assert one.gain(0, one.cooperation) == 32
    assert one.gain(0, ("0", "20", "20", "20")) == 44
    assert security_levels(one) == (20.0,) * 4


def test_travellers_undercut_each_other_down_to_the_lowest_amount() -> None:
    one = whole({"per": {"lowest": 1, "below": 10, "above": -10}}, amounts={"low": 20, "high": 100, "step": 5})
    assert pure_equilibria(one) == (("20", "20"),)
    assert one.gain(0, one.cooperation) == 100


def test_grim_trigger_holds_from_one_half_on() -> None:
    assert grim_threshold(whole(table(2, 0, 3, 1))) == Fraction(1, 2)
    assert grim_threshold(whole(STAG)) == 0  # nothing tempts
    # By simulation of 400 rounds: just below the threshold defecting once and for all pays more, just above less.
    for weight, pays in ((0.49, True), (0.51, False)):
        loyal = sum(2 * weight**n for n in range(400))
        once = 3 + sum(1 * weight**n for n in range(1, 400))
        assert (once > loyal) is pays


def concordia(seats: int, counted: int) -> Game:
    """Its released minigame: 4k for co-operators and 5.5k − 2 for others; its k counts all co-operators.

    Args:
        seats: the number of players.
        counted: 1 as released, where a co-operator counts itself; 0 if only the others are counted.
    """
    cooperate = [4.0 * (k + counted) for k in range(seats)]
    defect = [5.5 * k - 2 for k in range(seats)]
    return whole({"of": "C", "counts": {"C": cooperate, "D": defect}}, seats)


@pytest.mark.parametrize("seats", [3, 4])
def test_what_concordia_calls_chicken_is_refused_as_chicken(seats: int) -> None:
    """The numbers of its reality show, whose scenes have 3 or 4 players (``chicken_schelling_diagram``)."""
    with pytest.raises(InvalidValueError, match="no chicken") as error:
        check_kind(concordia(seats, counted=1), "chicken", "C")
    assert "count the other co-operators" in str(error.value)
    # Counted so, to co-operate pays more whatever the others do: there is no dilemma at all.
    assert all(own > other for own, other in diagram(concordia(seats, counted=1), "C"))
    check_kind(concordia(seats, counted=0), "chicken", "C")


def test_the_classical_games_are_of_their_kinds_and_of_no_other() -> None:
    games = {"prisoner": PRISONER, "chicken": CHICKEN, "stag": STAG}
    for name, worth in games.items():
        check_kind(whole(worth), name, "C")
        for other in games.keys() - {name}:
            with pytest.raises(InvalidValueError, match=f"no {other}"):
                check_kind(whole(worth), other, "C")
    with pytest.raises(InvalidValueError, match="kind"):
        check_kind(whole(), "hawk", "C")


def test_a_mediator_makes_cooperation_an_equilibrium() -> None:
    one = whole(mediator={"together": "C", "otherwise": "D"})
    assert ("delegate", "delegate") in pure_equilibria(one)
    assert ("C", "C") not in pure_equilibria(one)


def test_gaps_and_worst_cases_in_the_prisoners_dilemma() -> None:
    one = whole()
    assert [one.gap(0, row) for row in itertools.product("CD", repeat=2)] == [2, 1, 0, 0]
    assert [one.floor(0, option) for option in "CD"] == [0, 1]
    assert max(one.floor(0, option) for option in "CD") == security_levels(one)[0]


def test_a_stock_has_no_payoffs_of_a_round_and_large_games_no_mixtures() -> None:
    with pytest.raises(InvalidValueError, match="with a stock"):
        pure_equilibria(whole({"per": {"own": 1}}, amounts={"low": 0, "high": 20}, rounds=2, stock=FISHERY))
    with pytest.raises(InvalidValueError, match="two seats"):
        mixed_equilibria(volunteers(3))
    with pytest.raises(InvalidValueError, match="at every probability"):
        symmetric_mixture(whole(), "C")


def test_the_grid_is_121_different_games() -> None:
    tasks = [FAMILIES["grid"].generate(index, 0, "hard") for index in range(121)]
    assert len({str(task.scenario.shared_data["parameters"]) for task in tasks}) == 121
