"""Equilibria beside those of nashpy, which the extra ``dev`` installs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from sotopia_env.outcomes.solutions.equilibria import mixed_equilibria, payoff_array

from .games import PRISONER
from .test_equilibria import CHICKEN, SEXES, STAG, table, whole

nashpy = pytest.importorskip("nashpy")


def rounded(pairs: Any) -> set[tuple[float, ...]]:
    return {tuple((np.round(np.concatenate(pair), 6) + 0.0).tolist()) for pair in pairs}


def test_on_the_121_games_and_the_classical_ones() -> None:
    # Where an option is as good as another, a game has infinitely many equilibria, of which both list some.
    strict = [(t, s) for t, s in itertools.product(range(5, 16), range(11)) if t != 10 and s != 5]
    games = [*(whole(table(10, s, t, 5)) for t, s in strict), *map(whole, (PRISONER, STAG, CHICKEN, SEXES))]
    for one in games:
        payoffs = payoff_array(one)
        peer = nashpy.Game(payoffs[..., 0], payoffs[..., 1])
        assert rounded(mixed_equilibria(one)) == rounded(peer.support_enumeration())


def test_on_larger_games_of_two() -> None:
    rng = np.random.default_rng(5)
    rows, columns = [f"r{i}" for i in range(3)], [f"c{i}" for i in range(3)]
    for _ in range(20):
        first, second = rng.random((2, 3, 3)).round(6)
        worths = [
            {
                "payoffs": {
                    r: dict(zip(columns, line, strict=True)) for r, line in zip(rows, first.tolist(), strict=True)
                }
            },
            {
                "payoffs": {
                    c: dict(zip(rows, line, strict=True)) for c, line in zip(columns, second.T.tolist(), strict=True)
                }
            },
        ]
        one = whole(worths, options=(), own_options={"agent_0": rows, "agent_1": columns})
        assert rounded(mixed_equilibria(one)) == rounded(nashpy.Game(first, second).vertex_enumeration())
