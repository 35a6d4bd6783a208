"""The best use of a stock over several rounds, by dynamic programming over its levels."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache

from sotopia_env.foundation.json_text import decode_json
from sotopia_env.outcomes.games.payoffs import AmountsWorth
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.outcomes.valuation import WorthForm, exact_decimal

Value = tuple[Fraction, Fraction]
"""The payoff of one seat, and of all together."""


def best_uses(rules: ChoicesRules, worth: WorthForm, seats: int) -> tuple[float, float, float]:
    """Returns the best total of one seat whatever it costs the others, the best total of all, and that of no choice.

    Args:
        rules: of a game with a stock.
        worth: of every seat, by its own amount and the total.
        seats: the number of seats.
    """
    # Tasks of a family differ in names and words, and have the same stock.
    part = ChoicesRules(amounts=rules.amounts, rounds=rules.rounds, stock=rules.stock)
    own, joint = _best(part.model_dump_json(), worth.model_dump_json(), seats)
    return own, joint, worth.disagreement * rules.rounds


@lru_cache(maxsize=64)
def _best(rules_text: str, worth_text: str, seats: int) -> tuple[float, float]:
    rules = ChoicesRules.model_validate(decode_json(rules_text))
    worth = AmountsWorth.model_validate(decode_json(worth_text))
    own = _solved(rules, worth, seats, lambda value: (value[0], value[1]))[0]
    joint = _solved(rules, worth, seats, lambda value: (value[1], value[0]))[1]
    return float(own), float(joint)


def _solved(rules: ChoicesRules, worth: AmountsWorth, seats: int, rank: Callable[[Value], Value]) -> Value:
    """The payoffs of the use of the stock that ranks first; the seat's own amount against the sum of the others'."""
    stock, options = rules.stock, [Fraction(option) for option in rules.shared]
    assert stock is not None
    sums = _sums(options, seats - 1)

    @cache
    def ahead(level: Fraction, left: int) -> Value:
        if not left or (stock.flow == "take" and not level):
            prize = Fraction(0)
            if stock.goal is not None and level >= exact_decimal(stock.goal):
                prize = Fraction(exact_decimal(stock.prize))
            return prize, prize * seats
        return max((step(level, left, own, others) for own in options for others in sums), key=rank)

    def step(level: Fraction, left: int, own: Fraction, others: Fraction) -> Value:
        received = stock.received(level, [own, others])
        # The payoff is linear, so what the others get follows from their sum.
        gain = worth.gain_of(0, received)
        rest = _rest(worth, received, seats)
        value = ahead(stock.after(level, sum(received, Fraction(0))), left - 1)
        return gain + value[0], gain + rest + value[1]

    return ahead(Fraction(exact_decimal(stock.start)), rules.rounds)


def _rest(worth: AmountsWorth, received: list[Fraction], seats: int) -> Fraction:
    """What all other seats get together."""
    own, total = (Fraction(exact_decimal(worth.per.get(name, 0.0))) for name in ("own", "total"))
    constant = Fraction(exact_decimal(worth.constant))
    return (seats - 1) * (constant + total * sum(received, Fraction(0))) + own * received[1]


def _sums(options: list[Fraction], seats: int) -> list[Fraction]:
    """Every amount that so many seats can choose together."""
    sums = {Fraction(0)}
    for _ in range(seats):
        sums = {total + option for total in sums for option in options}
    return sorted(sums)
