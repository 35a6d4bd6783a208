"""``negotiation``: two people agree on several issues, in an outcome space of a given difficulty.

The difficulty has three parts, each measured on the whole space with all outcomes equally likely:

- *conflict*: ``(1 - r) / 2``, where ``r`` is the correlation of the two worths: 0 if both sides want the same, 1 if
  every gain of one side is a loss of the other.
- *size*: the number of issues, and of options per issue.
- *zone*: the share of outcomes that are worth no less than no agreement to both sides.

========  ========  ======  =======  ====
level     conflict  issues  options  zone
========  ========  ======  =======  ====
easy      0.3       3       3        0.5
medium    0.6       3       4        0.25
hard      0.85      4       4        0.1
========  ========  ======  =======  ====

Spaces are drawn until conflict and zone are within :data:`TOLERANCE` of these values; in small spaces, the zone may
differ by half an outcome. :func:`difficulty_family` returns a family of any other difficulty.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError, check_whole
from sotopia_env.foundation.records import Record
from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ChoiceIssue, OutcomeSpec
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import points
from sotopia_env.world.scenario import Seat

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _JointPlan(Record):
    """A plan of two people: the first sentence of the context, and issues with their options."""

    opening: str
    issues: dict[str, tuple[str, ...]]


class _NegotiationTexts(FamilyTexts):
    """Plans, and templates of rules and goals."""

    plans: tuple[_JointPlan, ...]
    rules: tuple[str, ...]
    goals: tuple[str, ...]
    no_agreement: tuple[str, ...]


texts = read_texts(_NegotiationTexts, "negotiation")
NAME = "negotiation"
TOLERANCE = 0.03
MOST_ISSUES = MOST_OPTIONS = 5
_SPREAD = 10.0
"""Standard deviation of the points of one option: large enough that rounding to whole points changes little."""
# Draws of a space before its difficulty counts as impossible.
_TRIES = 2_000


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The difficulty of an outcome space; the module's docstring defines its parts.

    Attributes:
        conflict: opposition of the two worths, 0 to 1.
        issues: number of issues, 1 to 5.
        options: number of options per issue, 2 to 5.
        zone: share of outcomes acceptable to both sides, above 0 and at most 1.
    """

    conflict: float
    issues: int
    options: int
    zone: float

    def __post_init__(self) -> None:
        """Checks the ranges.

        Raises:
            InvalidValueError: a field is out of range; the message names field, range and value.
        """
        for field, low, high in (("issues", 1, MOST_ISSUES), ("options", 2, MOST_OPTIONS)):
            check_whole(field, getattr(self, field), low)
            if getattr(self, field) > high:
                raise InvalidValueError(field=field, expected=f"{low} to {high}", got=getattr(self, field))
        # Two worths need two degrees of freedom to have any correlation other than 1 or -1.
        if self.issues * (self.options - 1) < 2:
            expected = "at least 3 for a single issue"
            raise InvalidValueError(field="options", expected=expected, got=self.options, hint="or use more issues")
        if not 0 <= self.conflict <= 1:
            raise InvalidValueError(field="conflict", expected="a number from 0 to 1", got=self.conflict)
        if not 0 < self.zone <= 1:
            raise InvalidValueError(field="zone", expected="a number above 0 and at most 1", got=self.zone)

    @property
    def outcomes(self) -> int:
        """The number of outcomes."""
        return int(self.options**self.issues)


LEVELS: Mapping[str, Difficulty] = {
    "easy": Difficulty(0.3, 3, 3, 0.5),
    "medium": Difficulty(0.6, 3, 4, 0.25),
    "hard": Difficulty(0.85, 4, 4, 0.1),
}


def measured(spec: OutcomeSpec) -> tuple[float, float]:
    """Returns conflict and zone of an agreement of two seats, from the worth of every outcome."""
    import numpy as np

    space = spec.space_by_id
    rows = [[worth.value(space, terms) for worth in spec.worth] for terms in space.outcomes()]
    worths = np.array(rows).T  # (seat, outcome)
    return _conflict(worths), _zone(worths, [worth.disagreement for worth in spec.worth])


def _conflict(worths: NDArray[Any]) -> float:
    import numpy as np

    return float(1 - np.corrcoef(worths)[0, 1]) / 2


def _zone(worths: NDArray[Any], bounds: Sequence[float]) -> float:
    return float(((worths[0] >= bounds[0]) & (worths[1] >= bounds[1])).mean())


def _worths(weights: NDArray[Any]) -> NDArray[Any]:
    """The worth of every outcome to each seat (seat, outcome), from weights (seat, issue, option).

    The last issue varies fastest.
    """
    import numpy as np

    seats = []
    for issues in weights:
        column = np.zeros(1)
        for gains in issues:
            # (outcomes so far,) and (option,) to (outcomes so far * options,)
            column = np.add.outer(column, gains).reshape(-1)
        seats.append(column)
    return np.array(seats)


def draw_space(rng: random.Random, difficulty: Difficulty) -> tuple[list[list[list[int]]], list[int]]:
    """Returns points (seat, issue, option), and each seat's points without an agreement.

    Raises:
        InvalidValueError: no space of this difficulty was found: the zone is too narrow for the number of outcomes.
    """
    # The zone changes in steps of one outcome, so in a small space it cannot be nearer than half a step.
    tolerance = max(TOLERANCE, 0.5 / difficulty.outcomes)
    for _ in range(_TRIES):
        weights = _draw_weights(rng, difficulty)
        worths = _worths(weights)
        # Rounding to whole points can make all outcomes equal to a seat, which leaves the correlation undefined.
        if worths.std(axis=1).min() == 0 or abs(_conflict(worths) - difficulty.conflict) > TOLERANCE:
            continue
        bounds = _draw_bounds(rng, worths, difficulty.zone)
        is_gainful = ((worths[0] > bounds[0]) & (worths[1] > bounds[1])).any()
        if is_gainful and min(bounds) >= 0 and abs(_zone(worths, bounds) - difficulty.zone) <= tolerance:
            return weights.astype(int).tolist(), bounds
    raise InvalidValueError(
        field="zone",
        expected=f"a share of the {difficulty.outcomes} outcomes that can be met within {tolerance:.2f}",
        got=difficulty.zone,
        hint="use more outcomes or a wider zone",
    )


def _draw_weights(rng: random.Random, difficulty: Difficulty) -> NDArray[Any]:
    """Whole points (seat, issue, option), 0 for the worst option of each issue.

    The correlation of the two worths is ``1 - 2 * conflict``, except for rounding.
    """
    import numpy as np

    shape = (2, difficulty.issues, difficulty.options)
    noise = np.array([rng.gauss(0, 1) for _ in range(math.prod(shape))]).reshape(shape)
    # Over all outcomes the issues are independent, so with centred options the covariance of the two worths is
    # proportional to the inner product of the weights: two orthonormal vectors give any correlation by mixing.
    noise -= noise.mean(axis=2, keepdims=True)
    first, other = (part / np.sqrt((part**2).sum()) for part in noise)
    other = other - (first * other).sum() * first
    other /= np.sqrt((other**2).sum())
    r = 1 - 2 * difficulty.conflict
    weights = np.array([first, r * first + math.sqrt(1 - r * r) * other]) * math.sqrt(first.size) * _SPREAD
    whole: NDArray[Any] = np.rint(weights - weights.min(axis=2, keepdims=True))
    return whole


def _draw_bounds(rng: random.Random, worths: NDArray[Any], zone: float) -> list[int]:
    """Each seat's points without an agreement, chosen so that the zone has the given size.

    Both seats find about the same share of outcomes unacceptable.
    """
    import numpy as np

    lean = rng.uniform(-0.05, 0.05)  # by how much the shares of the two seats differ from their mean
    ranked, last = np.sort(worths, axis=1), worths.shape[1] - 1

    def bounds(share: float) -> list[int]:
        ranks = [min(last, max(0, round((share + side) * last))) for side in (lean, -lean)]
        # Halfway between the worst acceptable outcome and the next worse one, so that the former is a gain.
        pairs = [(row[max(rank - 1, 0)], row[rank]) for row, rank in zip(ranked, ranks, strict=True)]
        return [math.ceil((below + worst) / 2) for below, worst in pairs]

    # Bisection over the unacceptable share; the zone shrinks as it grows. Twelve steps resolve 1 / 4096, finer than one
    # of the at most 3125 outcomes.
    low, high, pairs = 0.0, 1.0, [bounds(0.0)]
    for _ in range(12):
        middle = (low + high) / 2
        pairs.append(bounds(middle))
        low, high = (middle, high) if _zone(worths, pairs[-1]) > zone else (low, middle)
    return min(pairs, key=lambda pair: abs(_zone(worths, pair) - zone))


def _draw(rng: random.Random, difficulty: Difficulty, tag: str) -> Draft:
    weights, bounds = draw_space(rng, difficulty)
    plan = rng.choice(texts.plans)
    names = rng.sample(tuple(plan.issues), difficulty.issues)
    issues = {name: rng.sample(plan.issues[name], difficulty.options) for name in names}
    gains_by_seat = [_gains(issues, rows) for rows in weights]
    return Draft(
        characters=draw_characters(rng, 2),
        context=f"{plan.opening} {_open_points(issues)} {rng.choice(texts.rules)}",
        seats=tuple(_seat(rng, gains, bound) for gains, bound in zip(gains_by_seat, bounds, strict=True)),
        outcome=OutcomeSpec(
            protocol=AgreementRules(),
            issues=tuple(ChoiceIssue(name=name, options=tuple(options)) for name, options in issues.items()),
            worth=tuple(
                AdditiveWorth(issues=gains, no_agreement=bound)
                for gains, bound in zip(gains_by_seat, bounds, strict=True)
            ),
        ),
        tags=(tag,),
    )


def _gains(issues: Mapping[str, Sequence[str]], rows: Sequence[Sequence[int]]) -> dict[str, dict[str, float]]:
    pairs = zip(issues.items(), rows, strict=True)
    return {name: dict(zip(options, map(float, row), strict=True)) for (name, options), row in pairs}


def _open_points(issues: Mapping[str, Sequence[str]]) -> str:
    choices = "; ".join(f"{name}: {', '.join(options)}" for name, options in issues.items())
    return f"Open are: {choices}."


def _seat(rng: random.Random, gains: Mapping[str, Mapping[str, float]], bound: int) -> Seat:
    rows = [
        (name, ", ".join(f"{option} {gain:.0f}" for option, gain in options.items())) for name, options in gains.items()
    ]
    return Seat(
        goals=(rng.choice(texts.goals).format(points="; ".join(f"{name}: {text}" for name, text in rows)),),
        hints=(rng.choice(texts.hints),),
        private_info=rng.choice(texts.no_agreement).format(points=points(bound)),
    )


_PHRASES = texts.phrases


def difficulty_family(difficulty: Difficulty) -> Family:
    """Returns a family whose tasks all have this difficulty; it ignores the level."""
    return Family(NAME, partial(_draw_difficulty, difficulty), _PHRASES)


def _draw_difficulty(difficulty: Difficulty, rng: random.Random, index: int, level: str) -> Draft:
    sizes = f"{difficulty.issues} issues of {difficulty.options} options"
    return _draw(rng, difficulty, f"conflict {difficulty.conflict:g}, zone {difficulty.zone:g}, {sizes}")


def _draw_level(rng: random.Random, index: int, level: str) -> Draft:
    return _draw(rng, LEVELS[level], "mixed")


FAMILY = Family(NAME, _draw_level, _PHRASES)
"""The family; the module's docstring states its rules."""
