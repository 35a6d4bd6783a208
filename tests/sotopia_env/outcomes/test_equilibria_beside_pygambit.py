"""Equilibria beside those of pygambit, where it is installed: it has no wheels and takes minutes to build."""

from __future__ import annotations

import itertools

import pytest

from sotopia_env.outcomes.solutions.equilibria import mixed_equilibria, payoff_array, pure_equilibria

from .games import PRISONER
from .test_equilibria import CHICKEN, SEXES, STAG, table, whole

pygambit = pytest.importorskip("pygambit")


def test_on_the_121_games_and_the_classical_ones() -> None:
    strict = [(t, s) for t, s in itertools.product(range(5, 16), range(11)) if t != 10 and s != 5]
    for one in [*(whole(table(10, s, t, 5)) for t, s in strict), *map(whole, (PRISONER, STAG, CHICKEN, SEXES))]:
        payoffs = payoff_array(one)
        peer = pygambit.Game.from_arrays(payoffs[..., 0], payoffs[..., 1])
        profiles = pygambit.nash.enummixed_solve(peer).equilibria
        theirs = {tuple(round(float(p), 6) for _, p in profile) for profile in profiles}
        ours = {tuple(round(p, 6) for own in pair for p in own) for pair in mixed_equilibria(one)}
        assert ours == theirs
        assert len(pygambit.nash.enumpure_solve(peer).equilibria) == len(pure_equilibria(one))
