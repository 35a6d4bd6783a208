"""``job_committee``: a committee of five fills a post by the assent of any three members that include the chair.

Two issues, the candidate and one condition of the contract, are agreed on together. An agreement needs three seats,
including the chair (a quorum with a veto), so a coalition can overrule two members. Each seat gets the sum of its
points for the candidate (0 to 10) and for the condition (0 to 5), or its ``no_agreement`` points if the post remains
vacant.

**Levels.** ``easy``: 3 candidates, 2 conditions; the chair and two members share a favourite. ``medium``: 4
candidates, 3 conditions; two pairs of members have one favourite each, and the chair has a third. ``hard``: 5
candidates, 3 conditions; all favourites differ. A vacant post is worth 2 to 4, 4 to 6 and 5 to 7 points, in this order.
In every task some agreement is worth no less than a vacant post to all seats, and more to the chair and two others.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ChoiceIssue, OutcomeSpec
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.space import Terms
from sotopia_env.outcomes.specification import Quorum
from sotopia_env.tasks.families.family import Draft, Family, FamilyTexts
from sotopia_env.tasks.people import draw_characters, people_texts
from sotopia_env.tasks.texts import read_texts
from sotopia_env.tasks.wording import capitalise, points
from sotopia_env.world.observation import Briefing
from sotopia_env.world.scenario import Character, Seat


class _CommitteeTexts(FamilyTexts):
    """Positions, traits of candidates, conditions with their options, and templates of contexts and goals."""

    positions: tuple[str, ...]
    traits: tuple[str, ...]
    conditions: dict[str, tuple[str, ...]]
    contexts: tuple[str, ...]
    matters: tuple[str, ...]
    rules: tuple[str, ...]
    goals: tuple[str, ...]
    chair: tuple[str, ...]
    member: tuple[str, ...]
    no_agreement: tuple[str, ...]


texts = read_texts(_CommitteeTexts, "job_committee")
NAME = "job_committee"
SEATS = 5
QUORUM = 3
CANDIDATE = "candidate"
_FAVOURITES = {"easy": (0, 0, 0, 1, 1), "medium": (0, 1, 1, 2, 2), "hard": (0, 1, 2, 3, 4)}
"""By level, the favourite candidate (index) of the chair and of each other member."""
_CANDIDATES = {"easy": 3, "medium": 4, "hard": 5}
_CONDITIONS = {"easy": 2, "medium": 3, "hard": 3}
_NO_AGREEMENT = {"easy": (2, 4), "medium": (4, 6), "hard": (5, 7)}


@dataclass(frozen=True, slots=True)
class _CommitteeMember:
    """One member's points: by candidate, by condition, and for a vacant post."""

    candidates: tuple[int, ...]
    conditions: tuple[int, ...]
    no_agreement: int
    is_chair: bool

    def gain(self, candidate: int, condition: int) -> int:
        return self.candidates[candidate] + self.conditions[condition] - self.no_agreement


def _draw_members(rng: random.Random, level: str) -> tuple[_CommitteeMember, ...]:
    """Draws until some agreement is a gain for the chair and two others and a loss for no seat; the chair is first."""
    # Without the last condition, a task could be solved only at the expense of a member.
    while True:
        members = tuple(_draw_member(rng, level, seat) for seat in range(SEATS))
        for agreement in itertools.product(range(_CANDIDATES[level]), range(_CONDITIONS[level])):
            gains = [member.gain(*agreement) for member in members]
            if min(gains) >= 0 and gains[0] > 0 and sum(gain > 0 for gain in gains) >= QUORUM:
                return members


def _draw_member(rng: random.Random, level: str, seat: int) -> _CommitteeMember:
    # The favourite's points, 8 to 10, are above all others', 0 to 6; the points of conditions differ (a sample).
    candidates = [rng.randint(0, 6) for _ in range(_CANDIDATES[level])]
    candidates[_FAVOURITES[level][seat]] = rng.randint(8, 10)
    conditions = rng.sample((0, 1, 3, 5), _CONDITIONS[level])
    return _CommitteeMember(tuple(candidates), tuple(conditions), rng.randint(*_NO_AGREEMENT[level]), seat == 0)


def _draw(rng: random.Random, index: int, level: str) -> Draft:
    """The chair has seat ``index % 5``."""
    chair = index % SEATS
    members = _seated(rng, _draw_members(rng, level), chair)
    characters = draw_characters(rng, SEATS)
    candidates = _draw_candidates(rng, level, characters)
    condition = rng.choice(tuple(texts.conditions))
    options = texts.conditions[condition][: _CONDITIONS[level]]
    outcome = _outcome(members, chair, {CANDIDATE: candidates, condition: options})
    return Draft(
        characters=characters,
        context=_context(rng, candidates, condition, options),
        seats=tuple(_seat(rng, member, candidates, condition, options) for member in members),
        outcome=outcome,
        shared_data={"chair": f"agent_{chair}"},
        tags=("mixed",),
        private_messages=True,
        max_turns=6 * SEATS,
    )


def _seated(rng: random.Random, members: Sequence[_CommitteeMember], chair: int) -> list[_CommitteeMember]:
    """Members in seat order, with seats and candidates shuffled so that positions do not reveal favourites."""
    first, *others = members
    seats = rng.sample(others, len(others))
    seats.insert(chair, first)
    order = rng.sample(range(len(first.candidates)), len(first.candidates))
    return [replace(member, candidates=tuple(member.candidates[i] for i in order)) for member in seats]


def _outcome(members: Sequence[_CommitteeMember], chair: int, issues: Mapping[str, Sequence[str]]) -> OutcomeSpec:
    worths = []
    for member in members:
        rows = zip(issues.items(), (member.candidates, member.conditions), strict=True)
        points_by_issue = {
            name: dict(zip(options, map(float, values), strict=True)) for (name, options), values in rows
        }
        worths.append(AdditiveWorth(issues=points_by_issue, no_agreement=member.no_agreement))
    return OutcomeSpec(
        protocol=AgreementRules(needs=Quorum(quorum=QUORUM, veto=(f"agent_{chair}",))),
        issues=tuple(ChoiceIssue(name=name, options=tuple(options)) for name, options in issues.items()),
        worth=tuple(worths),
    )


def _draw_candidates(rng: random.Random, level: str, characters: tuple[Character, ...]) -> list[str]:
    # Candidates are called by last name only, which must not be that of a member.
    last_names = {character.last_name for character in characters}
    return rng.sample([name for name in people_texts().last_names if name not in last_names], _CANDIDATES[level])


def _context(rng: random.Random, candidates: Sequence[str], condition: str, options: Sequence[str]) -> str:
    traits = rng.sample(texts.traits, len(candidates))
    shortlist = "; ".join(f"{name}, {trait}" for name, trait in zip(candidates, traits, strict=True))
    context = rng.choice(texts.contexts).format(position=rng.choice(texts.positions), candidates=shortlist)
    matter = rng.choice(texts.matters).format(condition=condition, options=conjunction(options))
    return capitalise(f"{context} {matter} {rng.choice(texts.rules)}")


def _seat(
    rng: random.Random, member: _CommitteeMember, candidates: Sequence[str], condition: str, options: Sequence[str]
) -> Seat:
    by_candidate = ", ".join(f"{name} {value}" for name, value in zip(candidates, member.candidates, strict=True))
    by_option = ", ".join(f"{option} {value}" for option, value in zip(options, member.conditions, strict=True))
    goal = rng.choice(texts.goals).format(points=f"candidate: {by_candidate}; {condition}: {by_option}")
    role = rng.choice(texts.chair if member.is_chair else texts.member)
    no_agreement = rng.choice(texts.no_agreement).format(points=points(member.no_agreement))
    return Seat(
        goals=(goal,),
        hints=(rng.choice(texts.hints),),
        private_info=f"{role} {no_agreement}",
        private_data={"role": "chair" if member.is_chair else "member"},
    )


def _fields(briefing: Briefing, terms: Terms) -> Mapping[str, str] | None:
    # Terms of another kind occur when a user has edited a generated task; it is then played in plain English.
    conditions = [name for name in terms if name in texts.conditions]
    if len(terms) != 2 or CANDIDATE not in terms or not conditions:
        return None
    condition = conditions[0]
    return {"candidate": str(terms[CANDIDATE]), "condition": f"{condition}: {terms[condition]}"}


FAMILY = Family(
    NAME,
    _draw,
    replace(texts.phrases, fields=_fields),
)
"""The family; the module's docstring states its rules."""
