"""Ratings of policies against a frozen pool of opponents, and the card that reports them.

A :class:`~sotopia_env.arena.suites.Suite` fixes tasks, seats, orders and pool; ``runs`` plays it; each seat of an
episode becomes a :class:`~sotopia_env.arena.rows.CardRow`; :func:`~sotopia_env.arena.rating.rate` estimates strengths
from the rows; a :class:`~sotopia_env.arena.card.Card` holds the rows, so that cards can be merged and rated again.
"""

from sotopia_env.arena.rating import rate
from sotopia_env.arena.reading import read_card
from sotopia_env.arena.suites import Suite, freeze, load_suite

__all__ = [
    "Suite",
    "freeze",
    "load_suite",
    "rate",
    "read_card",
]
