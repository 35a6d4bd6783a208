"""All protocols: what the menu offers is accepted, everything else is refused, and settled is final."""

import pickle
import random
from typing import Any

import jsonschema
import pytest

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.outcomes import InvalidMoveError, Move, MoveKind, OutcomeSpec
from sotopia_env.outcomes.move import read_move
from sotopia_env.outcomes.protocols.making import make_protocol
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from tests.errors import raises

from .specs import ballot, claims, names, price, trade

QUORUM = {"needs": {"quorum": 2, "veto": ["agent_1"]}}
SPECS: dict[str, OutcomeSpec] = {
    "trade": trade(),
    "trade of 3": trade(3),
    "price": price(),
    "price, latest": price(3, standing="latest"),
    "price, quorum": price(4, **QUORUM),
    "price, quorum, latest": price(5, standing="latest", needs={"quorum": 3}),
    "plurality": ballot(),
    "majority": ballot(5, rule="majority"),
    "secret unanimity": ballot(2, rule="unanimity", secret=True),
    "claims": claims(tries=2),
    "public claims": claims(3, tries=3, shown=True),
    "any claim": claims(3, needs="any"),
}


def every_move(protocol: AnyProtocol) -> list[Move]:
    """Everything that could be a move, in normal form."""
    numbers: list[Any] = [*range(1, 8), True]
    moves = [Move(kind, n) for kind in (MoveKind.ACCEPT, MoveKind.REJECT, MoveKind.WITHDRAW) for n in numbers]
    moves += [Move(MoveKind.VOTE, option) for option in ("museum", "park", "zoo", "moon", None)]
    moves += [Move(MoveKind.CLAIM, text) for text in ("Ana Lee", "Bo Ek", "Nobody")]
    return [*moves, Move(MoveKind.PROPOSE, {"price": 1}), Move(MoveKind.PROPOSE, {"price": 99})]


def is_open(protocol: AnyProtocol, menu: Any, move: Move) -> bool:
    if move.kind in (MoveKind.ACCEPT, MoveKind.REJECT, MoveKind.WITHDRAW):
        numbers = getattr(menu, move.kind.value)
        return len(numbers) == 1 if move.content is True else move.content in numbers
    if move.kind is MoveKind.VOTE:
        return menu.unvote if move.content is None else move.content in menu.vote
    if move.kind is MoveKind.CLAIM:
        return menu.claim and (not menu.candidates or move.content in menu.candidates)
    return menu.propose and protocol.space.issues[-1].name == "price" and move.content == {"price": 1}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("seed", range(12))
def test_exactly_what_the_menu_offers_is_open(spec: OutcomeSpec, seed: int) -> None:
    rng = random.Random(seed)
    protocol = make_protocol(spec, names(len(spec.worth)))
    state = protocol.initial()
    for _ in range(40):
        seat = rng.choice(protocol.agents)
        menu, before = protocol.menu(state, seat), pickle.dumps(state)
        for move in every_move(protocol):
            if not is_open(protocol, menu, move):
                with pytest.raises(InvalidMoveError):
                    protocol.apply(state, seat, move)
                continue
            after, effect = protocol.apply(state, seat, move)
            assert protocol.apply(state, seat, effect.move) == (after, effect)
            assert "\n" not in effect.text
        assert pickle.dumps(state) == before
        if rng.random() < 0.05:
            state = protocol.leave(state, seat)
        elif (sample := menu.sample(rng)) is not None:
            jsonschema.validate(sample.to_json(), menu.json_schema())
            state, _ = protocol.apply(state, seat, read_move(sample.to_json()))
        check_views(protocol, state)
        if protocol.settled(state):
            check_final(protocol, state)
            return


def check_views(protocol: AnyProtocol, state: Any) -> None:
    for seat in (*protocol.agents, None):
        table = protocol.table(state, seat)
        assert table.text
        assert table.to_json()["settled"] == protocol.settled(state)
    for seat in protocol.agents:
        menu = protocol.menu(state, seat)
        assert bool(menu) == (menu.text != "No move is open.") == bool(menu.choices())
        for _, move in menu.choices():
            if move is not None:
                protocol.apply(state, seat, move)


def check_final(protocol: AnyProtocol, state: Any) -> None:
    outcome = protocol.outcome(state)
    for seat in protocol.agents:
        assert not protocol.menu(state, seat)
        for move in every_move(protocol):
            with pytest.raises(InvalidMoveError):
                protocol.apply(state, seat, move)
        assert protocol.outcome(protocol.leave(state, seat)) == outcome
    assert len(protocol.payoffs(state, 3)) == len(protocol.agents)


@pytest.mark.parametrize("spec", [s for k, s in SPECS.items() if "price" in k or "trade" in k])
@pytest.mark.parametrize("seed", range(20))
def test_an_agreement_needs_the_moves_of_the_seats_themselves(spec: OutcomeSpec, seed: int) -> None:
    rng = random.Random(seed)
    protocol = make_protocol(spec, names(len(spec.worth)))
    state, moves = protocol.initial(), set()
    for _ in range(60):
        basis = state
        for seat in protocol.agents:  # simultaneous rounds
            move = protocol.menu(basis, seat).sample(rng)
            if move is None:
                continue
            try:
                after, effect = protocol.apply(state, seat, move, None, basis)
            except InvalidMoveError:
                continue
            terms = effect.move.content if move.kind is MoveKind.PROPOSE else None
            if move.kind is MoveKind.ACCEPT:
                terms = next(offer.terms for offer in state.offers if offer.number == move.content)
            moves |= {(seat, protocol.space.key(terms))} if terms else set()
            state = after
    outcome = protocol.outcome(state)
    if outcome.decided:
        assert {(seat, protocol.space.key(outcome.terms)) for seat in outcome.assents} <= moves
        needs = spec.protocol.needs  # type: ignore[union-attr]
        required = protocol.agents if needs == "all" else needs.veto  # type: ignore[union-attr]
        assert set(required) <= set(outcome.assents)
        assert len(outcome.assents) >= (len(protocol.agents) if needs == "all" else needs.quorum)  # type: ignore


def test_a_protocol_is_for_its_number_of_seats() -> None:
    with raises(InvalidValueError, field="outcome.worth", got=2):
        make_protocol(trade(2), names(3))


def test_an_unknown_seat_is_a_misuse() -> None:
    protocol = make_protocol(trade(2), names(2))
    with raises(InvalidValueError, field="seat", nearest="agent_1"):
        protocol.apply(protocol.initial(), "agent_7", Move(MoveKind.ACCEPT, 1))


@pytest.mark.parametrize("grid", [{"low": 5, "high": 15, "step": 10}, {"low": 0, "high": 1000, "step": 5}])
def test_the_schema_admits_the_grid_only(grid: dict[str, int]) -> None:
    spec = OutcomeSpec.model_validate(
        {
            "protocol": {"kind": "agreement"},
            "issues": [{"name": "price", "kind": "number", **grid}],
            "worth": [{"issues": {"price": {"per_unit": 1}}}] * 2,
        }
    )
    protocol = make_protocol(spec, names(2))
    schema = protocol.menu(protocol.initial(), "agent_0").json_schema()
    jsonschema.validate({"propose": {"price": 15}}, schema)
    for value in (6, "15", 2000, None):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"propose": {"price": value}}, schema)
