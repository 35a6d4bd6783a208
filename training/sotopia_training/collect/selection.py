"""A filter's settings and result: seats of episodes to train on, and a report on every task and seat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from sotopia_env.foundation.records import Record
from sotopia_env.foundation.settings import Settings
from sotopia_env.reports.sheet import table

Why = Literal["top", "rank", "share"]
"""The rule that selected a seat: the ``top`` of its task, a ``rank`` that every seat passed, or the best ``share``."""


@dataclass(frozen=True, slots=True, order=True)
class SelectedSeat:
    """A seat of an episode to train on, and the rule that selected it."""

    episode: str
    seat: str
    why: Why


class SeatReport(Record):
    """The selection of one seat of one task.

    Attributes:
        task: the id of the scenario; ``key`` distinguishes scenarios with the same id.
        seat: the agent's id.
        scored: the number of ranked episodes; ``unscored`` counts those without a score.
        local_mean: the mean of the scores; ``None`` without scores.
        threshold: the threshold of the further ranks (behaviour cloning only).
        top: the number of seats selected as the best. ``rank`` is the number selected at a rank that all seats passed,
            ``share`` the number selected as the best share.
        below_minimum: the number of seats in the best share or the top that the minimum excludes.
        lowest: the lowest selected score.
    """

    task: str
    key: str
    seat: str
    scored: int
    unscored: int
    local_mean: float | None
    threshold: float | None
    top: int
    rank: int
    share: int
    below_minimum: int
    lowest: float | None


class FilterReport(Record):
    """The numbers of a selection, in total and per task and seat.

    Attributes:
        filter: the settings of the filter.
        evaluator: the name of the evaluator of the scores.
        episodes: the number of episodes; ``unscored_episodes`` counts those without a score for any focal seat.
        reasons: the reasons for missing scores, with the number of seats.
        not_focal: the number of seats left out because of ``policies``.
        global_means: the mean score of each seat over all tasks.
        kept_episodes: the number of episodes with at least one selected seat; ``kept_seats`` counts the seats.
        seats: one entry for every task and seat.
    """

    filter: FilterChoice
    evaluator: str
    episodes: int
    unscored_episodes: int
    reasons: dict[str, int]
    not_focal: int
    global_means: dict[str, float]
    kept_episodes: int
    kept_seats: int
    seats: tuple[SeatReport, ...]

    def text(self) -> str:
        """Returns the report as a table with a heading."""
        means = ", ".join(f"{seat} {mean:.3g}" for seat, mean in self.global_means.items())
        lines = [
            f"{self.filter.kind} filter by {self.filter.dimension} ({self.evaluator}): {self.kept_seats} seats of "
            f"{self.kept_episodes} of {self.episodes} episodes taken; mean over all tasks: {means}",
            f"left out: {self.unscored_episodes} unscored episodes, {self.not_focal} seats of other policies",
            *(f"  no score: {count} × {reason}" for reason, count in self.reasons.items()),
        ]
        header = (
            "task",
            "seat",
            "scored",
            "unscored",
            "mean",
            "threshold",
            "top",
            "rank",
            "share",
            "too low",
            "lowest",
        )
        return "\n".join(lines) + "\n\n" + table(header, [_line(seat) for seat in self.seats]) + "\n"


def _line(seat: SeatReport) -> tuple[str, ...]:
    counts = (seat.top, seat.rank, seat.share, seat.below_minimum)
    means = (_number(seat.local_mean), _number(seat.threshold))
    columns = (str(seat.scored), str(seat.unscored), *means, *map(str, counts), _number(seat.lowest))
    return (seat.task, seat.seat, *columns)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


@dataclass(frozen=True)
class FilterResult:
    """The result of a filter.

    Attributes:
        entries: the selected seats, ordered by episode and seat.
        report: the numbers per task and seat.
    """

    entries: tuple[SelectedSeat, ...]
    report: FilterReport

    def seats(self, episode: str) -> tuple[str, ...]:
        """Returns the selected seats of an episode; empty if it was not selected."""
        return self._by_episode.get(episode, ())

    @cached_property
    def _by_episode(self) -> Mapping[str, tuple[str, ...]]:
        seats: dict[str, tuple[str, ...]] = {}
        for item in self.entries:
            seats[item.episode] = (*seats.get(item.episode, ()), item.seat)
        return seats

    def lines(self, episodes: Iterable[str] | None = None) -> str:
        """Returns JSON Lines of ``episode``, ``seat`` and ``why``; for all episodes or only for these."""
        keys = None if episodes is None else set(episodes)
        return "".join(
            json.dumps({"episode": item.episode, "seat": item.seat, "why": item.why}) + "\n"
            for item in self.entries
            if keys is None or item.episode in keys
        )


class _FilterSettings(Settings):
    """Settings of both filters.

    Attributes:
        dimension: the dimension that ranks the episodes: one of the seven (or its abbreviation), ``overall`` for their
            mean, or the name of a custom dimension.
        evaluator: the evaluator of the scores; by default the only one, or the one that all episodes share.
        group: the unit of the ranking: ``scenario``, with any characters, as in the paper, or ``task``, with one cast.
        policies: selects only seats held by one of these policies, so that only the agent and not its partner is
            trained; other seats do not affect the selection. Empty for all.
        minimum: the lowest score that may be selected; not in the paper.
    """

    dimension: str = "goal"
    evaluator: str | None = None
    group: Literal["scenario", "task"] = "scenario"
    policies: tuple[str, ...] = ()
    minimum: float | None = Field(default=None, allow_inf_nan=False)


class BCFilter(_FilterSettings):
    """The filter of behaviour cloning.

    Attributes:
        kind: ``bc``.
        top: number of episodes of every task and seat that is always selected.
        threshold: lower bound of the scores at further ranks: the seat's ``local`` mean (of its task), its ``global``
            mean (over all tasks), the ``min`` (as in the paper) or ``max`` of the two, or a number.
    """

    kind: Literal["bc"] = "bc"
    top: int = Field(default=2, ge=0)
    threshold: Literal["min", "local", "global", "max"] | float = "min"


class SRFilter(_FilterSettings):
    """The filter of self-reinforcement.

    Attributes:
        kind: ``sr``.
        ratio: selected share of every task and seat, rounded down, but at least one.
    """

    kind: Literal["sr"] = "sr"
    ratio: float = Field(default=0.2, gt=0, le=1)


AnyFilter = BCFilter | SRFilter


FilterChoice = Annotated[BCFilter | SRFilter, Field(discriminator="kind")]
"""One of the two filters; in a file, ``kind`` selects the class."""
