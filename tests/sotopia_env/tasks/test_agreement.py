"""The machine that closes deals: its rules one by one, with a reader that needs no language."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sotopia_env.tasks.agreement import Accept, Act, AgreementReader, Offer, Reading, Reject, Repeat, Unclear, Withdraw
from sotopia_env.tasks.explicit import ExplicitAct, explicit_acts, read_explicit
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn

AGENTS = ("agent_0", "agent_1")


def read_acts(text: str, action_type: ActionType, actor: str) -> tuple[Act, ...]:
    """``o1,2`` offers a=1, b=2; ``q…`` asks the same; ``a`` accepts, ``a1`` accepts a=1; ``r``, ``w``, ``u``;
    ``s`` spoils, ``p1`` repeats.
    """
    return tuple(_act(word) for word in text.split())


def _terms(word: str) -> dict[str, str]:
    return {key: value for key, value in zip("ab", word.split(","), strict=False) if value != "-"}


def _act(word: str) -> Act:
    match word[0]:
        case "o" | "q":
            return Offer(_terms(word[1:]), word[0] == "q")
        case "a":
            return Accept(_terms(word[1:]) if word[1:] else None)
        case "r":
            return Reject(_terms(word[1:]) if word[1:] else None)
        case "w":
            return Withdraw()
        case "s":
            return Unclear("spoilt", spoils=True)
        case "p":
            return Repeat(_terms(word[1:]))
        case _:
            return Unclear("unclear", _terms(word[1:]) if word[1:] else None)


def said(*lines: str, together: bool = False) -> tuple[Turn, ...]:
    """Turns from lines such as ``"0 o1"``."""
    return tuple(
        Turn(number, number // 2, AGENTS[int(line[0])], Action(ActionType.SPEAK, line[2:]), veiled=together)
        for number, line in enumerate(lines)
    )


ONE = AgreementReader(AGENTS, read_acts, ("a",))
TWO = AgreementReader(AGENTS, read_acts, ("a", "b"))
WHOLE = AgreementReader(AGENTS, read_acts)

RULES = [
    (ONE, ("0 o1", "1 a"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "1 a1"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "1 o1"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "1 q1"), None, None),
    (ONE, ("0 o1", "1 q1 a"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "1 a2"), None, None),
    (ONE, ("0 o1", "1 a2", "0 a"), {"a": "2"}, (1, 2)),
    (ONE, ("0 o1", "0 a"), None, None),
    (ONE, ("0 a", "1 a"), None, None),
    (ONE, ("0 a1", "1 a1"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "0 o2", "1 a"), {"a": "2"}, (1, 2)),
    (ONE, ("0 o1", "0 o2", "1 a1"), None, None),
    (ONE, ("0 o1", "1 o2", "1 a"), {"a": "1"}, (0, 2)),
    (ONE, ("0 o1", "1 r", "1 a"), None, None),
    (ONE, ("0 o1", "1 r2", "1 a"), {"a": "1"}, (0, 2)),
    (ONE, ("0 o1", "1 r1", "1 a"), None, None),
    (ONE, ("0 o1", "0 w", "1 a"), None, None),
    (ONE, ("0 o1", "1 a r"), None, None),
    (ONE, ("0 o1", "1 r a"), None, None),
    (ONE, ("0 o1", "1 a o2"), None, None),
    (ONE, ("0 o1", "1 o2 a"), None, None),
    (ONE, ("0 o1", "1 a u"), None, None),
    (ONE, ("0 o1", "1 u a"), None, None),
    (ONE, ("0 o1", "1 u a1"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1 o2", "1 a"), None, None),
    (ONE, ("0 o1 u2", "1 a"), None, None),
    (ONE, ("0 o1 u1", "1 a"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1 s", "1 a"), None, None),
    (ONE, ("0 o1", "0 o2 s", "1 a"), None, None),
    (ONE, ("0 o1", "1 a s"), None, None),
    (ONE, ("0 o1", "1 a p1"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "1 a p2"), None, None),
    (ONE, ("0 o1", "1 a1 p2"), None, None),
    (ONE, ("0 o1", "1 p1"), None, None),
    (TWO, ("0 o1,2", "1 a p-,2"), {"a": "1", "b": "2"}, (0, 1)),
    (TWO, ("0 o1,2", "1 a p-,3"), None, None),
    (ONE, ("0 o1", "1 a", "0 o2"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "1 a", "0 o2", "1 a"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "1 a", "0 o2", "1 a2"), {"a": "2"}, (2, 3)),
    (ONE, ("0 o1", "1 a", "1 r", "0 r"), {"a": "1"}, (0, 1)),
    (ONE, ("0 o1", "1 a", "0 w"), {"a": "1"}, (0, 1)),
    (TWO, ("0 o1,2", "1 a"), {"a": "1", "b": "2"}, (0, 1)),
    (TWO, ("0 o1", "1 a"), None, None),
    (TWO, ("0 o1", "1 a", "1 o-,2", "0 a"), {"a": "1", "b": "2"}, (2, 3)),
    (TWO, ("0 o1", "1 a1 o-,2", "0 a"), {"a": "1", "b": "2"}, (1, 2)),
    (TWO, ("0 o1", "1 a o-,2", "0 a1,2"), {"a": "1", "b": "2"}, (1, 2)),
    (TWO, ("0 o1", "0 o-,2", "1 a"), {"a": "1", "b": "2"}, (1, 2)),
    (TWO, ("0 o1,2", "1 a1"), None, None),
    (TWO, ("0 o1,2", "1 a1 o-,3"), None, None),
    (TWO, ("0 o1,2", "1 a1 o-,3", "0 a"), {"a": "1", "b": "3"}, (1, 2)),
    (TWO, ("0 o1", "1 a", "1 o3,2", "0 a-,2"), None, None),
    (TWO, ("0 o1,2", "1 a o1"), {"a": "1", "b": "2"}, (0, 1)),
    (WHOLE, ("0 o1", "1 o-,2", "0 a"), {"b": "2"}, (1, 2)),
    (WHOLE, ("0 o1,2", "1 a1"), None, None),
]


@pytest.mark.parametrize(("reader", "lines", "terms", "places"), RULES, ids=[str(row[1]) for row in RULES])
def test_rules(
    reader: AgreementReader, lines: tuple[str, ...], terms: dict[str, str] | None, places: tuple[int, int] | None
) -> None:
    reading = reader.read(said(*lines))
    assert reading.agreed == (terms is not None)
    assert reading.terms == (terms or {})
    assert (reading.offer_turn, reading.assent_turn) == (places or (None, None))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "nobody made an offer"),
        (("0 o1",), "turn 1: the last offer was not accepted"),
        (("0 a",), "turn 1: an acceptance, but no offer stood"),
        (("0 o1", "1 r"), "turn 2: the standing offer was turned down"),
        (("0 o1", "1 u"), "turn 2: unclear"),
        (("0 o1", "1 a2"), "turn 2: an acceptance of other terms than were offered; taken as a counter-offer"),
        (("0 o1", "1 a"), "turn 2 assents to the offer of turn 1"),
        (
            ("0 o1", "1 a", "0 w"),
            "turn 2 assents to the offer of turn 1 (taken back in turn 3, but a closed deal binds)",
        ),
    ],
)
def test_the_reason_is_kept(lines: tuple[str, ...], reason: str) -> None:
    assert ONE.read(said(*lines)).reason == reason


def test_an_open_issue_is_named() -> None:
    assert TWO.read(said("0 o1", "1 a")).reason == "turn 2: agreed on a, but never on b"


def test_standing_and_past_offers_are_told() -> None:
    reading = ONE.read(said("0 o1", "1 o2", "0 o3"))
    assert reading.standing == ({"a": "3"}, {"a": "2"})
    assert reading.offers == (({"a": "1"}, {"a": "3"}), ({"a": "2"},))


def test_in_simultaneous_order_nobody_accepts_what_it_has_not_seen() -> None:
    def together(*lines: str) -> Reading:
        return ONE.read(said(*lines, together=True))

    assert not together("0 o1", "1 a").agreed
    assert not together("0 o1", "1 o1").agreed
    assert together("0 o1", "1 o2", "0 a", "1 u").terms == {"a": "2"}
    assert together("0 o1", "1 u", "0 o3", "1 a").agreed is False  # accepts 1, which 3 has just replaced


WORDS = st.sampled_from(["o1", "o2", "q1", "a", "a1", "a2", "r", "w", "u", "o1,2", "o-,2"])


@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from("01"),
            st.lists(st.sampled_from(["o1", "o2", "q1", "a", "a1", "a2", "r", "w", "u", "o1,2", "o-,2"]), max_size=3),
        ),
        max_size=14,
    )
)
@settings(max_examples=200, deadline=None)
def test_reading_turn_by_turn_equals_reading_at_once(lines: list[tuple[str, list[str]]]) -> None:
    turns = said(*(f"{seat} {' '.join(acts)}" for seat, acts in lines))
    fresh = AgreementReader(AGENTS, read_acts, ("a", "b"))
    readings = [fresh.read(turns[:end]) for end in range(len(turns) + 1)]
    for end, reading in enumerate(readings):
        assert AgreementReader(AGENTS, read_acts, ("a", "b")).read(turns[:end]) == reading
        assert fresh.read(list(turns[:end])) == reading
        _check(reading, turns)


def _check(reading: Reading, turns: tuple[Turn, ...]) -> None:
    """A deal always joins an offer of one side and a later turn of the other."""
    if reading.agreed:
        assert reading.offer_turn is not None
        assert reading.assent_turn is not None
        assert reading.offer_turn < reading.assent_turn
        assert turns[reading.offer_turn].actor != turns[reading.assent_turn].actor
        assert set(reading.terms) == {"a", "b"}
    else:
        assert reading.terms == {}


EXPLICIT = [
    ("offer: price=95", ExplicitAct("offer", {"price": "95"})),
    (" Offer : price = $1,250 .", ExplicitAct("offer", {"price": "$1,250"})),
    ("offer: salary=$110k; start date=July 1", ExplicitAct("offer", {"salary": "$110k", "start date": "July 1"})),
    ("offer: a=1, b=2", ExplicitAct("offer", {"a": "1", "b": "2"})),
    ("accept", ExplicitAct("accept", None)),
    ("Accept.", ExplicitAct("accept", None)),
    ("accept: price=95", ExplicitAct("accept", {"price": "95"})),
    ("reject", ExplicitAct("reject", None)),
    ("withdraw!", ExplicitAct("withdraw", None)),
    ('{"offer": {"price": 95}}', ExplicitAct("offer", {"price": 95})),
    ('{"accept": true}', ExplicitAct("accept", None)),
    ('{"accept": null}', ExplicitAct("accept", None)),
    ("offer", None),
    ("offer: 95", None),
    ("offer: price=95, price=96", None),
    ("I accept", None),
    ("accept this", None),
    ("please offer: price=95", None),
    ('{"offer": true}', None),
    ('{"accept": false}', None),
    ('{"offer": {"price": 95}, "accept": true}', None),
    ('{"buy": {"price": 95}}', None),
    ("{", None),
    ("[" * 3000 + "}", None),
]


@pytest.mark.parametrize(("text", "act"), EXPLICIT, ids=[row[0][:40] for row in EXPLICIT])
def test_the_explicit_form(text: str, act: ExplicitAct | None) -> None:
    assert read_explicit(text) == act


def test_explicit_values_that_are_no_terms_are_unclear() -> None:
    assert explicit_acts("accept: price=cheap", lambda values: None) == (
        Unclear("an explicit act whose values are no terms of this task"),
    )
    assert explicit_acts("reject", lambda values: None) == (Reject(),)
    assert explicit_acts("withdraw", lambda values: None) == (Withdraw(),)
    assert explicit_acts("hello", lambda values: None) is None
