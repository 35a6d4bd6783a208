"""Refusals of comparisons, each with the reason and what would make the comparison possible."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.reports.seat_results import WORDS
from sotopia_env.reports.seats.common import CommonSeats

_SCORE = "score the episodes with `sotopia evaluate RUN --evaluator NAME`"


def check_metrics(
    metrics: Sequence[str], primary: str | None, known: Collection[str], present: Collection[str], evaluator: str | None
) -> None:
    """Checks the metrics that a user has named.

    Args:
        metrics: the metrics of matrix, differences and charts.
        primary: the metric that ranks.
        known: all metrics of the episodes' evaluators.
        present: those with a value.
        evaluator: the evaluator of the scores.

    Raises:
        UnknownNameError: a metric does not exist.
        InvalidValueError: no seat has a value of the metric that ranks.
    """
    for name in (*metrics, *filter(None, [primary])):
        if name not in known:
            field, hint = "metric" if name in metrics else "primary", "another evaluator's own needs --evaluator NAME"
            raise UnknownNameError(field=field, got=name, valid=known, hint=hint)
    main = primary or next(iter(metrics), None)
    if main is not None and main not in present:
        by = "no evaluator has scored the episodes" if evaluator is None else f"{evaluator} has not scored it"
        others = f", or name a metric with values: {', '.join(present)}" if present else ""
        raise InvalidValueError(
            f"no seat has a value, because {by}",
            field="primary" if primary else "metric",
            got=main,
            hint=f"{_SCORE}{'' if evaluator is None else ' and name it with --evaluator'}{others}",
        )


def check_seats(policies: Sequence[str], common: CommonSeats, unlike: Sequence[str]) -> None:
    """Refuses policies that share no seat because their tasks or rules differ.

    Raises:
        InvalidValueError: no two policies share a seat.
    """
    if len(policies) > 1 and unlike and not common.policies:
        raise InvalidValueError(
            f"no two policies share a seat: {'; '.join(unlike)}",
            field="runs",
            hint="play all policies in the same tasks and under the same rules, or compare each run alone",
        )


def check_levels(by: str | None, ranked: bool) -> None:
    """Refuses levels of episodes that nobody scored.

    Raises:
        InvalidValueError: nothing ranks the policies.
    """
    if by is not None and not ranked:
        raise InvalidValueError(
            "no evaluator has scored the episodes, so levels would be compared by the number of words",
            field="by",
            got=by,
            hint=f"{_SCORE}, or name a metric: {WORDS}",
        )
