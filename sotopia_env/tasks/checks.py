"""Checks of a task beyond those of its records: the casting, the reference points of its outcome, numbers in its texts.

A valid specification may still have too many outcomes for exact reference points, or no outcome by which a seat could
gain. A goal may name a number that does not occur in the seat's worth.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from sotopia_env.foundation.errors import InvalidTaskError, Verbatim, Where
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.outcomes import AdditiveWorth, BallotRules, ChoiceIssue, ClaimsRules, ItemsIssue, OutcomeSpec
from sotopia_env.outcomes.games.payoffs import GameWorth
from sotopia_env.outcomes.issues import Issue
from sotopia_env.outcomes.valuation import WorthForm
from sotopia_env.outcomes.worth import BallotWorth, ClaimsWorth, TableWorth
from sotopia_env.world.outcome import references
from sotopia_env.world.scenario import ADULT, RelationshipKind, Scenario, Seat, Task

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_MOST_LISTED = 20
"""Maximum number of values of a number issue for goals to name any of them; of a larger issue, only the limits."""
_DISAGREEMENT = {"agreement": "no_agreement", "ballot": "no_decision", "claims": "none", "choices": "no_choice"}


def check(task: Task) -> None:
    """Checks that the scenario admits the characters, and that some seat can gain by an outcome if the task has one.

    Raises:
        InvalidTaskError: the check failed; the message names the task, the field, and a correction.
    """
    _check_casting(task)
    if problem := outcome_problem(task):
        raise InvalidTaskError.of(problem, within="scenario", where=Where(record=f"task {task.id!r}"))


def outcome_problem(task: Task) -> InvalidTaskError | None:
    """Returns an error that names a field of the scenario if no seat can gain by an outcome; otherwise ``None``.

    Raises:
        InvalidTaskError: there are too many outcomes to enumerate.
    """
    spec = task.scenario.outcome
    if spec is None:
        return None
    points = references(task)
    # ``best`` is over the outcomes that all needed seats would assent to, so one seat's gain is enough.
    if any(best > low for best, low in zip(points.best, points.disagreement, strict=True)):
        return None
    field = _DISAGREEMENT[spec.protocol.kind]
    return InvalidTaskError(
        field="outcome.worth",
        expected=f"an outcome that is better than {field!r} for one seat and no worse for those whose assent it needs",
        hint=f"raise a worth or lower {field!r} (now {_text(points.disagreement)})",
    )


def _check_casting(task: Task) -> None:
    constraints = task.scenario.constraints
    for seat, person in enumerate(task.characters):
        if not constraints.admits(seat, person):
            raise InvalidTaskError(
                field=f"characters.{seat}",
                expected="a character with an age and occupation that scenario.constraints admit",
                got=Verbatim(f"{person.name} ({person.age}, {person.occupation})"),
                hint="seat another character",
                where=Where(record=f"task {task.id!r}"),
            )
    kinds, facts = constraints.relationships, constraints.facts
    for index, pair in enumerate(task.relationships):
        ages = [task.characters[seat].age for seat in pair.seats]
        # An unknown age is not a minor's: imported characters often have none.
        if pair.kind is RelationshipKind.ROMANTIC and any(age is not None and age < ADULT for age in ages):
            raise InvalidTaskError(
                field=f"relationships.{index}.kind",
                expected=f"{pair.kind.value!r} between people aged {ADULT} or older",
                got=Verbatim(f"the ages {ages}"),
                hint="seat others, or change the relationship",
                where=Where(record=f"task {task.id!r}"),
            )
        if not constraints.admits_pair(pair):
            is_kind = bool(kinds) and pair.kind not in kinds
            expected = f"one of {', '.join(kinds)}" if is_kind else f"the facts {canonical_json(facts)}"
            raise InvalidTaskError(
                field=f"relationships.{index}",
                expected=f"{expected}, as scenario.constraints require",
                got=Verbatim(pair.kind if is_kind else canonical_json(pair.facts)),
                hint="seat others, or change the relationship",
                where=Where(record=f"task {task.id!r}"),
            )


def warnings(task: Task) -> list[str]:
    """Returns the sentences of :func:`number_warnings`, with field names relative to the task."""
    return [f"scenario.{sentence}" for sentence in number_warnings(task.scenario)]


def number_warnings(scenario: Scenario) -> list[str]:
    """Returns a sentence for every number in a seat's goals or private information that occurs nowhere in its data.

    A number is accepted if it occurs in the seat's worth, the outcome space, the context, a goal test of the seat, the
    scenario's ``shared_data`` or the seat's ``private_data`` (such as a target price).
    """
    spec = scenario.outcome
    if spec is None:
        return []
    public = {*_space_numbers(spec), *_numbers(scenario.context), *_data_numbers(scenario.shared_data)}
    sentences = []
    for seat, side in enumerate(scenario.seats):
        own = (*_worth_numbers(spec, spec.worth[seat]), *_test_numbers(scenario, seat))
        numbers = _rounded({*public, *own, *_data_numbers(side.private_data)})
        for field, text in _seat_texts(side):
            sentences += [
                f"seats.{seat}.{field}: {_text([number])} does not occur in this seat's worth; write the "
                f"number that outcome.worth.{seat} has, or add {_text([number])} to private_data"
                for number in dict.fromkeys(_numbers(text))
                if number not in numbers
            ]
    return sentences


def _seat_texts(seat: Seat) -> Iterator[tuple[str, str]]:
    yield from ((f"goals.{index}", goal) for index, goal in enumerate(seat.goals))
    yield "private_info", seat.private_info


def _test_numbers(scenario: Scenario, seat: int) -> Iterator[float]:
    tests = () if scenario.interview is None else scenario.interview.goal_tests
    for test in tests:
        if test.seat == seat:
            yield from () if test.worth_at_least is None else (float(test.worth_at_least),)
            yield from itertools.chain.from_iterable(_data_numbers(list(values)) for values in test.terms.values())


def _text(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" if number % 1 else f"{number:.0f}" for number in numbers)


def _numbers(text: str) -> list[float]:
    # Rounded like the computed worths, whose floats (0.1 + 0.2) would not equal the number in the text otherwise.
    return [round(float(digits.replace(",", "")), 6) for digits in _NUMBER.findall(text)]


def _rounded(numbers: Iterable[float]) -> set[float]:
    """Absolute values, since words express signs in other ways ("a cost of 5")."""
    return {round(abs(number), 6) for number in numbers}


def _data_numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        yield from itertools.chain.from_iterable(map(_data_numbers, value))
    elif isinstance(value, str):
        yield from _numbers(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):  # ``bool`` is an ``int``
        yield float(value)


def _space_numbers(spec: OutcomeSpec) -> Iterator[float]:
    # The numbers of seats and of issues: "the three of you", "both points".
    yield from (len(spec.worth), len(spec.issues))
    rules = spec.protocol
    if isinstance(rules, BallotRules):
        yield from _data_numbers(list(rules.options))
    elif isinstance(rules, ClaimsRules):
        yield from (rules.tries, *_data_numbers(list(rules.candidates)))
    elif rules.kind == "roles":
        yield from (rules.cycles, *_data_numbers(rules.model_dump(mode="json")))
    elif rules.kind == "choices":
        yield from (rules.rounds, *_data_numbers(rules.model_dump(mode="json")), *_data_numbers(list(rules.shared)))
    elif rules.needs != "all":
        yield rules.needs.quorum
    for issue in spec.issues:
        if isinstance(issue, ItemsIssue):
            yield from range(issue.count + 1)
        elif isinstance(issue, ChoiceIssue):
            yield from _data_numbers(list(issue.options))
        else:
            yield from (float(issue.low), float(issue.high), float(issue.step))
            yield from issue.values({}) if issue.size(0) <= _MOST_LISTED else ()


def _worth_numbers(spec: OutcomeSpec, worth: WorthForm) -> Iterator[float]:
    yield from (worth.disagreement, worth.per_turn)
    if isinstance(worth, ClaimsWorth):
        yield from (worth.right, worth.wrong)
    elif isinstance(worth, BallotWorth):
        yield from worth.options.values()
    elif isinstance(worth, TableWorth):
        yield from (entry.value for entry in worth.table)
    elif isinstance(worth, GameWorth):
        yield from worth.numbers()
    elif isinstance(worth, AdditiveWorth):
        yield worth.constant
        parts = [list(_gains(issue, worth.issues[issue.name])) for issue in spec.issues]
        yield from itertools.chain.from_iterable(parts)
        # The best and the worst total, which goals often state.
        yield from (worth.constant + sum(map(max, parts)), worth.constant + sum(map(min, parts)))
        yield from _number_issue_values(spec, worth)


def _gains(issue: Issue, gains: dict[str, float]) -> Iterator[float]:
    """The contribution of each value of ``issue`` to the sum; for a number issue, of its two limits."""
    if isinstance(issue, ChoiceIssue):
        yield from gains.values()
    elif isinstance(issue, ItemsIssue):
        yield from (gains["each"] * count for count in range(issue.count + 1))
    else:
        yield from (gains["per_unit"] * float(value) for value in (issue.low, issue.high))


def _number_issue_values(spec: OutcomeSpec, worth: AdditiveWorth) -> Iterator[float]:
    """Numbers of each number issue: its gain per unit and per step, its totals, and its break-even point."""
    for issue in spec.issues:
        if isinstance(issue, ChoiceIssue | ItemsIssue):
            continue
        per_unit = worth.issues[issue.name]["per_unit"]
        yield from (per_unit, per_unit * float(issue.step))
        if issue.size(0) <= _MOST_LISTED:
            yield from (worth.constant + per_unit * value for value in issue.values({}))
        # With several issues the break-even point depends on the others.
        if per_unit and len(spec.issues) == 1:
            yield (worth.no_agreement - worth.constant) / per_unit
