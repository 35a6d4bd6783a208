"""Properties of every protocol over drawn moves: private offers, quorum and veto, rounds, leavers, secrets."""

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sotopia_env.outcomes import InvalidMoveError, Move, MoveKind, OutcomeSpec
from sotopia_env.outcomes.move import read_move
from sotopia_env.outcomes.protocols.making import make_protocol
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from tests.errors import raises

from .specs import ballot, claims, names, price, trade

PRICES = (0, 1, 4)
POOL: list[Any] = [
    *({"propose": {"price": value}} for value in (*PRICES, 99)),
    *({kind: number} for kind in ("accept", "reject", "withdraw") for number in (*range(1, 6), True)),
    *({"vote": option} for option in ("museum", "park", "zoo", "moon", None)),
    *({"claim": claim} for claim in ("Ana Lee", "Bo Ek", "Çem", "Nobody")),
]
MOVES = [read_move(document) for document in POOL]
KINDS = {"agreement": MOVES[:22], "ballot": MOVES[22:27], "claims": MOVES[27:]}


@st.composite
def protocols(draw: Any, *kinds: str) -> AnyProtocol:
    seats, kind = draw(st.integers(2, 5)), draw(st.sampled_from(kinds or tuple(KINDS)))
    if kind == "agreement":
        quorum = {"quorum": draw(st.integers(2, seats)), "veto": draw(st.sampled_from([[], ["agent_1"]]))}
        rules = {"needs": draw(st.sampled_from(["all", quorum])), "standing": draw(st.sampled_from(["own", "latest"]))}
        return make_protocol(price(seats, **rules), names(seats))
    if kind == "ballot":
        rule = draw(st.sampled_from(["plurality", "majority", "unanimity"]))
        return make_protocol(ballot(seats, rule=rule, secret=draw(st.booleans())), names(seats))
    rules = {"needs": draw(st.sampled_from(["all", "any"])), "tries": draw(st.integers(1, 3))}
    return make_protocol(claims(seats, shown=draw(st.booleans()), **rules), names(seats))


SEEDS = st.integers(0, 2**32)


class Play:
    """Plays drawn acts; ``after`` looks at the state before and after each of them."""

    def __init__(self, protocol: AnyProtocol, seed: int) -> None:
        self.protocol, self.rng = protocol, random.Random(seed)
        self.state = protocol.initial()

    def acts(self, count: int) -> list[tuple[str, Move | None, list[str] | None, bool]]:
        """(seat, move or ``None`` to leave, who sees it, whether it opens a simultaneous round)."""
        agents, rng = self.protocol.agents, self.rng
        acts: list[tuple[str, Move | None, list[str] | None, bool]] = []
        for _ in range(count):
            audience = rng.sample(agents, rng.randint(1, len(agents))) if rng.random() < 0.4 else None
            # Other protocols' moves are rare here; answers are as frequent as offers.
            moves = KINDS[self.protocol.kind] if rng.random() < 0.95 else MOVES
            move = None if rng.random() < 0.03 else rng.choice(moves[: 3 if rng.random() < 0.4 else None])
            acts.append((rng.choice(agents), move, audience, rng.random() < 0.5))
        return acts

    def act(self, seat: str, move: Move | None, audience: list[str] | None, basis: Any = None) -> str:
        """Applies one act; returns its line, or why it was refused."""
        if move is None:
            self.state = self.protocol.leave(self.state, seat)
            return "leaves"
        try:
            self.state, effect = self.protocol.apply(self.state, seat, move, audience, basis)
        except InvalidMoveError as error:
            return f"refused: {error}"
        return effect.text


def is_open(protocol: AnyProtocol, menu: Any, move: Move) -> bool:
    if move.kind in (MoveKind.ACCEPT, MoveKind.REJECT, MoveKind.WITHDRAW):
        numbers = getattr(menu, move.kind.value)
        return len(numbers) == 1 if move.content is True else move.content in numbers
    if move.kind is MoveKind.VOTE:
        return menu.unvote if move.content is None else move.content in menu.vote
    if move.kind is MoveKind.CLAIM:
        return menu.claim and (not menu.candidates or move.content in menu.candidates)
    return menu.propose and move.content["price"] in PRICES


@given(protocol=protocols(), seed=SEEDS)
@settings(max_examples=60)
def test_the_menu_is_exactly_what_apply_accepts(protocol: AnyProtocol, seed: int) -> None:
    play = Play(protocol, seed)
    for seat, proposal, audience, _ in play.acts(12):
        play.act(seat, proposal, audience)
        before = pickle.dumps(play.state)
        menu = protocol.menu(play.state, seat)
        for move in MOVES:
            if not is_open(protocol, menu, move):
                with pytest.raises(InvalidMoveError):
                    protocol.apply(play.state, seat, move)
                continue
            after, effect = protocol.apply(play.state, seat, move)
            assert protocol.apply(play.state, seat, effect.move) == (after, effect)
        assert pickle.dumps(play.state) == before
        assert pickle.loads(before) == play.state


@given(protocol=protocols(), seed=SEEDS)
@settings(max_examples=150)
def test_settled_is_final_and_leaving_twice_is_leaving_once(protocol: AnyProtocol, seed: int) -> None:
    play, result, settled = Play(protocol, seed), None, False
    basis = play.state
    for seat, move, audience, opens in play.acts(40):
        basis = play.state if opens else basis
        before, outcome = play.state, protocol.outcome(play.state)
        line = play.act(seat, move, audience, basis)
        assert not line.startswith("refused") or play.state is before
        if settled:
            assert (protocol.settled(play.state), outcome) == (True, result)
            assert move is None or line.startswith("refused")
            assert not any(protocol.menu(play.state, agent) for agent in protocol.agents)
        once = protocol.leave(play.state, seat)
        assert protocol.leave(once, seat) == once
        assert not protocol.menu(once, seat)
        if protocol.settled(play.state) and not settled:
            settled, result = True, protocol.outcome(play.state)


@given(protocol=protocols("agreement"), seed=SEEDS)
@settings(max_examples=250)
def test_a_seat_is_bound_by_its_own_moves_only(protocol: AnyProtocol, seed: int) -> None:
    play = Play(protocol, seed)
    bound: set[tuple[str, int]] = set()  # seat and price, from the effects alone
    prices: dict[int, int] = {}
    basis = play.state
    for seat, move, audience, opens in play.acts(40):
        basis = play.state if opens else basis
        last = play.state.last
        line = play.act(seat, move, audience, basis)
        if move is None:
            bound = {(agent, value) for agent, value in bound if agent != seat or protocol.settled(play.state)}
        elif line.startswith("refused"):
            continue
        elif move.kind is MoveKind.PROPOSE:
            bound.add((seat, move.content["price"]))
            if play.state.last > last:
                prices[play.state.last] = move.content["price"]
        elif move.kind is MoveKind.ACCEPT:
            bound.add((seat, prices[int(line.split("#")[1].split()[0])]))
    outcome = protocol.outcome(play.state)
    if outcome.decided:
        assert {(seat, outcome.terms["price"]) for seat in outcome.assents} <= bound
        assert protocol.required <= set(outcome.assents)
        assert len(outcome.assents) >= protocol.quorum


def views(protocol: AnyProtocol, state: Any, seat: str) -> tuple[Any, ...]:
    """Everything that ``seat`` can learn of ``state``: table, menu, and the prospect of each move."""
    table, menu = protocol.table(state, seat), protocol.menu(state, seat)
    lines = []
    for move in MOVES:
        try:
            lines.append(protocol.apply(state, seat, move)[1].text)
        except InvalidMoveError as error:
            lines.append(str(error))
    return table, table.text, table.to_json(), repr(table), menu, repr(menu), menu.text, menu.json_schema(), lines


def check_secrets(protocol: AnyProtocol, seed: int, hidden: Callable[[Any], Any]) -> None:
    """Two worlds that differ only in what the last seat may not see are one to it."""
    play, other, viewer = Play(protocol, seed), Play(protocol, seed), protocol.agents[-1]
    basis = other_basis = play.state
    for seat, move, audience, opens in play.acts(25):
        if opens:
            basis, other_basis = play.state, other.state
        unseen = seat != viewer and move is not None and _is_hidden(protocol, play.state, audience, viewer)
        line = play.act(seat, move, audience, basis)
        other_line = other.act(seat, hidden(move) if unseen else move, audience, other_basis)
        assert line == other_line or unseen or seat != viewer
        if protocol.kind == "agreement" or not protocol.settled(play.state):
            assert views(protocol, play.state, viewer) == views(protocol, other.state, viewer)


def _is_hidden(protocol: AnyProtocol, state: Any, audience: list[str] | None, viewer: str) -> bool:
    if protocol.kind != "agreement":
        return True
    # Quiet words to all who are left count as public ones: a world in which they differ can end otherwise.
    return audience is not None and viewer not in audience and viewer not in state.absent


def _mirrored(move: Move) -> Move:
    if move.kind is MoveKind.PROPOSE and move.content["price"] in PRICES:
        return Move(MoveKind.PROPOSE, {"price": 4 - move.content["price"]})
    if move.kind is MoveKind.VOTE:
        return Move(MoveKind.VOTE, {"museum": "zoo", "zoo": "park", "park": "museum"}.get(move.content, move.content))
    if move.kind is MoveKind.CLAIM:
        return Move(MoveKind.CLAIM, {"Bo Ek": "Çem", "Çem": "Bo Ek"}.get(move.content, move.content))
    return move


SECRETS = {
    "own": price(4, needs={"quorum": 3}),
    "latest": price(3, needs={"quorum": 2}, standing="latest"),
    "veto": price(5, needs={"quorum": 2, "veto": ["agent_1"]}),
    "secret ballot": ballot(4, secret=True),
    "claims": claims(3, tries=3),
}


@pytest.mark.parametrize("spec", SECRETS.values(), ids=SECRETS)
def test_a_seat_learns_nothing_of_what_is_hidden_from_it(spec: OutcomeSpec) -> None:
    protocol = make_protocol(spec, names(len(spec.worth)))
    for seed in range(40):
        check_secrets(protocol, seed, _mirrored)


def test_whether_a_claim_was_right_is_hidden_from_others() -> None:
    protocol = make_protocol(claims(3, tries=2), names(3))
    states = [
        protocol.apply(protocol.initial(), "agent_0", Move(MoveKind.CLAIM, text))[0] for text in ("Ana Lee", "Bo Ek")
    ]
    assert views(protocol, states[0], "agent_1") == views(protocol, states[1], "agent_1")
    assert views(protocol, states[0], "agent_0") != views(protocol, states[1], "agent_0")


def test_a_seat_that_left_sees_no_later_offer() -> None:
    protocol = make_protocol(price(3, needs={"quorum": 2}), names(3))
    state = protocol.leave(protocol.initial(), "agent_2")
    state, _ = protocol.apply(state, "agent_0", Move(MoveKind.PROPOSE, {"price": 1}), ["agent_1"])
    assert protocol.table(state, "agent_2").text == "Nothing is on the table."
    state, _ = protocol.apply(state, "agent_1", Move(MoveKind.ACCEPT, 1), ["agent_0"])
    assert protocol.table(state, "agent_2").text == "Others have come to an agreement."


def test_the_number_of_a_hidden_offer_is_a_gap_and_nothing_else() -> None:
    protocol = make_protocol(price(3, needs={"quorum": 2}), names(3))
    state, _ = protocol.apply(protocol.initial(), "agent_0", Move(MoveKind.PROPOSE, {"price": 1}), ["agent_1"])
    public, effect = protocol.apply(state, "agent_1", Move(MoveKind.PROPOSE, {"price": 2}))
    assert effect.text == "offers (#2): price $2"
    assert protocol.table(state, "agent_2").text == "Nothing is on the table."
    assert protocol.menu(public, "agent_2").accept == (2,)
    with raises(InvalidMoveError, field="accept"):
        protocol.apply(public, "agent_2", Move(MoveKind.ACCEPT, 1))


def rubbish(rng: random.Random, depth: int = 0) -> Any:
    scalars = [None, True, -1, 0.5, float("nan"), 10**400, "", "x" * 3000, "\ud800", "84 €", b"x", "Ana", "1,2"]
    if depth > 3 or rng.random() < 0.5:
        return rng.choice(scalars)
    values = [rubbish(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    keys = ["price", "start", "firewood", "propose", "accept", "vote", "Ana", "x" * 200, ""]
    return values if rng.random() < 0.3 else {rng.choice(keys): value for value in values}


def test_ten_thousand_rubbish_values_are_refused() -> None:
    rng, space = random.Random(1), trade().space(names(2))
    legal, reasons = 0, set()
    for _ in range(10_000):
        value = rubbish(rng)
        with pytest.raises(InvalidMoveError):
            space.normalise({"price": value, "start": rubbish(rng), "firewood": value} if rng.random() < 0.5 else value)
        try:
            legal += read_move(value) is not None
        except InvalidMoveError as error:
            reasons.add(str(error))
    assert legal < 500
    assert all(10 < len(reason) < 500 and reason.encode() for reason in reasons)
