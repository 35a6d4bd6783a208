"""The outcome space of a scenario for its page: worths in words, reference points, and the Pareto frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.outcomes import reference_points
from sotopia_env.outcomes.descriptions import describe_space, describe_worth
from sotopia_env.outcomes.reference import ReferencePoints
from sotopia_env.world import Scenario

WIDTH, HEIGHT, MARGIN = 420, 300, 46
"""The size of the drawing, in pixels."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of the drawing, with its tooltip."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class OutcomeView:
    """The outcome space of a scenario.

    Attributes:
        rules: the outcome space and the protocol in words.
        worths: name of each seat, and a description of its utility.
        points: rows of the table of reference points: name, terms, payoffs.
        names: the names of the seats.
        frontier: the Pareto-optimal payoffs of a scenario for two, as points of the drawing.
        disagreement: the payoffs without an outcome.
        size: the number of outcomes.
        problem: the reason why the reference points could not be computed.
    """

    rules: str
    worths: tuple[tuple[str, str], ...]
    points: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    names: tuple[str, ...] = ()
    frontier: tuple[Dot, ...] = ()
    disagreement: Dot | None = None
    size: int = 0
    problem: str = ""


def outcome_view(scenario: Scenario, names: Mapping[str, str] | None = None) -> OutcomeView | None:
    """Returns the outcome space of a scenario; ``None`` without a formal outcome."""
    spec, resolved = scenario.outcome, scenario.resolved_outcome
    if spec is None or resolved is None:
        return None
    seats = names or {f"agent_{index}": f"Seat {index + 1}" for index in range(len(scenario.seats))}
    rules = describe_space(spec, seats)
    worths = tuple((name, describe_worth(spec, index, seats)) for index, name in enumerate(seats.values()))
    try:
        points = reference_points(resolved, seats)
    except SotopiaError as error:
        return OutcomeView(rules, worths, names=tuple(seats.values()), problem=str(error))
    describe = spec.space(seats).describe
    rows = [
        ("no agreement", None, points.disagreement),
        ("Nash solution", points.nash_terms, points.nash),
        ("greatest sum", points.best_joint_terms, points.best_joint),
        ("Kalai-Smorodinsky", points.kalai_smorodinsky_terms, points.kalai_smorodinsky),
    ]
    table = tuple(
        (name, "" if terms is None else describe(terms), tuple(f"{payoff:.2f}" for payoff in payoffs))
        for name, terms, payoffs in rows
    )
    dots, base = _drawing(points) if len(seats) == 2 else ((), None)
    return OutcomeView(rules, worths, table, tuple(seats.values()), dots, base, points.size)


def _drawing(points: ReferencePoints) -> tuple[tuple[Dot, ...], Dot]:
    """The frontier and the disagreement, scaled into the drawing; the second seat's payoff goes upwards."""
    payoffs = [*points.frontier, points.disagreement]
    scale = [_scale([payoff[seat] for payoff in payoffs]) for seat in (0, 1)]

    def dot(payoff: Sequence[float]) -> Dot:
        across, up = ((payoff[seat] - low) / span for seat, (low, span) in enumerate(scale))
        text = f"{payoff[0]:.2f} and {payoff[1]:.2f}"
        x = MARGIN + across * (WIDTH - 2 * MARGIN)
        # In SVG, y grows downwards; payoffs grow upwards.
        return Dot(round(x, 1), round(HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN), 1), text)

    return tuple(dot(payoff) for payoff in points.frontier), dot(points.disagreement)


def _scale(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    # A frontier of one point has no extent, and would divide by zero.
    return low, (high - low) or 1.0
