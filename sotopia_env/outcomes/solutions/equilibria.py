"""Equilibria of a round of a game of choices, by enumeration, and what each seat can secure.

Everything is about one round of a game without a stock. Arrays of payoffs have one axis per seat and a last axis of
length seats: ``payoffs[i, j, s]`` is what seat s gets if the first two choose their options i and j. Options are those
of :meth:`~sotopia_env.outcomes.games.rules.ChoicesRules.menu_of`, so that delegating to a mediator is one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes.games.game import Game, Row

Payoffs = NDArray[np.float64]
Mixture = tuple[float, ...]
"""A probability for each option of a seat."""
_EQUAL = 1e-9
_MOST_OPTIONS = 8
"""The number of options of a seat up to which all supports of mixed equilibria are tried."""


def payoff_array(game: Game) -> Payoffs:
    """Returns the payoffs of every combination of choices; shape (options of each seat, …, seats).

    Raises:
        InvalidValueError: the game has a stock, so that a round alone does not pay a fixed amount.
    """
    if game.rules.stock is not None:
        raise InvalidValueError(
            "with a stock, a round has no payoffs of its own", field="protocol.stock", hint="see reference_points"
        )
    menus = [game.rules.menu_of(agent) for agent in game.agents]
    rows = [[float(game.gain(seat, row)) for seat in range(len(menus))] for row in itertools.product(*menus)]
    return np.array(rows).reshape(*map(len, menus), len(menus))


def _others(payoffs: Payoffs, seat: int) -> Payoffs:
    """One seat's payoffs with its own option on the first axis and those of the others on the second."""
    own: Payoffs = np.moveaxis(payoffs[..., seat], seat, 0)
    return own.reshape(own.shape[0], -1)


def pure_equilibria(game: Game) -> tuple[Row, ...]:
    """Returns the profiles in which no seat could get more by another choice of its own (Nash equilibria)."""
    payoffs = payoff_array(game)
    stable = np.ones(payoffs.shape[:-1], dtype=bool)
    for seat in range(payoffs.shape[-1]):
        own = payoffs[..., seat]
        stable &= own >= own.max(axis=seat, keepdims=True) - _EQUAL
    menus = [game.rules.menu_of(agent) for agent in game.agents]
    return tuple(tuple(menu[i] for menu, i in zip(menus, row, strict=True)) for row in np.argwhere(stable).tolist())


def security_levels(game: Game) -> tuple[float, ...]:
    """Returns what each seat gets at least by its safest option, whatever the others choose (pure maximin)."""
    payoffs = payoff_array(game)
    return tuple(float(_others(payoffs, seat).min(axis=1).max()) for seat in range(payoffs.shape[-1]))


def mixed_equilibria(game: Game) -> tuple[tuple[Mixture, Mixture], ...]:
    """Returns the equilibria of a game of two in mixed strategies, the pure ones included, by their supports.

    Both seats mix over equally many options (sufficient unless the game is degenerate: Nisan et al. 2007, ch. 3).

    Raises:
        InvalidValueError: the game has other than two seats, or more than eight options for one of them.
    """
    payoffs = payoff_array(game)
    sizes = payoffs.shape[:-1]
    if len(sizes) != 2 or max(sizes) > _MOST_OPTIONS:
        expected = f"two seats with at most {_MOST_OPTIONS} options each"
        raise InvalidValueError(field="game", expected=expected, got=list(sizes))
    pairs = (
        (rows, columns)
        for size in range(1, min(sizes) + 1)
        for rows in itertools.combinations(range(sizes[0]), size)
        for columns in itertools.combinations(range(sizes[1]), size)
    )
    first, second = payoffs[..., 0], payoffs[..., 1].T
    return tuple(_on_supports(first, second, pairs))


def _on_supports(
    first: Payoffs, second: Payoffs, pairs: Iterator[tuple[tuple[int, ...], tuple[int, ...]]]
) -> Iterator[tuple[Mixture, Mixture]]:
    for rows, columns in pairs:
        # Each seat mixes so that the other is indifferent between the options of its support.
        own, other = _indifferent(second, columns, rows), _indifferent(first, rows, columns)
        if own is None or other is None:
            continue
        replies = (first @ other, second @ own)
        if all(
            (reply <= reply[list(s)].min() + _EQUAL).all() for reply, s in zip(replies, (rows, columns), strict=True)
        ):
            yield tuple(own.tolist()), tuple(other.tolist())


def _indifferent(payoffs: Payoffs, support: tuple[int, ...], mixed: tuple[int, ...]) -> Payoffs | None:
    """The mixture over ``mixed`` under which the options ``support`` of the other pay it the same; else ``None``.

    Args:
        payoffs: of the other seat; shape (its options, options that are mixed).
        support: rows.
        mixed: columns.
    """
    size = len(mixed)
    # Unknowns: the probabilities and the common payoff. One equation per row, and one for the sum.
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = payoffs[np.ix_(support, mixed)]
    system[:size, size] = -1
    system[size, :size] = 1
    try:
        solution = np.linalg.solve(system, np.array([0.0] * size + [1.0]))
    except np.linalg.LinAlgError:
        return None
    # Positive on the whole support: smaller supports are tried on their own.
    if (solution[:size] < _EQUAL).any():
        return None
    mixture = np.zeros(payoffs.shape[1])
    mixture[list(mixed)] = solution[:size]
    return mixture


def symmetric_mixture(game: Game, option: str, steps: int = 60) -> float:
    """Returns the probability of ``option`` in the symmetric mixed equilibrium of a game of two options.

    All seats are alike and choose the option with the same probability, which makes them indifferent: the volunteer's
    dilemma has 1 − (c/b)^(1/(n − 1)). Found by bisection, to within 2^-``steps``.

    Raises:
        InvalidValueError: a seat has other than two options, or one option is better at every probability.
    """
    payoffs = payoff_array(game)
    if {*payoffs.shape[:-1]} != {2}:
        raise InvalidValueError(field="game", expected="two options for every seat", got=list(payoffs.shape[:-1]))
    own = _others(payoffs, 0)
    index = game.rules.menu_of(game.agents[0]).index(option)
    others = list(itertools.product((0, 1), repeat=len(game.agents) - 1))
    counts = np.array([sum(choice == index for choice in row) for row in others])

    def advantage(p: float) -> float:
        chances = p**counts * (1 - p) ** (len(game.agents) - 1 - counts)
        return float((own[index] - own[1 - index]) @ chances)

    low, high = 0.0, 1.0
    if advantage(low) * advantage(high) >= 0:
        raise InvalidValueError("one option is at least as good at every probability", field="game", got=option)
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if advantage(middle) * advantage(low) > 0 else (low, middle)
    return (low + high) / 2


def grim_threshold(game: Game, seat: int = 0) -> Fraction | None:
    """Returns the least weight of the next round from which on grim trigger keeps a seat co-operating.

    With punishment by the stage equilibrium that is worst for the seat: (temptation − reward) / (temptation −
    punishment), 0.5 in the prisoner's dilemma of 2, 0, 3 and 1. ``None`` if no equilibrium punishes.
    """
    reward = game.gain(seat, game.cooperation)
    options = game.options[seat]
    row = game.cooperation
    temptation = max(game.gain(seat, (*row[:seat], option, *row[seat + 1 :])) for option in options)
    if temptation <= reward:
        return Fraction(0)
    punishment = min((game.gain(seat, profile) for profile in pure_equilibria(game)), default=reward)
    return (temptation - reward) / (temptation - punishment) if punishment < reward else None


def diagram(game: Game, option: str) -> tuple[tuple[float, float], ...]:
    """Returns Schelling's diagram of a symmetric game of two options.

    Args:
        game: of any number of seats that are all paid alike.
        option: the option that is counted, as a rule to co-operate.

    Returns:
        By the number of *other* seats that choose ``option``, from 0: the payoff of choosing it, and of the other one.

    Raises:
        InvalidValueError: a seat has other than two options.
    """
    menu = game.rules.menu_of(game.agents[0])
    if any(len(game.rules.menu_of(agent)) != 2 for agent in game.agents):
        raise InvalidValueError(field="game", expected="two options for every seat", got=list(menu))
    rest = menu[1 - menu.index(option)]
    rows = ([option] * count + [rest] * (len(game.agents) - 1 - count) for count in range(len(game.agents)))
    return tuple((float(game.gain(0, (option, *row))), float(game.gain(0, (rest, *row)))) for row in rows)


def check_kind(game: Game, kind: str, option: str) -> None:
    """Raises InvalidValueError, with the reason, unless a symmetric game of two options is of a kind.

    Args:
        game: the game.
        kind: ``prisoner``, ``chicken`` or ``stag``: not to co-operate pays more always; if all others co-operate but
            not if none does; or if none does but not if all do. In all three, all co-operating beats nobody doing it.
        option: the option that is to co-operate.
    """
    rows = diagram(game, option)
    (none, alone), (whole, free) = rows[0], rows[-1]
    tests: dict[str, tuple[bool, str]] = {
        "prisoner": (all(other > own for own, other in rows), "not to co-operate pays more whatever the others do"),
        "chicken": (alone < none and free > whole, "to co-operate pays more if nobody else does, and less if all do"),
        "stag": (alone > none and free < whole, "to co-operate pays more if all others do, and less if nobody does"),
    }
    if kind not in tests:
        raise InvalidValueError(field="kind", got=kind, valid=tests)
    holds, rule = tests[kind]
    if not holds or whole <= alone:
        numbers = "; ".join(f"{count} others: {own:g} or {other:g}" for count, (own, other) in enumerate(rows))
        expected = f"{rule}, and all are better off if all do"
        hint = "count the other co-operators, without the seat itself"
        raise InvalidValueError(field=f"the game is no {kind}", expected=expected, got=numbers, hint=hint)
