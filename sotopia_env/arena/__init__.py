"""Ratings of policies against a frozen pool of opponents, and the card that reports them.

A :class:`~sotopia_env.arena.suites.Suite` fixes tasks, seats, orders and pool; ``runs`` plays it; each seat of an
episode becomes a :class:`~sotopia_env.arena.rows.CardRow`; :func:`~sotopia_env.arena.rating.rate` estimates strengths
from the rows; a :class:`~sotopia_env.arena.card.Card` holds the rows, so that cards can be merged and rated again.
"""

from sotopia_env.arena.card import Card, merged_cards
from sotopia_env.arena.page import card_report, write_card
from sotopia_env.arena.rating import Rating, rate
from sotopia_env.arena.reading import card_of_runs, read_card
from sotopia_env.arena.rows import CardRow
from sotopia_env.arena.suites import SUITES, Suite, freeze, load_suite

__all__ = [
    "SUITES",
    "Card",
    "CardRow",
    "Rating",
    "Suite",
    "card_of_runs",
    "card_report",
    "freeze",
    "load_suite",
    "merged_cards",
    "rate",
    "read_card",
    "write_card",
]
