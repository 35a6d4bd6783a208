"""``group_decision``: three to five people with private preferences choose one of several options by open vote.

Source: the planning meeting of SOTOPIA-S4 (§5.2), in which a member with a minority wish faces neutral members and a
majority, in the group and in private messages.

The vote is a plurality ballot that closes when all seats have voted; a tie decides nothing. A seat gets its points
(0 to 10) for the winning option, or its ``no_decision`` points (0 to 3).

**Levels.** ``easy``: 3 seats, 3 options, a majority shares its favourite. ``medium``: 4 seats, 4 options, either a
majority against one dissenter or one advocate each of two options among lukewarm others. ``hard``: 5 seats, 5 options,
all favourites differ, and for every seat some option is worse than no decision. In every task at least one option is
better than no decision for all seats.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from sotopia_env.outcomes import BallotRules, OutcomeSpec
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.worth import BallotWorth
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import points
from sotopia_env.world.scenario import Seat


class _GroupTexts(FamilyTexts):
    """Occasions with their options, and templates of contexts and goals."""

    occasions: dict[str, tuple[str, ...]]
    contexts: tuple[str, ...]
    rules: tuple[str, ...]
    goals: tuple[str, ...]
    no_decision: tuple[str, ...]


texts = read_texts(_GroupTexts, "group_decision")
NAME = "group_decision"
_SEATS = {"easy": 3, "medium": 4, "hard": 5}
_OPTIONS = {"easy": 3, "medium": 4, "hard": 5}


@dataclass(frozen=True, slots=True)
class _Preferences:
    """The options of a task, and every seat's points for each option (seat, option) and for no decision."""

    options: tuple[str, ...]
    values: tuple[tuple[int, ...], ...]
    no_decision: tuple[int, ...]

    def shuffled(self, rng: random.Random) -> _Preferences:
        """Returns a copy with options and seats in random order, so that positions do not reveal preferences."""
        order = rng.sample(range(len(self.options)), len(self.options))
        seats = rng.sample(range(len(self.values)), len(self.values))
        return _Preferences(
            tuple(self.options[i] for i in order),
            tuple(tuple(self.values[seat][i] for i in order) for seat in seats),
            tuple(self.no_decision[seat] for seat in seats),
        )

    def outcome(self) -> OutcomeSpec:
        worths = (dict(zip(self.options, map(float, row), strict=True)) for row in self.values)
        return OutcomeSpec(
            protocol=BallotRules(options=self.options),
            worth=tuple(
                BallotWorth(options=options, no_decision=low)
                for options, low in zip(worths, self.no_decision, strict=True)
            ),
        )


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    occasion = rng.choice(tuple(texts.occasions))
    variant = {"easy": "majority", "medium": rng.choice(("majority", "minority")), "hard": "split"}[level]
    options = tuple(rng.sample(texts.occasions[occasion], _OPTIONS[level]))
    preferences = _draw_preferences(rng, level, variant, options).shuffled(rng)
    seats = len(preferences.values)
    context = rng.choice(texts.contexts).format(n=seats, occasion=occasion, options=conjunction(preferences.options))
    return Draft(
        characters=draw_characters(rng, seats),
        context=f"{context} {rng.choice(texts.rules).format(n=seats)}",
        seats=tuple(_seat(rng, preferences, seat) for seat in range(seats)),
        outcome=preferences.outcome(),
        tags=(variant, "mixed"),
        private_messages=True,
        # Six turns per seat: the default of 20 would leave five seats four turns each.
        max_turns=6 * seats,
    )


def _draw_preferences(rng: random.Random, level: str, variant: str, options: tuple[str, ...]) -> _Preferences:
    """Draws until some option is better than no decision for all seats."""
    while True:
        values = tuple(_draw_values(rng, seat, variant, _SEATS[level], len(options)) for seat in range(_SEATS[level]))
        no_decision = tuple(rng.randint(1, 3) if level == "hard" else rng.randint(0, 2) for _ in values)
        columns = zip(*values, strict=True)
        if any(all(value > low for value, low in zip(column, no_decision, strict=True)) for column in columns):
            return _Preferences(options, values, no_decision)


def _draw_values(rng: random.Random, seat: int, variant: str, seats: int, options: int) -> tuple[int, ...]:
    """One seat's points; the variant determines which seats share a favourite."""
    if variant == "minority" and seat > 1:
        # The lukewarm seats: no option is far from the middle of the scale, so either advocate can win them.
        return tuple(rng.randint(4, 6) for _ in range(options))
    favourite = _favourite(seat, variant, seats, options)
    values = [rng.randint(1, 7) for _ in range(options)]
    if variant == "split":
        # The last option is a compromise: its 4 or more points exceed every ``no_decision``, so that the draw passes
        # the check. Another option, with 0 points, is worse than no decision.
        values[-1] = rng.randint(4, 7)
        values[rng.choice([i for i in range(options - 1) if i != favourite])] = 0
    values[favourite] = rng.randint(8, 10)
    return tuple(values)


def _favourite(seat: int, variant: str, seats: int, options: int) -> int:
    if variant == "majority":
        return 0 if seat <= seats // 2 else 1
    return seat % options


def _seat(rng: random.Random, preferences: _Preferences, seat: int) -> Seat:
    values = zip(preferences.options, preferences.values[seat], strict=True)
    worths = conjunction([f"{option} {points(value)}" for option, value in values])
    no_decision = points(preferences.no_decision[seat])
    return Seat(
        goals=(rng.choice(texts.goals).format(points=worths),),
        hints=(rng.choice(texts.hints),),
        private_info=rng.choice(texts.no_decision).format(value=no_decision) + ".",
        private_data={"role": "member"},
    )


FAMILY = Family(NAME, _draw, texts.phrases)
"""The family; the module's docstring states its rules."""
