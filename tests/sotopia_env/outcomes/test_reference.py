"""Reference points against an independent brute force, and worths."""

import math
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import OutcomeSpec, reference_points
from sotopia_env.outcomes.specification import worth_value
from sotopia_env.policies.negotiators.own_outcomes import own_outcomes
from tests.errors import raises

from .specs import ballot, claims, names, trade

HALVES = st.integers(-8, 8).map(lambda number: number / 2)


@st.composite
def specs(draw: Any) -> OutcomeSpec:
    seats = draw(st.integers(2, 4))
    issues = [
        {"name": "price", "kind": "number", "low": 0, "high": 1, "step": 0.25},
        {"name": "wood", "kind": "items", "count": draw(st.integers(1, 2))},
        {"name": "day", "kind": "choice", "options": ["a", "b"]},
    ]
    worth = [
        {
            "constant": draw(HALVES),
            "issues": {
                "price": {"per_unit": draw(HALVES)},
                "wood": {"each": draw(HALVES)},
                "day": {"a": draw(HALVES), "b": draw(HALVES)},
            },
            "no_agreement": draw(HALVES),
        }
        for _ in range(seats)
    ]
    needs: Any = draw(st.sampled_from(["all", {"quorum": 2}, {"quorum": 2, "veto": ["agent_1"]}]))
    protocol = {"kind": "agreement", "needs": needs}
    return OutcomeSpec.model_validate({"protocol": protocol, "issues": issues, "worth": worth})


def exact_payoffs(spec: OutcomeSpec, terms: dict[str, Any]) -> tuple[Fraction, ...]:
    rows = []
    for seat, worth in enumerate(spec.worth):
        gains = worth.issues  # type: ignore[union-attr]
        total = Fraction(worth.constant) + Fraction(gains["price"]["per_unit"]) * Fraction(terms["price"])  # type: ignore
        total += Fraction(gains["day"][terms["day"]]) + Fraction(gains["wood"]["each"]) * terms["wood"][f"agent_{seat}"]
        rows.append(total)
    return tuple(rows)


@given(spec=specs())
@settings(max_examples=120)
def test_reference_points_are_those_of_brute_force(spec: OutcomeSpec) -> None:
    seats = names(len(spec.worth))
    outcomes = list(spec.space(seats).outcomes())
    points = [exact_payoffs(spec, terms) for terms in outcomes]
    d = [Fraction(worth.no_agreement) for worth in spec.worth]  # type: ignore[union-attr]
    needs = spec.protocol.needs  # type: ignore[union-attr]
    quorum, veto = (len(d), ()) if needs == "all" else (needs.quorum, needs.veto)  # type: ignore[union-attr]

    def can_be(u: tuple[Fraction, ...]) -> bool:
        willing = {f"agent_{i}" for i in range(len(d)) if u[i] >= d[i]}
        return len(willing) >= quorum and willing >= set(veto)

    possible = [u for u in points if can_be(u)]
    rational = [u for u in points if all(a >= b for a, b in zip(u, d, strict=True))]
    best = [max([d[i], *(u[i] for u in possible)]) for i in range(len(d))]
    reference = reference_points(spec, seats)
    assert reference.best == tuple(map(float, best))
    frontier = {u for u in points if not any(v != u and all(a >= b for a, b in zip(v, u, strict=True)) for v in points)}
    assert reference.frontier == tuple(sorted(tuple(map(float, u)) for u in frontier))
    assert sum(reference.best_joint) == float(max([sum(d), *map(sum, possible)]))

    def gains(u: tuple[float, ...]) -> list[Fraction]:
        return [Fraction(a) - b for a, b in zip(u, d, strict=True)]

    objectives = {
        "nash": lambda u: math.prod(gains(u)),
        "egalitarian": lambda u: min(gains(u)),
        "kalai_smorodinsky": lambda u: min(
            (g / (b - e) for g, b, e in zip(gains(u), best, d, strict=True) if b > e), default=0
        ),
    }
    for name, objective in objectives.items():
        point, terms = getattr(reference, name), getattr(reference, f"{name}_terms")
        if not rational:
            assert (point, terms) == (tuple(map(float, d)), None)
            continue
        top = max((objective(u), sum(gains(u))) for u in rational)  # type: ignore[arg-type, no-untyped-call]
        assert (objective(point), sum(gains(point))) == top  # type: ignore[no-untyped-call]
        assert exact_payoffs(spec, terms) == point
        first = next(i for i, u in enumerate(points) if u in rational and (objective(u), sum(gains(u))) == top)  # type: ignore
        assert terms == outcomes[first]


def test_shares_efficiency_and_fairness() -> None:
    reference = reference_points(ballot(2), names(2))
    assert reference.best == (2.0, 2.0)
    assert reference.shares((1, -1)) == (0.5, -0.5)
    assert reference.efficiency((2, 2)) == reference.fairness((2, 2)) == 1.0
    assert reference.fairness((2, 1)) == 0.5


def test_the_outcomes_of_claims_are_right_and_none() -> None:
    reference = reference_points(claims(), names(2))
    assert (reference.best, reference.disagreement, reference.size) == ((10.0, 10.0), (0.0, 0.0), 1)


@pytest.mark.parametrize("seats", [2, 3, 5])
def test_a_large_space_takes_a_second(seats: int) -> None:
    names_of_issues = "abcde"
    issues = [{"name": name, "kind": "choice", "options": list("0123456789")} for name in names_of_issues]
    worth = [
        {"issues": {n: {str(v): (v * (7 * s + 3) + ord(n) * (s + 1)) % 31 for v in range(10)} for n in names_of_issues}}
        for s in range(seats)
    ]
    spec = OutcomeSpec.model_validate({"protocol": {"kind": "agreement"}, "issues": issues, "worth": worth})
    start = time.process_time()
    assert reference_points(spec, names(seats)).size == 10**5
    assert time.process_time() - start < 5  # a second on a quiet machine; the benchmark measures it


def test_a_space_too_large_is_refused() -> None:
    spec = trade().model_dump()
    spec["issues"][0]["high"] = 10**6
    with raises(InvalidValueError, field="outcome.issues"):
        reference_points(OutcomeSpec.model_validate(spec), names(2))


def test_own_outcomes_are_ranked_without_the_specification() -> None:
    spec = trade()
    space = spec.space(names(2))
    ranked = own_outcomes(space, spec.worth[1], "agent_1")
    values = [value for _, value in ranked]
    assert len(ranked) == space.size
    assert values == sorted(values, reverse=True)
    assert all(worth_value(spec, 1, terms) == value for terms, value in ranked)


def test_a_large_space_is_ranked_on_a_coarser_grid() -> None:
    spec = trade().model_dump()
    spec["issues"][0]["high"] = 10**6
    large = OutcomeSpec.model_validate(spec)
    ranked = own_outcomes(large.space(names(2)), large.worth[0], "agent_0")
    prices = {terms["price"] for terms, _ in ranked}
    assert 50_000 < len(ranked) <= 100_000
    assert {0, 10**6} <= prices


def test_a_space_beyond_all_counting_is_refused_in_one_sentence() -> None:
    issues = [{"name": f"i{i}", "kind": "number", "low": 0, "high": 10**14} for i in range(400)]
    worth = [{"issues": {issue["name"]: {"per_unit": 1} for issue in issues}}] * 2
    spec = OutcomeSpec.model_validate({"protocol": {"kind": "agreement"}, "issues": issues, "worth": worth})
    with raises(InvalidValueError, field="outcome.issues") as caught:
        reference_points(spec, names(2))
    assert len(str(caught.value)) < 200


def test_exact_where_64_bits_are_too_few() -> None:
    document = trade(3).model_dump(mode="json")
    for seat, worth in enumerate(document["worth"]):
        worth["constant"], worth["no_agreement"] = 10**12, 10**12 - 1e-4
        worth["issues"]["price"]["per_unit"] = 10**-9 * (seat - 1)
        worth["issues"]["firewood"]["each"] = 1e-7
    points = reference_points(OutcomeSpec.model_validate(document), names(3))
    # Whoever gains least by the choice gets what differs in the tenth digit.
    firewood = {"agent_0": 0, "agent_1": 0, "agent_2": 3}
    assert points.nash_terms == {"price": 10, "start": "June 1", "firewood": firewood}
