"""``group_decision``: three to five people with private preferences must carry one of several options by public vote.

Source: the planning meeting of SOTOPIA-S4 (§5.2), where a member with a minority wish meets neutral others and a
majority, in the group and in private messages.

**Rule.** An option wins when more than half of *all* seats publicly vote for it; a seat's last public vote counts, and
votes are counted when the episode ends (:mod:`sotopia_env.tasks.group_decision_votes` says what a vote is). Without
such a majority nothing is decided.

**Payoffs.** A seat gets its own points (0 to 10) for the winning option, or its ``no_decision`` points (0 to 3).

**Levels.** ``easy``: 3 seats, 3 options, a majority shares its favourite. ``medium``: 4 seats, 4 options, either a
majority against one dissenter or one advocate each of two options among lukewarm others. ``hard``: 5 seats, 5 options,
all favourites differ, and for every seat some option is worse than no decision. In every task at least one option is
better for everybody than no decision.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sotopia_env.tasks.family import ReferencePoints, SeatProblem, Terms, check_request, outcome_parameters, seat_people
from sotopia_env.tasks.group_decision_votes import Poll, count_votes
from sotopia_env.tasks.people import draw_characters
from sotopia_env.tasks.texts import group_decision as words
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import OutcomeResult
from sotopia_env.world.observation import Observation
from sotopia_env.world.scenario import OutcomeSpec, Scenario, Seat, Task

NAME = "group_decision"
_SEATS = {"easy": 3, "medium": 4, "hard": 5}
_OPTIONS = {"easy": 3, "medium": 4, "hard": 5}


@dataclass(frozen=True, slots=True)
class _Plan:
    """The numbers of a task: the options, and per seat the points of each option and of no decision."""

    options: tuple[str, ...]
    utilities: tuple[tuple[int, ...], ...]
    no_decision: tuple[int, ...]
    variant: str


def _draw_plan(rng: random.Random, level: str) -> tuple[str, _Plan]:
    """An occasion and a plan; drawn again until some option is better for everybody than no decision."""
    occasion = rng.choice(tuple(words.OCCASIONS))
    options = tuple(rng.sample(words.OCCASIONS[occasion], _OPTIONS[level]))
    variant = {"easy": "majority", "medium": rng.choice(("majority", "minority")), "hard": "split"}[level]
    while True:
        utilities = tuple(_wishes(rng, seat, variant, _SEATS[level], len(options)) for seat in range(_SEATS[level]))
        no_decision = tuple(rng.randint(1, 3) if level == "hard" else rng.randint(0, 2) for _ in utilities)
        plan = _Plan(options, utilities, no_decision, variant)
        if _solvable(plan):
            return occasion, plan


def _wishes(rng: random.Random, seat: int, variant: str, seats: int, options: int) -> tuple[int, ...]:
    """One seat's points; the drawn variant says who shares a favourite with whom."""
    if variant == "minority" and seat > 1:  # lukewarm: nothing far from the middle
        return tuple(rng.randint(4, 6) for _ in range(options))
    favourite = _favourite(seat, variant, seats, options)
    points = [rng.randint(1, 7) for _ in range(options)]
    if variant == "split":  # the last option is the compromise that nobody needs to fear
        points[-1] = rng.randint(4, 7)
        points[rng.choice([i for i in range(options - 1) if i != favourite])] = 0
    points[favourite] = rng.randint(8, 10)
    return tuple(points)


def _favourite(seat: int, variant: str, seats: int, options: int) -> int:
    if variant == "majority":
        return 0 if seat <= seats // 2 else 1
    return seat % options


def _solvable(plan: _Plan) -> bool:
    return any(
        all(wishes[option] > low for wishes, low in zip(plan.utilities, plan.no_decision, strict=True))
        for option in range(len(plan.options))
    )


def _points(value: int) -> str:
    return "1 point" if value == 1 else f"{value} points"


def _listed(items: Sequence[str]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _seat(rng: random.Random, plan: _Plan, seat: int) -> Seat:
    wishes = dict(zip(plan.options, plan.utilities[seat], strict=True))
    points = _listed([f"{option} {_points(value)}" for option, value in wishes.items()])
    hint = rng.choice(words.HINTS).format(option=plan.options[0])
    low = plan.no_decision[seat]
    return Seat(
        goals=(rng.choice(words.GOALS).format(points=points),),
        hints=(hint,),
        private_info=rng.choice(words.NO_DECISION).format(value=_points(low)) + ".",
        private_data={"role": "member", "utilities": wishes, "no_decision": low},
    )


@dataclass(frozen=True, slots=True)
class _Spec:
    """What the outcome specification holds, ready to compute with."""

    options: tuple[str, ...]
    utilities: tuple[tuple[float, ...], ...]
    no_decision: tuple[float, ...]

    def payoffs(self, option: str | None) -> tuple[float, ...]:
        """Payoff per seat when ``option`` wins, or when nothing is decided."""
        if option is None:
            return self.no_decision
        index = self.options.index(option)
        return tuple(wishes[index] for wishes in self.utilities)


def _spec(task: Task) -> _Spec:
    """The outcome specification of ``task``, read once per task."""
    key = (NAME, "spec")
    if key not in task.memo:
        given = outcome_parameters(task, NAME)
        task.memo[key] = _Spec(
            tuple(given["options"]),
            tuple(tuple(float(value) for value in row) for row in given["utilities"]),
            tuple(float(value) for value in given["no_decision"]),
        )
    found: _Spec = task.memo[key]
    return found


class GroupDecision:
    """The family ``group_decision``; see the module's text for its rules."""

    @property
    def name(self) -> str:
        """``"group_decision"``."""
        return NAME

    def generate(self, index: int, seed: int, level: str) -> Task:
        """Returns the task number ``index`` of the sequence fixed by ``seed``; equal arguments, equal task.

        Raises:
            InvalidValueError: the level is unknown, or index or seed is negative.
        """
        rng = check_request(NAME, index, seed, level)
        occasion, plan = _draw_plan(rng, level)
        order = rng.sample(range(len(plan.options)), len(plan.options))
        places = rng.sample(range(len(plan.utilities)), len(plan.utilities))
        plan = _Plan(
            tuple(plan.options[i] for i in order),
            tuple(tuple(plan.utilities[seat][i] for i in order) for seat in places),
            tuple(plan.no_decision[seat] for seat in places),
            plan.variant,
        )
        scenario = _scenario(rng, f"{NAME}-{level}-{seed}-{index}", occasion, plan)
        return seat_people(rng, scenario, draw_characters(rng, len(scenario.seats)))

    def read(self, task: Task, turns: Sequence[Turn]) -> OutcomeResult:
        """Returns the outcome of the vote at the end of ``turns``; terms are ``{"option": name}``."""
        spec, seats = _spec(task), len(task.agents)
        poll = count_votes(turns, spec.options)
        option = poll.winner(seats)
        reason = _reason(poll, option, seats)
        terms = {} if option is None else {"option": option}
        return self.reference(task).result(option is not None, reason, terms, spec.payoffs(option))

    def reference(self, task: Task) -> ReferencePoints:
        """Returns the exact reference points: the outcomes are the options and no decision."""
        key = (NAME, "reference")
        if key not in task.memo:
            task.memo[key] = _reference(_spec(task))
        found: ReferencePoints = task.memo[key]
        return found

    def problem(self, observation: Observation) -> SeatProblem:
        """Returns the seat's problem: which option to vote for."""
        return GroupProblem(observation)


def _scenario(rng: random.Random, id_: str, occasion: str, plan: _Plan) -> Scenario:
    seats = len(plan.utilities)
    context = rng.choice(words.CONTEXTS).format(n=seats, occasion=occasion, options=_listed(plan.options))
    rule = rng.choice(words.RULES).format(n=seats, majority=seats // 2 + 1)
    return Scenario(
        id=id_,
        context=f"{context} {rule}",
        seats=tuple(_seat(rng, plan, seat) for seat in range(seats)),
        shared_data={"family": NAME, "options": list(plan.options), "rule": "strict majority of last public votes"},
        max_turns=6 * seats,
        private_messages=True,
        source=f"procedural family {NAME}",
        tags=(NAME, plan.variant, "mixed"),
        outcome=OutcomeSpec(
            family=NAME,
            parameters={
                "options": list(plan.options),
                "utilities": [list(row) for row in plan.utilities],
                "no_decision": list(plan.no_decision),
            },
        ),
    )


def _reason(poll: Poll, option: str | None, seats: int) -> str:
    counts = Counter(poll.votes.values())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    tally = ", ".join(f"{name} {count}" for name, count in ranked)
    if option is not None:
        return f"{option} has {counts[option]} of {seats} votes"
    doubts = "; ".join(f"{agent}: {problem}" for agent, problem in poll.problems[-3:])
    return f"no option has more than half of {seats} votes ({tally or 'no votes'})" + (
        f"; not read as votes: {doubts}" if doubts else ""
    )


def _reference(spec: _Spec) -> ReferencePoints:
    low = spec.no_decision
    outcomes = [spec.payoffs(option) for option in spec.options] + [low]
    seats = range(len(low))
    fair = max(
        (payoffs for payoffs in outcomes if all(payoffs[i] >= low[i] for i in seats)),
        key=lambda payoffs: (_product([payoffs[i] - low[i] for i in seats]), sum(payoffs)),
    )
    return ReferencePoints(
        best=tuple(
            max(payoffs[seat] for payoffs in outcomes if all(payoffs[i] >= low[i] for i in seats if i != seat))
            for seat in seats
        ),
        disagreement=low,
        frontier=tuple(sorted({p for p in outcomes if not any(_dominates(other, p) for other in outcomes)})),
        fair=fair,
        best_joint=max(sum(payoffs) for payoffs in outcomes),
    )


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    return first != second and all(a >= b for a, b in zip(first, second, strict=True))


def _product(values: Sequence[float]) -> float:
    product = 1.0
    for value in values:
        product *= value
    return product


class GroupProblem:
    """A member's problem, from its observation alone: its own points, and the votes it has witnessed."""

    __slots__ = ("_agent", "_low", "_options", "_poll", "_seats", "_top", "_wishes")

    def __init__(self, observation: Observation) -> None:
        """Reads the private points and the votes out of ``observation``."""
        briefing = observation.briefing
        data: Any = briefing.private_data
        self._agent = observation.agent
        self._wishes: Mapping[str, float] = data["utilities"]
        self._low: float = data["no_decision"]
        self._top = max(*self._wishes.values(), self._low)
        self._options = tuple(self._wishes)
        self._seats = len(briefing.partners) + 1
        self._poll = count_votes(observation.turns, self._options)

    def candidates(self) -> Sequence[tuple[Terms, float]]:
        """The options as ``{"option": name}`` with their value, best first."""
        return _ranked(self._options, tuple(self._wishes.values()), self._low)

    def value(self, terms: Terms) -> float:
        """0 at no decision, 1 at the own favourite; below 0 for options worse than no decision."""
        return _value(self._wishes[terms["option"]], self._low, self._top)

    def incoming(self) -> Terms | None:
        """The option that most others vote for and this seat does not; among equals the one voted for last."""
        own = self._poll.votes.get(self._agent)
        others = Counter(o for agent, o in self._poll.votes.items() if agent != self._agent and o != own)
        if not others:
            return None
        most = max(others.values())
        for agent, option in reversed(self._poll.cast):
            if agent != self._agent and others.get(option) == most and self._poll.votes.get(agent) == option:
                return {"option": option}
        return None

    def outgoing(self) -> Sequence[Terms]:
        """This seat's own public votes so far, oldest first."""
        return [{"option": option} for agent, option in self._poll.cast if agent == self._agent]

    def settled(self) -> bool:
        """Whether an option has its majority now."""
        return self._poll.winner(self._seats) is not None

    def phrase_offer(self, terms: Terms, seed: int) -> str:
        """A public vote for ``terms``."""
        return words.VOTES[seed % len(words.VOTES)].format(option=terms["option"])

    def phrase_accept(self, terms: Terms, seed: int) -> str:
        """A public vote that joins the others' ``terms``."""
        return words.JOINING[seed % len(words.JOINING)].format(option=terms["option"])


def _value(points: float, low: float, top: float) -> float:
    return (points - low) / (top - low) if top > low else 0.0


@lru_cache(maxsize=4096)
def _ranked(options: tuple[str, ...], points: tuple[float, ...], low: float) -> tuple[tuple[Terms, float], ...]:
    top = max(*points, low)
    ranked = sorted(zip(options, points, strict=True), key=lambda item: -item[1])
    return tuple(({"option": option}, _value(value, low, top)) for option, value in ranked)


FAMILY = GroupDecision()
"""The one instance of the family."""

__all__ = ["FAMILY", "GroupDecision", "GroupProblem"]
