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
    best_reply_gap,
    exploitability,
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


def test_what_concordia_calls_chicken_is_no_chicken() -> None:
    """Its released table is read by the number of *all* who co-operate, the seat itself included.

    Read so, a seat that gives way and one that insists look up two rows of one table at different counts, and giving
    way is never the best reply to somebody who insists.
    """
    # Chicken by the number of *others* who give way: against none of them it is best to give way.
    right = whole({"of": "C", "counts": {"C": [1, 3], "D": [0, 5]}})
    assert set(pure_equilibria(right)) == {("C", "D"), ("D", "C")}
    # The same numbers by the number of all: C is looked up at 1 or 2, D at 0 or 1.
    counted_all = {"C": {1: 1, 2: 3}, "D": {0: 0, 1: 5}}
    rows = {"C": [counted_all["C"][1], counted_all["C"][2]], "D": [counted_all["D"][0], counted_all["D"][1]]}
    assert rows == {"C": [1, 3], "D": [0, 5]}
    # A file with a payoff for 0, 1 and 2 co-operators is refused: there are only 0 or 1 others.
    with pytest.raises(Exception, match="the seat itself is not counted"):
        whole({"of": "C", "counts": {"C": [0, 1, 3], "D": [0, 5, 5]}})


def test_a_mediator_makes_cooperation_an_equilibrium() -> None:
    one = whole(mediator={"together": "C", "otherwise": "D"})
    assert ("delegate", "delegate") in pure_equilibria(one)
    assert ("C", "C") not in pure_equilibria(one)


def test_gaps_and_exploitability_in_the_prisoners_dilemma() -> None:
    payoffs = payoff_array(whole())
    assert [best_reply_gap(payoffs, 0, row) for row in itertools.product((0, 1), repeat=2)] == [2, 1, 0, 0]
    assert [exploitability(payoffs, 0, option) for option in (0, 1)] == [1, 0]


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
