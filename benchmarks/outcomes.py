"""The cost of a protocol by itself: a turn of a price agreement, reference points, a round of 150 votes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Figure, cpu_rounds
from sotopia_env.outcomes import Move, MoveKind, OutcomeSpec, reference_points
from sotopia_env.outcomes.protocols.making import make_protocol
from sotopia_env.outcomes.protocols.protocol import AnyProtocol

TURNS, SEATS = 20, 150
ISSUES = 5
OPTIONS = tuple("0123456789")
PRICE = {"name": "price", "kind": "number", "low": 0, "high": 394, "step": 1, "unit": "$"}
START = {"name": "start", "kind": "choice", "options": ["June 1", "June 15"]}
WOOD = {"name": "firewood", "kind": "items", "count": 3}
GAINS = {"price": {"per_unit": -1}, "start": {"June 1": 4, "June 15": 1}, "firewood": {"each": 5}}


def names(seats: int) -> dict[str, str]:
    """Agent ids with names."""
    return {f"agent_{seat}": f"Guest {seat}" for seat in range(seats)}


def agreement(*issues: dict[str, Any]) -> AnyProtocol:
    """An agreement of two seats about ``issues``."""
    worth = [{"constant": 186, "issues": {issue["name"]: GAINS[issue["name"]] for issue in issues}}] * 2
    spec = {"protocol": {"kind": "agreement"}, "issues": issues, "worth": worth}
    return make_protocol(OutcomeSpec.model_validate(spec), names(2))


def negotiation(protocol: AnyProtocol) -> Callable[[], int]:
    """Episodes of alternating counter-offers, the last of which is accepted: menu, apply and settled on every turn."""
    rng = random.Random(1)

    def episode() -> int:
        state = protocol.initial()
        for turn, move in enumerate(moves):
            seat = protocol.agents[turn % 2]
            protocol.menu(state, seat)
            state, _ = protocol.apply(state, seat, move)
            if protocol.settled(state) != (turn == TURNS - 1):
                raise RuntimeError(f"settled after turn {turn + 1}")
        return TURNS

    # Offers are never answered but the last, whose number is that of the turn.
    offers = [protocol.space.draw(rng) for _ in range(TURNS - 1)]
    moves = [*(Move(MoveKind.PROPOSE, terms) for terms in offers), Move(MoveKind.ACCEPT, TURNS - 1)]
    return episode


def conflict(seats: int) -> OutcomeSpec:
    """10⁵ outcomes over five choices whose gains add up to the same for every option: nearly all are optimal."""
    rng = random.Random(seats)
    tables: list[dict[str, dict[str, int]]] = [{} for _ in range(seats)]
    for issue in "abcde"[:ISSUES]:
        for option in OPTIONS:
            gains = [rng.randrange(10**6) for _ in range(seats - 1)]
            # The last seat's gain makes the sum constant: more for one seat is always less for another.
            for table, gain in zip(tables, [*gains, seats * 10**6 - sum(gains)], strict=True):
                table.setdefault(issue, {})[option] = gain
    issues = [{"name": issue, "kind": "choice", "options": OPTIONS} for issue in tables[0]]
    worth = [{"issues": table} for table in tables]
    return OutcomeSpec.model_validate({"protocol": {"kind": "agreement"}, "issues": issues, "worth": worth})


def reference_seconds(seats: int) -> float:
    """CPU seconds for the reference points of 10⁵ outcomes; best of three."""
    spec, times = conflict(seats), []
    for _ in range(3):
        start = time.process_time()
        points = reference_points(spec, names(seats))
        times.append(time.process_time() - start)
        if points.size != len(OPTIONS) ** ISSUES:
            raise RuntimeError(f"expected {len(OPTIONS) ** ISSUES} outcomes, got {points.size}")
    return min(times)


def votes() -> Callable[[], int]:
    """Rounds in which 150 seats look at table and menu and vote."""
    worth = [{"options": dict.fromkeys("abc", 1)}] * SEATS
    spec = {"protocol": {"kind": "ballot", "options": list("abc")}, "worth": worth}
    protocol = make_protocol(OutcomeSpec.model_validate(spec), names(SEATS))

    def round_() -> int:
        state = protocol.initial()
        for seat, agent in enumerate(protocol.agents):
            protocol.table(state, agent)
            protocol.menu(state, agent)
            state, _ = protocol.apply(state, agent, Move(MoveKind.VOTE, "abc"[seat % 3]))
        if not protocol.settled(state):
            raise RuntimeError("a round of votes did not close the ballot")
        return 1

    return round_


def figures() -> list[Figure]:
    """The protocol's own share of a turn, reference points for two to five seats, and a round of 150 votes."""
    cost = cpu_rounds(
        {
            "price": negotiation(agreement(PRICE)),
            "three issues": negotiation(agreement(PRICE, START, WOOD)),
            "votes": votes(),
        }
    )
    return [
        Figure("protocol, price alone: menu, move and settled, a turn", cost["price"], "µs", 5),
        Figure("protocol, three issues: the same", cost["three issues"], "µs", 10),
        *(
            Figure(f"reference points, 10⁵ outcomes in conflict, {seats} seats", reference_seconds(seats), "s", 1)
            for seats in (2, 3, 4, 5)
        ),
        Figure("150 seats: a round of votes with tables and menus", cost["votes"] / 1000, "ms", 25),
    ]
