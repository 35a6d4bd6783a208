"""Seats without a payoff: how many a policy has, and what they are worth at the worst.

Leaving failures out rewards a policy that fails where it would have got little. Counting them as the worst payoff is a
bound on the other side. A card shows both.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sotopia_env.arena.card import Card, FailedEpisode
from sotopia_env.arena.rating import Rating, rate
from sotopia_env.arena.rows import CardRow, Play, policy_name
from sotopia_env.reports.intervals import UNBOUNDED
from sotopia_env.reports.seat_results import metric_bounds

_NO_AGREEMENT = 0.0  # the payoff of every seat without an agreement, on the scale of shares


class _Cell(NamedTuple):
    """What is played once by each policy."""

    task: str
    seat: int
    opponent: str
    first: bool
    seed: int


@dataclass(frozen=True, slots=True)
class RatedPlay:
    """The rating of one kind of play.

    Attributes:
        rating: the rating of the seats with a payoff; its ranks also hold at the worst.
        at_worst: the rating in which a policy's own failures have the worst payoff; ``rating`` if none failed.
        shares: the share of each policy's seats that have a payoff.
        failures: the number of own failures of each policy in this kind of play.
    """

    rating: Rating
    at_worst: Rating
    shares: dict[str, float]
    failures: Counter[str]


def rated_play(card: Card, play: Play) -> RatedPlay:
    """Returns the rating of the rated policies in one kind of play.

    Raises:
        InvalidValueError: the rows do not determine a rating.
    """
    rows = card.of_play(play)
    failed = failed_rows(card, play)
    failures, shares = Counter(row.policy for row in failed), scored_shares(card, play, failed)
    if not failed:
        rating = rate(rows, shares)
        return RatedPlay(rating, rating, shares, failures)
    at_worst = rate([*rows, *failed], shares)
    return RatedPlay(rate(rows, shares, at_worst), at_worst, shares, failures)


def scored_shares(card: Card, play: Play, failed: Sequence[CardRow]) -> dict[str, float]:
    """Returns the share of each policy's seats that have a payoff.

    Against the pool, its seats are those of the suite, or what it played and failed if that is more; in other kinds of
    play, what it played and failed.
    """
    rows = card.of_play(play)
    scored = Counter(row.policy for row in rows if row.payoff is not None)
    tried = Counter(row.policy for row in (*rows, *failed))
    expected = {p: card.suite.expected(p) if play == "pool" else 0 for p in tried}
    return {policy: scored[policy] / max(tried[policy], expected[policy]) for policy in tried}


def failed_rows(card: Card, play: Play) -> list[CardRow]:
    """Returns a row with the worst payoff for each seat in which a rated policy failed itself.

    A record of a failure that does not say where it happened (of earlier versions) counts in any seat that the policy
    lacks.
    """
    rows = card.of_play(play)
    missing = _missing(rows, card.failures)
    failed: list[CardRow] = []
    for failure in card.failures:
        for policy in sorted(policy for policy in missing if {policy, policy_name(policy)} & {*failure.policies}):
            cell = next((cell for cell in missing[policy] if _fits(failure, policy, cell)), None)
            if cell is not None:
                missing[policy].remove(cell)
                failed.append(_row(failure.key, policy, cell, _worst(card, cell)))
    return failed


def _missing(rows: Sequence[CardRow], failures: Sequence[FailedEpisode]) -> dict[str, list[_Cell]]:
    """What each policy lacks of all that any policy played or failed, in order."""
    have: defaultdict[str, set[_Cell]] = defaultdict(set)
    for row in rows:
        have[row.policy].add(_Cell(row.task, row.seat, row.opponent, row.first, row.seed))
    opponents = {row.opponent for row in rows}
    around = {(row.task, row.seat, row.first, row.seed) for row in rows}
    played = {row.task for row in rows}
    # Nobody has a payoff in the tasks of these failures, so that nothing says who acted first.
    alone = [item for item in failures if item.task is not None and item.task not in played]
    around |= {(item.task or "", seat, False, 0) for item in alone for seat in range(len(item.seats))}
    every = {_Cell(task, seat, other, first, seed) for task, seat, first, seed in around for other in opponents}
    return {policy: sorted(cell for cell in every - cells if cell.opponent != policy) for policy, cells in have.items()}


def _fits(failure: FailedEpisode, policy: str, cell: _Cell) -> bool:
    """Whether the policy may have failed there."""
    if failure.task is not None and failure.task != cell.task:
        return False
    if not failure.seats:
        return True
    # The policy has one seat, and its opponent all others.
    names = [policy_name(cell.opponent)] * len(failure.seats)
    names[cell.seat : cell.seat + 1] = [policy_name(policy)]
    return failure.seats == tuple(names)


def _worst(card: Card, cell: _Cell) -> float:
    """The least payoff of the metric; without one, the least that anybody got in this seat, or 0 if that is less."""
    low, _ = metric_bounds(()).get(card.suite.metric, UNBOUNDED)
    if low > -math.inf:
        return low
    payoffs = [
        row.payoff for row in card.rows if (row.task, row.seat) == (cell.task, cell.seat) and row.payoff is not None
    ]
    return min([_NO_AGREEMENT, *payoffs])


def _row(key: str, policy: str, cell: _Cell, payoff: float) -> CardRow:
    return CardRow(
        key=key,
        task=cell.task,
        seat=cell.seat,
        first=cell.first,
        seed=cell.seed,
        policy=policy,
        opponent=cell.opponent,
        payoff=payoff,
        opponent_payoff=None,
    )
