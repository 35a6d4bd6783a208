"""What a filter took: seats of episodes to train on, and a report on every task and seat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from sotopia_env.reports.tables import table
from training.stage.settings import Settings

Why = Literal["top", "rank", "share"]
"""Among the best of its task and seat; at a rank at which every seat passed; in the best share of its task and seat."""


@dataclass(frozen=True, slots=True, order=True)
class Chosen:
    """A seat of an episode to train on, and the rule by which it was taken."""

    episode: str
    seat: str
    why: Why


class SeatReport(Settings):
    """What became of one seat of one task.

    Attributes:
        task: id of the scenario; ``key`` tells apart what has the same id.
        seat: the agent's id.
        scored: episodes that were ranked; ``unscored`` had no score.
        local_mean: of the scores; ``None`` without any.
        threshold: that further ranks had to be above (behaviour cloning only).
        top: taken as the best; ``rank``: because all seats passed; ``share``: in the best share.
        below_minimum: of those in the best share or the top, left out for the minimum.
        lowest: lowest score that was taken.
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


class FilterReport(Settings):
    """What a filter took, per task and seat, and what it left.

    Attributes:
        filter: its settings.
        evaluator: whose scores were used.
        episodes: looked at; ``unscored_episodes`` of these had no score on any seat that was looked at.
        reasons: why seats had no score, with how many.
        not_focal: seats left out because of ``policies`` and ``seats``.
        global_means: by seat, over all tasks.
        kept_episodes: episodes of which at least one seat was taken; ``kept_seats`` counts the seats.
        seats: one line for every task and seat.
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
        """The report as a table with a heading."""
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
    shown = (str(seat.scored), str(seat.unscored), *means, *map(str, counts), _number(seat.lowest))
    return (seat.task, seat.seat, *shown)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


@dataclass(frozen=True)
class Selection:
    """What a filter took.

    Attributes:
        chosen: ordered by episode and seat.
        report: per task and seat.
    """

    chosen: tuple[Chosen, ...]
    report: FilterReport

    def seats(self, episode: str) -> tuple[str, ...]:
        """The seats taken of an episode; none for one that was left out."""
        return self._by_episode.get(episode, ())

    @cached_property
    def _by_episode(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for item in self.chosen:
            found[item.episode] = (*found.get(item.episode, ()), item.seat)
        return found

    def lines(self, episodes: Iterable[str] | None = None) -> str:
        """The selection as JSON Lines of ``episode``, ``seat`` and ``why``; of these episodes only, where given."""
        wanted = None if episodes is None else set(episodes)
        return "".join(
            json.dumps({"episode": item.episode, "seat": item.seat, "why": item.why}) + "\n"
            for item in self.chosen
            if wanted is None or item.episode in wanted
        )


class _FilterSettings(Settings):
    """What both filters share.

    Attributes:
        dimension: what is ranked by: one of the seven (or its abbreviation), ``overall`` for their mean, or the name of
            a custom dimension.
        evaluator: whose scores; by default the only one, or the one that all episodes share.
        group: what a task is: ``scenario``, whoever plays it, as in the paper; ``task``, one cast of it.
        policies: only seats in which one of these policies sits, so that of agent and partner the agent alone is
            trained; a seat that none of them takes in a task is not asked there. Empty for all.
        seats: likewise only these seats, as numbers from 0. Empty for all.
        minimum: a seat with a lower score is never taken; not in the paper.
    """

    dimension: str = "goal"
    evaluator: str | None = None
    group: Literal["scenario", "task"] = "scenario"
    policies: tuple[str, ...] = ()
    seats: tuple[Annotated[int, Field(ge=0)], ...] = ()
    minimum: float | None = Field(default=None, allow_inf_nan=False)


class BCFilter(_FilterSettings):
    """The filter of behaviour cloning.

    Attributes:
        kind: ``bc``.
        top: so many of every task and seat are always taken.
        threshold: what further ranks must be above: the seat's ``local`` mean (of its task), its ``global`` mean (over
            all tasks), the ``min`` (as in the paper) or ``max`` of the two, or a number.
    """

    kind: Literal["bc"] = "bc"
    top: int = Field(default=2, ge=0)
    threshold: Literal["min", "local", "global", "max"] | float = "min"


class SRFilter(_FilterSettings):
    """The filter of self-reinforcement.

    Attributes:
        kind: ``sr``.
        ratio: the share of every task and seat that is taken, rounded down.
        at_least: but so many, where there are so many.
    """

    kind: Literal["sr"] = "sr"
    ratio: float = Field(default=0.2, gt=0, le=1)
    at_least: int = Field(default=1, ge=0)


AnyFilter = BCFilter | SRFilter


FilterChoice = Annotated[BCFilter | SRFilter, Field(discriminator="kind")]
"""One of the two, told apart by ``kind`` when it is read from a file."""
