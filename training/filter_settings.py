"""How the filters of SOTOPIA-π are set (arXiv 2403.08715, B.2); what they do stands in :mod:`training.filtering`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from training.settings import Settings


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
