"""Interviews of recorded episodes as rows: one for each goal, one for each question to a seat.

A goal that nobody answered for has no value. A question on private information that was asked and not answered is not
right; one that nobody could be asked has no value.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.errors import InvalidValueError
from sotopia_env.reports.seat_results import choose_evaluator, policy_labels, seated_policies
from sotopia_env.storage.recordings import PlayKey, recordings
from sotopia_env.world.answers import INFORMATION, InterviewAnswer, View, information_values, is_majority
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.outcome import goal_truth

SELF, OTHER, AVERAGE, MAJORITY, EXACT = "self", "other", "judge average", "judge majority", "exact"
GOAL_MEASURES = (MAJORITY, AVERAGE, SELF, OTHER, EXACT)
"""Whether a goal was reached: by the majority and the average of the judges, the seat itself, the other seats, or the
outcome of the moves; the first that has values is the main one."""

Policy = tuple[str, str]
"""Name and parameters, as JSON."""


@dataclass(frozen=True, slots=True)
class SeatKey:
    """A seat of an episode.

    Attributes:
        policies: in all seats.
        roles: of all seats; empty where the scenario gives none.
    """

    episode: str
    task: str
    template: str
    domain: str
    seat: int
    policies: tuple[Policy, ...]
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vote:
    """What one respondent says about a goal, ``None`` for nothing.

    Attributes:
        respondent: ``judge_0 (MODEL)``, …, ``self`` or ``other``.
        policy: of a participant.
        asked: whether there was anybody who could have answered.
    """

    respondent: str
    policy: Policy | None
    value: bool | None
    asked: bool = True


@dataclass(frozen=True, slots=True)
class GoalRow:
    """One goal of a seat.

    Attributes:
        goal_type: of the goal, and the class of needs that it serves; empty where the scenario gives none.
        values: measure to a value from 0 to 1, of those that anybody answered.
        votes: what each respondent says, answered or not.
        truth: whether the goal was reached, where it has an exact test.
    """

    key: SeatKey
    goal_type: str
    need: str
    values: Mapping[str, float]
    votes: tuple[Vote, ...]
    truth: bool | None


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question on private information to one seat.

    Attributes:
        about: the seat whose information it is about.
        values: measure to a value, 0 or 1; empty where nobody could be asked.
        vote: the answer, ``value`` being whether it is right.
    """

    key: SeatKey
    about: int
    values: Mapping[str, float]
    vote: Vote


@dataclass(frozen=True, slots=True)
class InterviewRows:
    """All rows of some episodes.

    Attributes:
        evaluator: whose answers these are.
        labels: of the policies.
    """

    evaluator: str
    episodes: int
    labels: Mapping[Policy, str]
    goals: Sequence[GoalRow]
    questions: Sequence[QuestionRow]


def interview_rows(
    episodes: Iterable[Episode], evaluator: str | None = None, defaults: Iterable[str] = ()
) -> InterviewRows:
    """Returns the rows of one interview.

    Args:
        episodes: evaluated; two records of one play count once.
        evaluator: whose answers to use; by default the one interview that all episodes share.
        defaults: evaluators of the runs' configurations; they decide between several that all episodes share.

    Raises:
        InvalidValueError: no episodes, or no interview that all share.
        UnknownNameError: no episode has an interview by ``evaluator``.
    """
    goals: dict[str, list[GoalRow]] = {}
    questions: dict[str, list[QuestionRow]] = {}
    counts: Counter[str] = Counter()
    plays: set[PlayKey] = set()
    policies: dict[Policy, None] = {}
    for play, episode, _, names in recordings(episodes):
        plays.add(play)
        policies |= dict.fromkeys(seated_policies(episode))
        for evaluation in episode.evaluations:
            if evaluation.answers and evaluation.evaluator in names and evaluator in (None, evaluation.evaluator):
                counts[evaluation.evaluator] += 1
                goals.setdefault(evaluation.evaluator, []).extend(_goal_rows(episode, evaluation))
                questions.setdefault(evaluation.evaluator, []).extend(_question_rows(episode, evaluation))
    if not plays:
        raise InvalidValueError(field="episodes", expected="at least one to report")
    choice = choose_evaluator(counts, len(plays), evaluator, defaults)
    if choice is None:
        raise InvalidValueError(
            field="answers",
            expected="interviewed episodes",
            hint="`sotopia evaluate RUN --evaluator interview` adds it",
        )
    return InterviewRows(choice, len(plays), policy_labels(policies), goals[choice], questions[choice])


def _seat_keys(episode: Episode) -> list[SeatKey]:
    task, policies = episode.task, seated_policies(episode)
    interview = task.scenario.interview
    template = task.scenario.id if interview is None else interview.template
    domain = "" if interview is None or interview.domain is None else interview.domain.value
    roles = () if interview is None else tuple(role.value for role in interview.roles)
    seats = range(len(task.agents))
    return [SeatKey(episode.key, task.id, template, domain, seat, policies, roles) for seat in seats]


def _goal_rows(episode: Episode, evaluation: Evaluation) -> Iterable[GoalRow]:
    outcomes = [e.outcome for e in (evaluation, *reversed(episode.evaluations)) if e.outcome is not None]
    truth = goal_truth(episode.task, outcomes[0]) if outcomes else {}
    interview, agents = episode.task.scenario.interview, episode.task.agents
    answers: dict[tuple[str, int], list[InterviewAnswer]] = {}
    for answer in evaluation.answers:
        if answer.view is not None:
            answers.setdefault((answer.about, answer.index), []).append(answer)
    for key in _seat_keys(episode):
        for index in range(len(episode.task.scenario.seats[key.seat].goals)):
            kind = None if interview is None else interview.goal_type(key.seat, index)
            yield _goal_row(
                key,
                ("", "") if kind is None else (kind.value, kind.need.value),
                answers.get((agents[key.seat], index), []),
                truth.get((key.seat, index)),
                agents,
            )


def _goal_row(
    key: SeatKey, kind: tuple[str, str], answers: Sequence[InterviewAnswer], truth: bool | None, agents: Sequence[str]
) -> GoalRow:
    votes = {view: [a.value for a in answers if a.view is view and a.value is not None] for view in View}
    values = {SELF: _mean(votes[View.SELF]), OTHER: _mean(votes[View.OTHER]), AVERAGE: _mean(votes[View.EXTERNAL])}
    values[MAJORITY] = float(is_majority(votes[View.EXTERNAL])) if votes[View.EXTERNAL] else None
    values[EXACT] = None if truth is None else float(truth)
    present = {measure: value for measure, value in values.items() if value is not None}
    return GoalRow(key, *kind, present, tuple(_vote(key, answer, agents) for answer in answers), truth)


def _vote(key: SeatKey, answer: InterviewAnswer, agents: Sequence[str]) -> Vote:
    if answer.view is View.EXTERNAL:
        return Vote(f"{answer.respondent} ({answer.by})", None, answer.value)
    return Vote(str(answer.view), key.policies[agents.index(answer.respondent)], answer.value, answer.asked)


def _mean(votes: Sequence[bool]) -> float | None:
    return statistics.fmean(map(float, votes)) if votes else None


def _question_rows(episode: Episode, evaluation: Evaluation) -> Iterable[QuestionRow]:
    seats = {agent: seat for seat, agent in enumerate(episode.task.agents)}
    keys = _seat_keys(episode)
    for answer in evaluation.answers:
        if answer.view is None:
            key = keys[seats[answer.respondent]]
            values = information_values(answer.value) if answer.asked else {}
            vote = Vote(INFORMATION, key.policies[key.seat], answer.value, answer.asked)
            yield QuestionRow(key, seats[answer.about], values, vote)
