"""``group_decision``: three to five people with private preferences choose one of several options by open vote.

Source: the planning meeting of SOTOPIA-S4 (§5.2), where a member with a minority wish meets neutral others and a
majority, in the group and in private messages.

The vote is a ballot by plurality, closed when everybody has voted; a tie decides nothing. A seat gets its own points
(0 to 10) for the winning option, or its ``no_decision`` points (0 to 3).

**Levels.** ``easy``: 3 seats, 3 options, a majority shares its favourite. ``medium``: 4 seats, 4 options, either a
majority against one dissenter or one advocate each of two options among lukewarm others. ``hard``: 5 seats, 5 options,
all favourites differ, and for every seat some option is worse than no decision. In every task at least one option is
better for everybody than no decision.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from sotopia_env.outcomes import BallotRules, BallotWorth, OutcomeSpec
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import listed, points
from sotopia_env.world.scenario import Seat


class _Texts(FamilyTexts):
    """Occasions with their options, and how contexts and goals are put."""

    occasions: dict[str, tuple[str, ...]]
    contexts: tuple[str, ...]
    rules: tuple[str, ...]
    goals: tuple[str, ...]
    no_decision: tuple[str, ...]


texts = read_texts(_Texts, "group_decision")
NAME = "group_decision"
_SEATS = {"easy": 3, "medium": 4, "hard": 5}
_OPTIONS = {"easy": 3, "medium": 4, "hard": 5}


@dataclass(frozen=True, slots=True)
class _Plan:
    """The numbers of a task: the options, and per seat the points of each option and of no decision."""

    options: tuple[str, ...]
    values: tuple[tuple[int, ...], ...]
    no_decision: tuple[int, ...]

    def shuffled(self, rng: random.Random) -> _Plan:
        """The same with options and seats in another order, so that neither tells who wants what."""
        order = rng.sample(range(len(self.options)), len(self.options))
        seats = rng.sample(range(len(self.values)), len(self.values))
        return _Plan(
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
    plan = _draw_plan(rng, level, variant, tuple(rng.sample(texts.occasions[occasion], _OPTIONS[level])))
    plan = plan.shuffled(rng)
    seats = len(plan.values)
    context = rng.choice(texts.contexts).format(n=seats, occasion=occasion, options=listed(plan.options))
    return Draft(
        characters=draw_characters(rng, seats),
        context=f"{context} {rng.choice(texts.rules).format(n=seats)}",
        seats=tuple(_seat(rng, plan, seat) for seat in range(seats)),
        outcome=plan.outcome(),
        tags=(variant, "mixed"),
        private_messages=True,
        max_turns=6 * seats,
    )


def _draw_plan(rng: random.Random, level: str, variant: str, options: tuple[str, ...]) -> _Plan:
    """Draws until some option is better for everybody than no decision."""
    while True:
        values = tuple(_draw_values(rng, seat, variant, _SEATS[level], len(options)) for seat in range(_SEATS[level]))
        no_decision = tuple(rng.randint(1, 3) if level == "hard" else rng.randint(0, 2) for _ in values)
        columns = zip(*values, strict=True)
        if any(all(value > low for value, low in zip(column, no_decision, strict=True)) for column in columns):
            return _Plan(options, values, no_decision)


def _draw_values(rng: random.Random, seat: int, variant: str, seats: int, options: int) -> tuple[int, ...]:
    """One seat's points; the variant says who shares a favourite with whom."""
    if variant == "minority" and seat > 1:  # lukewarm: nothing far from the middle
        return tuple(rng.randint(4, 6) for _ in range(options))
    favourite = _favourite(seat, variant, seats, options)
    values = [rng.randint(1, 7) for _ in range(options)]
    if variant == "split":  # the last option is the compromise that nobody needs to fear
        values[-1] = rng.randint(4, 7)
        values[rng.choice([i for i in range(options - 1) if i != favourite])] = 0
    values[favourite] = rng.randint(8, 10)
    return tuple(values)


def _favourite(seat: int, variant: str, seats: int, options: int) -> int:
    if variant == "majority":
        return 0 if seat <= seats // 2 else 1
    return seat % options


def _seat(rng: random.Random, plan: _Plan, seat: int) -> Seat:
    values = zip(plan.options, plan.values[seat], strict=True)
    worths = listed([f"{option} {points(value)}" for option, value in values])
    no_decision = points(plan.no_decision[seat])
    return Seat(
        goals=(rng.choice(texts.goals).format(points=worths),),
        hints=(rng.choice(texts.hints),),
        private_info=rng.choice(texts.no_decision).format(value=no_decision) + ".",
        private_data={"role": "member"},
    )


FAMILY = Family(NAME, _draw, texts.phrases)
"""The family; see the module's text for its rules."""
