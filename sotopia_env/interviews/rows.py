"""Interviews of recorded episodes as rows: one for each goal, and one for each question to a seat.

A goal without any answers has no value. A question on private information that was asked and not answered counts as
wrong; a question that could not be asked has no value.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.reports.seat_results import choose_evaluator, policy_labels, seated_policies
from sotopia_env.storage.recordings import PlayKey, recordings
from sotopia_env.world.answers import INFORMATION, InterviewAnswer, View, information_values, is_majority
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.outcome import goal_truth

SELF, OTHER, AVERAGE, MAJORITY, EXACT = "self", "other", "judge average", "judge majority", "exact"
GOAL_MEASURES = (MAJORITY, AVERAGE, SELF, OTHER, EXACT)
"""The measures of whether a goal was reached: the majority of the judges, their average, the seat's own answer, the
other seats' answers, and the outcome of the moves. The first that has values is the main measure."""

Policy = tuple[str, str]
"""The name and the parameters (as JSON) of a policy."""


@dataclass(frozen=True, slots=True)
class SeatKey:
    """A seat of an episode.

    Attributes:
        episode: the key of the episode.
        task: the id of the task.
        template: the id of the template that the scenario was made from.
        domain: the domain of the scenario; empty if unknown.
        seat: the index of the seat.
        policies: the policies in all seats.
        roles: the roles of all seats; empty if the scenario does not define roles.
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
    """The answer of one respondent about a goal, or to a question on private information.

    Attributes:
        respondent: ``judge_0 (MODEL)``, …, ``self``, ``other`` or ``information``.
        policy: the policy of a participant; ``None`` for a judge.
        value: the answer; ``None`` without one.
        asked: whether the question could be asked.
    """

    respondent: str
    policy: Policy | None
    value: bool | None
    asked: bool = True


@dataclass(frozen=True, slots=True)
class GoalRow:
    """One goal of a seat.

    Attributes:
        key: the seat.
        goal_type: the type of the goal; empty if the scenario does not define it.
        need: the class of needs that the goal serves; empty if the scenario does not define the type.
        values: the value of each measure with answers, from 0 to 1.
        votes: the answer of each respondent, including missing answers.
        truth: whether the goal was reached; ``None`` without an exact test.
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
        key: the seat that was asked.
        about: the index of the seat whose information the question is about.
        values: the value of each measure, 0 or 1; empty if the question could not be asked.
        vote: the answer; ``vote.value`` is whether it is right.
    """

    key: SeatKey
    about: int
    values: Mapping[str, float]
    vote: Vote


@dataclass(frozen=True, slots=True)
class InterviewRows:
    """All rows of some episodes.

    Attributes:
        evaluator: the name of the interview that collected the answers.
        episodes: the number of episodes.
        labels: the labels of the policies.
        goals: the rows of goals.
        questions: the rows of questions on private information.
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
        episodes: evaluated episodes; two records of one play count once.
        evaluator: the name of the interview; by default the one that all episodes share.
        defaults: the evaluators of the runs' configurations, preferred if all episodes share several.

    Raises:
        InvalidValueError: there are no episodes, or the episodes do not share one interview.
        UnknownNameError: no episode has an interview named ``evaluator``.
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
    # The interview's own outcome first, then the latest of another evaluator: all compute the same from the moves.
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
    # A tie of the judges is not a majority.
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
