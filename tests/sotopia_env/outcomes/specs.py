"""Specifications for the tests of outcomes."""

import math
from typing import Any

from sotopia_env.outcomes import OutcomeSpec

PEOPLE = ("Ana", "Ben", "Cleo", "Dan", "Eva")


def names(seats: int) -> dict[str, str]:
    return {f"agent_{seat}": PEOPLE[seat] for seat in range(seats)}


def trade(seats: int = 2, **protocol: Any) -> OutcomeSpec:
    issues = [
        {"name": "price", "kind": "number", "low": 0, "high": 10, "step": 1, "unit": "$"},
        {"name": "start", "kind": "choice", "options": ["June 1", "June 15"]},
        {"name": "firewood", "kind": "items", "count": 3},
    ]
    worth = [
        {
            "constant": 3 * seat,
            "issues": {
                "price": {"per_unit": math.copysign(1 + seat, seat - 1)},
                "start": {"June 1": 4 - seat, "June 15": seat},
                "firewood": {"each": 2 + seat},
            },
            "no_agreement": 2,
        }
        for seat in range(seats)
    ]
    return OutcomeSpec.model_validate({"protocol": {"kind": "agreement", **protocol}, "issues": issues, "worth": worth})


def price(seats: int = 2, **protocol: Any) -> OutcomeSpec:
    return OutcomeSpec.model_validate(
        {
            "protocol": {"kind": "agreement", **protocol},
            "issues": [{"name": "price", "kind": "number", "low": 0, "high": 4, "unit": "$"}],
            "worth": [{"issues": {"price": {"per_unit": seat}}} for seat in range(seats)],
        }
    )


def ballot(seats: int = 3, **protocol: Any) -> OutcomeSpec:
    worth = [{"options": {"museum": seat, "park": 2, "zoo": -seat}, "no_decision": 0} for seat in range(seats)]
    return OutcomeSpec.model_validate(
        {"protocol": {"kind": "ballot", "options": ["museum", "park", "zoo"], **protocol}, "worth": worth}
    )


def claims(seats: int = 2, **protocol: Any) -> OutcomeSpec:
    rules = {"kind": "claims", "candidates": ["Ana Lee", "Bo Ek", "Çem"], "answer": "Ana Lee", **protocol}
    return OutcomeSpec.model_validate({"protocol": rules, "worth": [{"right": 10, "wrong": -2, "none": 0}] * seats})
