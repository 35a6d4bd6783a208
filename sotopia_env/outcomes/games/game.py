"""A game of choices as its seats know it: options, payoffs of profiles, and the option that serves or punishes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from sotopia_env.outcomes.games.payoffs import AmountsWorth, GameWorth, amount_of
from sotopia_env.outcomes.games.rules import ChoicesRules
from sotopia_env.outcomes.valuation import WorthForm, exact_decimal

Row = tuple[str, ...]
"""The option of every seat, in seat order."""
_MOST_TRIED = 4_096
"""The number of combinations of the others' choices from which on only equal choices of all others are tried."""


def game_of(rules: ChoicesRules, worths: Sequence[WorthForm]) -> Game:
    """Returns a game with the payoffs of all its seats."""
    game_worths = tuple([worth for worth in worths if isinstance(worth, GameWorth)])
    return Game(rules.public, tuple(f"agent_{seat}" for seat in range(len(worths))), game_worths)


@dataclass(frozen=True, eq=False)  # a key of caches by identity: rules hold mappings and cannot be hashed
class Game:
    """A game with the payoffs that its reader knows.

    Attributes:
        rules: the rules.
        agents: agent ids in seat order.
        worths: the payoffs of a round to each seat; ``None`` where they are not known.
    """

    rules: ChoicesRules
    agents: tuple[str, ...]
    worths: tuple[GameWorth | None, ...]

    def seen_by(self, seat: int) -> Game:
        """Returns the game with the payoffs of one seat alone."""
        return Game(self.rules, self.agents, tuple(w if n == seat else None for n, w in enumerate(self.worths)))

    @cached_property
    def options(self) -> tuple[Row, ...]:
        """The options of each seat, without that of delegating."""
        return tuple(self.rules.options_of(agent) for agent in self.agents)

    def profiles(self) -> Iterator[Row]:
        """Every combination of choices; the last seat's varies fastest."""
        return itertools.product(*self.options)

    def gain(self, seat: int, profile: Sequence[str]) -> Fraction:
        """Returns the payoff of a round to a seat whose payoffs are known; with a stock, as long as it lasts."""
        worth = self.worths[seat]
        assert worth is not None, "the payoffs of this seat are not open"
        return worth.gain(seat, self.rules.played(profile))

    def welfare(self, profile: Sequence[str]) -> Fraction:
        """Returns the sum of the payoffs that are known; with a stock, over all rounds in which all choose alike."""
        seats = [seat for seat, worth in enumerate(self.worths) if worth is not None]
        if self.rules.stock is None:
            return sum((self.gain(seat, profile) for seat in seats), Fraction(0))
        return sum((self._drawn(seat, profile) for seat in seats), Fraction(0))

    def _drawn(self, seat: int, profile: Sequence[str]) -> Fraction:
        stock, worth, total = self.rules.stock, self.worths[seat], Fraction(0)
        assert stock is not None
        assert isinstance(worth, AmountsWorth)
        level = Fraction(exact_decimal(stock.start))
        for _ in range(self.rules.rounds):
            amounts = stock.received(level, [amount_of(option) for option in profile])
            total += worth.gain_of(seat, amounts)
            level = stock.after(level, sum(amounts, Fraction(0)))
        if stock.goal is not None and level >= exact_decimal(stock.goal):
            total += Fraction(exact_decimal(stock.prize))
        return total

    def tried(self, seat: int, option: str) -> Iterator[Row]:
        """Yields profiles in which ``seat`` chooses ``option``: all, or where they are too many, with equal others."""
        others = [own for number, own in enumerate(self.options) if number != seat]
        size = 1
        for own in others:
            size *= len(own)
        if size <= _MOST_TRIED and self.rules.stock is None:
            rows: Iterator[Row] = itertools.product(*others)
        else:
            rows = ((other,) * len(others) for other in others[0])
        for row in rows:
            yield (*row[:seat], option, *row[seat:])

    @cached_property
    def cooperation(self) -> Row:
        """The profile that is best for all together, and of several the one in which the worst seat gets most.

        Of all profiles where these are few, and otherwise of those in which all choose alike.
        """
        size = 1
        for own in self.options:
            size *= len(own)
        if size <= _MOST_TRIED and self.rules.stock is None:
            return max(self.profiles(), key=self._merit)
        return max(((option,) * len(self.agents) for option in self.options[0]), key=self.welfare)

    def _merit(self, profile: Row) -> tuple[Fraction, Fraction]:
        gains = [self.gain(seat, profile) for seat, worth in enumerate(self.worths) if worth is not None]
        return sum(gains, Fraction(0)), min(gains)

    @cached_property
    def _punishments(self) -> dict[int, str]:
        return {}

    def punishment(self, seat: int) -> str:
        """Returns the option of ``seat`` with which the others can get least, whatever they do."""
        if seat not in self._punishments:
            self._punishments[seat] = min(self.options[seat], key=lambda option: self._most_left(seat, option))
        return self._punishments[seat]

    def _most_left(self, seat: int, option: str) -> Fraction:
        others = [other for other, worth in enumerate(self.worths) if worth is not None and other != seat]
        if not others or self.rules.stock is not None:
            # With a stock, taking most leaves least.
            return -Fraction(option) if self.rules.stock is not None else Fraction(0)
        return max(self._sum(profile, others) for profile in self.tried(seat, option))

    def _sum(self, profile: Row, seats: Sequence[int]) -> Fraction:
        return sum((self.gain(seat, profile) for seat in seats), Fraction(0))

    def reply(self, seat: int, profiles: Sequence[Row]) -> str:
        """Returns the option of ``seat`` with the highest mean payoff against the others' choices in ``profiles``."""

        def mean(option: str) -> Fraction:
            return sum((self.gain(seat, self._with(p, seat, option)) for p in profiles), Fraction(0))

        return max(self.options[seat], key=mean)

    @cached_property
    def _means(self) -> dict[int, dict[str, float]]:
        return {}

    def means(self, seat: int) -> dict[str, float]:
        """Returns the mean payoff of a round for each option of ``seat`` if the others choose at random."""
        if seat not in self._means:
            rows = {
                option: [self.gain(seat, profile) for profile in self.tried(seat, option)]
                for option in self.options[seat]
            }
            self._means[seat] = {option: float(sum(row, Fraction(0)) / len(row)) for option, row in rows.items()}
        return self._means[seat]

    @cached_property
    def _floors(self) -> dict[tuple[int, str], float]:
        return {}

    def floor(self, seat: int, option: str) -> float:
        """Returns the payoff of a round to ``seat`` in the worst case of an option."""
        if (seat, option) not in self._floors:
            gains = (self.gain(seat, profile) for profile in self.tried(seat, option))
            self._floors[seat, option] = float(min(gains))
        return self._floors[seat, option]

    def worst(self, seat: int) -> float:
        """Returns the worst payoff of a round to ``seat``."""
        return min(self.floor(seat, option) for option in self.options[seat])

    def gap(self, seat: int, profile: Row) -> float:
        """Returns how much more ``seat`` would have got by its best reply to the others' choices in ``profile``."""
        return float(self.gain(seat, self._with(profile, seat, self.reply(seat, [profile]))) - self.gain(seat, profile))

    def _with(self, profile: Row, seat: int, option: str) -> Row:
        return (*profile[:seat], option, *profile[seat + 1 :])

    @cached_property
    def _best(self) -> dict[int, float]:
        return {}

    def best(self, seat: int) -> float:
        """Returns the best payoff of a round to ``seat``, whatever the others would have to choose for it."""
        if seat not in self._best:
            rows = (self.tried(seat, option) for option in self.options[seat])
            self._best[seat] = float(max(self.gain(seat, profile) for row in rows for profile in row))
        return self._best[seat]
