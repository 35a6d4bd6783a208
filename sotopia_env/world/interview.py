"""Questions about an episode after its end, with their answers, as in AgentSense (§3, appendices B and D).

Participants and judges answer whether each goal was reached, and participants answer multiple-choice questions on the
others' private information. All of this is read by evaluators only: it holds right answers, and it never reaches an
observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Protocol, Self

from pydantic import AfterValidator, Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.records import Line, Name, Record, not_blank
from sotopia_env.outcomes import ItemsIssue, NumberIssue, OutcomeSpec
from sotopia_env.outcomes.amounts import Value, fold
from sotopia_env.outcomes.result import OutcomeResult


class Need(StrEnum):
    """The three classes of needs of the ERG theory."""

    EXISTENCE = "existence"
    RELATEDNESS = "relatedness"
    GROWTH = "growth"


class GoalType(StrEnum):
    """The eight types of social goals (AgentSense, table 7)."""

    INFORMATION_ACQUISITION = "information acquisition"
    INFORMATION_PROVISION = "information provision"
    RELATIONSHIP_BUILDING = "relationship building"
    RELATIONSHIP_MAINTENANCE = "relationship maintenance"
    IDENTITY_RECOGNITION = "identity recognition"
    COOPERATION = "cooperation"
    COMPETITION = "competition"
    CONFLICT_RESOLUTION = "conflict resolution"

    @property
    def need(self) -> Need:
        """The class of needs that goals of this type serve."""
        return _NEEDS[self]


_NEEDS: Mapping[GoalType, Need] = {
    GoalType.INFORMATION_ACQUISITION: Need.EXISTENCE,
    GoalType.INFORMATION_PROVISION: Need.EXISTENCE,
    GoalType.RELATIONSHIP_BUILDING: Need.RELATEDNESS,
    GoalType.RELATIONSHIP_MAINTENANCE: Need.RELATEDNESS,
    GoalType.IDENTITY_RECOGNITION: Need.RELATEDNESS,
    GoalType.COOPERATION: Need.GROWTH,
    GoalType.COMPETITION: Need.GROWTH,
    GoalType.CONFLICT_RESOLUTION: Need.GROWTH,
}


class Role(StrEnum):
    """Whether a seat's primary goal is to share something, or to receive it and react (AgentSense, prompt 19)."""

    SENDER = "sender"
    RECEIVER = "receiver"


class Domain(StrEnum):
    """The social setting of an interaction (AgentSense, table 6)."""

    PERSONAL = "personal"
    SMALL_SOCIETY = "small society"
    LARGE_SOCIETY = "large society"


Text = Annotated[Line, AfterValidator(not_blank)]
SeatIndex = Annotated[int, Field(ge=0)]


class InterviewedSeat(Protocol):
    """The parts of a scenario's seat that an interview asks about."""

    @property
    def goals(self) -> Sequence[str]:
        """The goals."""
        ...

    @property
    def private_info(self) -> str:
        """The information that the other seats do not have; may be empty."""
        ...


class Question(Record):
    """A multiple-choice question on one seat's private information; one answer is right.

    Attributes:
        about: the seat whose private information it is.
        text: the question.
        answer: the right answer.
        wrong: plausible wrong answers.
        asked: the seats that are asked; if empty, all other seats.
    """

    about: SeatIndex
    text: Text
    answer: Text
    wrong: tuple[Text, ...] = Field(min_length=1)
    asked: tuple[SeatIndex, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Folded, because answers that differ only in case would both be right.
        answers = {fold(self.answer)}
        for index, answer in enumerate(self.wrong):
            if fold(answer) in answers:
                raise InvalidValueError(field=f"wrong.{index}", expected="an answer unlike all others", got=answer)
            answers.add(fold(answer))
        if self.about in self.asked:
            raise InvalidValueError(field="asked", expected="seats other than the one it is about", got=self.about)
        if len(set(self.asked)) != len(self.asked):
            raise InvalidValueError(field="asked", expected="different seats", got=list(self.asked))
        return self

    def asked_seats(self, seats: int) -> tuple[int, ...]:
        """The seats that are asked, in a task with ``seats`` seats."""
        return self.asked or tuple(seat for seat in range(seats) if seat != self.about)


class GoalTest(Record):
    """The exact condition for reaching a goal; if both conditions are given, both must hold.

    Attributes:
        seat: the seat that has the goal.
        goal: the index of the goal among the seat's goals.
        worth_at_least: the minimum payoff of the seat.
        terms: the good options per choice (or for a ballot's ``option``), and the lowest and highest good value per
            number; without an agreement, the condition does not hold.
    """

    seat: SeatIndex
    goal: SeatIndex
    worth_at_least: Value | None = None
    terms: dict[Name, tuple[Value, Value] | tuple[Name, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.worth_at_least is None and not self.terms:
            raise InvalidValueError(field="worth_at_least", expected="a number, or terms", got=Verbatim("neither"))
        for name, values in self.terms.items():
            if not values:
                raise InvalidValueError(field=f"terms.{name}", expected="at least one good option")
        return self

    def holds(self, outcome: OutcomeResult) -> bool:
        """Whether the goal is reached with ``outcome``."""
        if self.worth_at_least is not None and outcome.payoffs[self.seat] < self.worth_at_least:
            return False
        if not self.terms:
            return True
        # Without an agreement there are no terms that could meet the condition.
        return outcome.agreed and all(_is_good(outcome.terms[name], good) for name, good in self.terms.items())


def _is_good(value: Any, good: tuple[Any, ...]) -> bool:
    # A text is an option of a choice or a ballot; a number must lie within inclusive bounds.
    if isinstance(value, str):
        return value in good
    low, high = good
    return bool(low <= value <= high)


class Interview(Record):
    """The questions of evaluators about an episode, and the facts that they have about its goals.

    Attributes:
        template: the id of the template that the scenario was made from; results are grouped by it.
        domain: the social setting; ``None`` if unknown.
        roles: one role per seat; empty if unknown.
        goal_types: the type of each goal of each seat; empty if unknown.
        questions: the questions on private information.
        goal_tests: the tests of goals that the outcome decides.
    """

    template: Name
    domain: Domain | None = None
    roles: tuple[Role, ...] = ()
    goal_types: tuple[tuple[GoalType, ...], ...] = ()
    questions: tuple[Question, ...] = ()
    goal_tests: tuple[GoalTest, ...] = ()

    def goal_type(self, seat: int, goal: int) -> GoalType | None:
        """The type of a goal; ``None`` where it is unknown."""
        return self.goal_types[seat][goal] if self.goal_types else None

    def check(self, seats: Sequence[InterviewedSeat], outcome: OutcomeSpec | None) -> None:
        """Raises ValueError, naming field, value and fix, unless this fits a scenario's seats and outcome."""
        for field, length in (("roles", len(self.roles)), ("goal_types", len(self.goal_types))):
            if length not in (0, len(seats)):
                raise InvalidValueError(
                    field=f"interview.{field}", expected=f"one entry per seat ({len(seats)})", got=length
                )
        # Not strict: ``goal_types`` may be empty, and has one entry per seat otherwise (see above).
        for index, (types, seat) in enumerate(zip(self.goal_types, seats, strict=False)):
            if len(types) != len(seat.goals):
                expected = f"one type per goal ({len(seat.goals)})"
                raise InvalidValueError(field=f"interview.goal_types.{index}", expected=expected, got=len(types))
        for index, question in enumerate(self.questions):
            check_question(question, seats, f"interview.questions.{index}")
        for index, test in enumerate(self.goal_tests):
            check_goal_test(test, seats, outcome, f"interview.goal_tests.{index}")
        tested = [(test.seat, test.goal) for test in self.goal_tests]
        # Two tests of one goal could contradict each other.
        if twice := [pair for index, pair in enumerate(tested) if pair in tested[:index]]:
            raise InvalidValueError(
                field="interview.goal_tests",
                expected="one test per goal",
                got=Verbatim(f"two of seat, goal {twice[0]}"),
            )


def check_question(question: Question, seats: Sequence[InterviewedSeat], where: str) -> None:
    """Raises ValueError unless the seats of ``question``, a field called ``where``, exist and have a secret."""
    for field, seat in (("about", question.about), *(("asked", seat) for seat in question.asked)):
        _check_index(seat, len(seats), f"{where}.{field}", "the seats")
    if not seats[question.about].private_info.strip():
        raise InvalidValueError(
            field=f"{where}.about",
            expected="a seat with private_info",
            got=question.about,
            hint="write some, or leave the question out",
        )


def _check_index(index: int, length: int, where: str, noun: str) -> None:
    if index >= length:
        raise InvalidValueError(expected=f"one of {noun} 0 to {length - 1}", got=index, field=where)


def check_goal_test(test: GoalTest, seats: Sequence[InterviewedSeat], outcome: OutcomeSpec | None, where: str) -> None:
    """Raises ValueError unless the goal and the terms of ``test``, a field called ``where``, exist."""
    _check_index(test.seat, len(seats), f"{where}.seat", "the seats")
    _check_index(test.goal, len(seats[test.seat].goals), f"{where}.goal", f"the goals of seat {test.seat}:")
    if outcome is None:
        raise InvalidValueError(
            expected="a scenario with an outcome", hint="add one, or leave goal_tests out", field=where
        )
    if test.terms and outcome.protocol.kind in ("claims", "choices", "roles"):
        raise InvalidValueError(
            field=f"{where}.terms", expected="none, since nothing is agreed on in terms", hint="use worth_at_least"
        )
    issues = {issue.name: issue for issue in outcome.space_by_id.issues}
    for name, good in test.terms.items():
        if name not in issues:
            raise InvalidValueError(field=f"{where}.terms", got=name, valid=issues)
        _check_values(issues[name], good, f"{where}.terms.{name}")


def _check_values(issue: Any, good: tuple[Any, ...], where: str) -> None:
    if isinstance(issue, ItemsIssue):
        raise InvalidValueError(
            expected="a choice or a number", got=Verbatim("items to be divided"), hint="use worth_at_least", field=where
        )
    if isinstance(issue, NumberIssue):
        # The interval may reach beyond the issue's range, where it sets no limit, but must overlap it.
        if len(good) != 2 or isinstance(good[0], str) or not issue.low <= good[1] >= good[0] <= issue.high:
            bounds = f"[low, high] that overlaps {issue.low} to {issue.high}"
            raise InvalidValueError(expected=bounds, got=list(good), field=where)
        return
    for option in good:
        if option not in issue.options:
            raise InvalidValueError(got=option, valid=issue.options, field=where)
