"""One row for each seat of an episode whose opponents all have the same policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt

from sotopia_env.arena.process import process
from sotopia_env.foundation.json_text import canonical_json, decode_json
from sotopia_env.foundation.records import Line, Record
from sotopia_env.reports.seat_results import SHARE, SeatResult, seat_results
from sotopia_env.world.episode import Episode

Play = Literal["pool", "mirror", "cross", "human"]
"""Kinds of play: against the reference pool, against itself, against another rated policy, and with a person."""
HUMAN = "human"
"""The name of the policy of a person."""


# Cards come from others: the squares of larger numbers overflow.
Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Amount = Annotated[float, Field(ge=0, le=1e9)]


class CardRow(Record):
    """The result of one seat.

    Attributes:
        key: the key of the episode.
        task: the id of the task.
        seat: the index of the seat.
        first: whether the seat acted first.
        seed: the seed of the episode.
        policy: the identity of the policy in the seat (:func:`~sotopia_env.world.play.policy.policy_identity`).
        opponent: the identity of the policy in all other seats.
        payoff: the metric of the suite; ``None`` if the episode is unscored.
        opponent_payoff: the mean payoff of the other seats.
        values: the scores and measures of the seat, by name.
        opponent_failed: whether an opponent made an illegal move or wrote text that could not be read as an action.
        role: the role of the seat, in a task that deals roles; empty otherwise.
        turns: the seat's turns; ``illegal`` and ``invalid`` of them failed.
        tokens: the tokens of the seat's model, and so on for cost (US dollars) and seconds; ``None`` if unknown.
    """

    key: str
    task: str
    seat: NonNegativeInt
    first: bool
    seed: int
    policy: Line
    opponent: Line
    payoff: Number | None
    opponent_payoff: Number | None
    values: dict[Line, Number] = Field(default_factory=dict)
    opponent_failed: bool = False
    role: Line = ""
    turns: NonNegativeInt = 0
    illegal: NonNegativeInt = 0
    invalid: NonNegativeInt = 0
    texts: NonNegativeInt = 0
    tokens: NonNegativeInt | None = None
    cost: Amount | None = None
    seconds: Amount | None = None

    @property
    def played(self) -> dict[str, Any]:
        """What two records of one seat have in common; times and costs differ."""
        return self.model_dump(exclude={"tokens", "cost", "seconds"})


def play_of(row: CardRow, pool: Sequence[str]) -> Play:
    """Returns the kind of play of a row, given the identities of the pool."""
    if HUMAN in (policy_name(row.policy), policy_name(row.opponent)):
        return "human"
    if row.policy == row.opponent:
        return "mirror"
    return "pool" if row.opponent in pool else "cross"


@lru_cache(maxsize=1024)
def policy_name(identity: str) -> str:
    """Returns the name in a policy's identity."""
    return str(decode_json(identity)[0])


def rows_of(episode: Episode, evaluator: str, metric: str = SHARE) -> list[CardRow]:
    """Returns the rows of a recorded episode; seats that face several policies at once are left out.

    Raises:
        InvalidValueError: a seat has no recorded policy.
        UnknownNameError: the episode has no evaluation by ``evaluator``.
    """
    measures, seats = process(episode), seat_results([episode], evaluator)
    return [row for seat in seats if (row := _row(seat, seats, measures[f"agent_{seat.seat}"], metric)) is not None]


def _row(result: SeatResult, seats: Sequence[SeatResult], measures: Mapping[str, float], metric: str) -> CardRow | None:
    others = [other for other in seats if other.seat != result.seat]
    opponents = {_identity(other) for other in others}
    if len(opponents) != 1:
        return None
    payoffs = [other.values[metric] for other in others if metric in other.values]
    counts = result.counts
    return CardRow(
        key=result.key,
        task=result.task,
        seat=result.seat,
        first=result.first,
        seed=result.seed,
        policy=_identity(result),
        opponent=opponents.pop(),
        payoff=result.values.get(metric),
        opponent_payoff=sum(payoffs) / len(payoffs) if payoffs else None,
        values={**result.values, **measures},
        opponent_failed=any(other.counts.illegal or other.counts.invalid for other in others),
        role=next(iter(result.levels["role"]), ""),
        turns=counts.turns,
        illegal=counts.illegal,
        invalid=counts.invalid or 0,
        texts=counts.texts,
        tokens=counts.tokens,
        cost=counts.cost,
        seconds=counts.seconds,
    )


def _identity(result: SeatResult) -> str:
    name, parameters = result.policies[result.seat]
    return canonical_json([name, decode_json(parameters)])
