"""The picture of the 121 games, and the forms that games are played against."""

from __future__ import annotations

import pytest

from studies import game_forms, game_grid


def test_every_region_has_its_equilibria() -> None:
    cells = {place: game_grid.equilibria(game) for place, game in game_grid.grid().items()}
    assert len(cells) == 121
    theory = {(False, True): "CC", (True, True): "CD, DC", (False, False): "CC, DD", (True, False): "DD"}
    for (t, s), (pure, mixture) in cells.items():
        if t != 10 and s != 5:
            assert pure == theory[t > 10, s > 5]
            expected = (s - 5) / (s - 5 + t - 10) if pure in ("CD, DC", "CC, DD") else None
            assert mixture == (None if expected is None else pytest.approx(expected))


def test_the_picture_is_drawn() -> None:
    assert len(game_grid.picture().axes[0].texts) > 50


def test_what_does_not_vary_equals_its_form() -> None:
    rows = [row for name in ("public", "commons") for row in game_forms.rows_of(2, name)]
    assert len(rows) == 5
    assert all((mean, error) == (form, 0) for _, form, mean, error in rows)
