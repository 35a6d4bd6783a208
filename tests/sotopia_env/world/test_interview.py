"""Interviews: what is refused, in one sentence, and the exact truth of goals."""

import json

import pytest
from pydantic import ValidationError

from sotopia_env.foundation.errors import InvalidTaskError
from sotopia_env.foundation.validation import invalid
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.world import Scenario, Task
from sotopia_env.world.interview import GoalType, Need
from sotopia_env.world.outcome import goal_truth
from sotopia_env.world.taskset import FIELD_NAMES
from tests.errors import check_fields, raises
from tests.sotopia_env.factories import scenario, task

OUTCOME = {
    "protocol": {"kind": "agreement"},
    "issues": [
        {"name": "venue", "kind": "choice", "options": ["hall", "garden", "40"]},
        {"name": "price", "kind": "number", "low": 0, "high": 90, "step": 10},
        {"name": "chairs", "kind": "items", "count": 2},
    ],
    "worth": [
        {
            "issues": {"venue": {"hall": 2, "garden": 1, "40": 0}, "price": {"per_unit": 0.1}, "chairs": {"each": 1}},
            "no_agreement": 3,
        }
    ]
    * 3,
}
SECRET = {"goals": ["Keep it.", "Win."], "private_info": "The hall is haunted."}
QUESTION = {"about": 0, "text": "What is it with the hall?", "answer": "It is haunted.", "wrong": ["It burns."]}
INTERVIEW = {
    "template": "fair",
    "domain": "small society",
    "roles": ["sender", "receiver", "receiver"],
    "goal_types": [["competition", "cooperation"], ["information acquisition"], ["relationship building"]],
    "questions": [QUESTION],
    "goal_tests": [
        {"seat": 0, "goal": 1, "worth_at_least": 6.5},
        {"seat": 1, "goal": 0, "terms": {"venue": ["hall", "40"], "price": [0, 40]}},
        {"seat": 2, "goal": 0, "worth_at_least": 3, "terms": {"venue": ["garden"]}},
    ],
}


def content(outcome=OUTCOME, **fields) -> dict:
    seats = [SECRET, {"goals": ["Rent the hall."]}, {"goals": ["Sit outside."]}]
    return {"id": "fair", "context": "A fair.", "seats": seats, "outcome": outcome, "interview": INTERVIEW | fields}


def question(**fields) -> dict:
    return {"questions": [QUESTION, QUESTION | fields]}


def goal_test(**fields) -> dict:
    return {"goal_tests": [{"seat": 0, "goal": 0} | fields]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (question(answer=" "), {"field": "interview.questions.1.answer"}),
        (question(wrong=[]), {"field": "interview.questions.1.wrong"}),
        (question(wrong=["it is  HAUNTED."]), {"field": "interview.questions.1.wrong.0"}),
        (question(wrong=["Mice.", "mice."]), {"field": "interview.questions.1.wrong.1"}),
        (question(about=1), {"field": "interview.questions.1.about"}),
        (question(about=3), {"field": "interview.questions.1.about"}),
        (question(asked=[1, 0]), {"field": "interview.questions.1.asked"}),
        (question(asked=[1, 1]), {"field": "interview.questions.1.asked"}),
        (question(asked=[1, 5]), {"field": "interview.questions.1.asked"}),
        ({"roles": ["sender"]}, {"field": "interview.roles"}),
        ({"goal_types": [["competition"]] * 3}, {"field": "interview.goal_types.0"}),
        ({"roles": ["sender", "receivers", "receiver"]}, {"field": "interview.roles.1", "nearest": "receiver"}),
        ({"goal_tets": []}, {"field": "interview.goal_tets", "nearest": "goal_tests"}),
        (goal_test(), {"field": "interview.goal_tests.0.worth_at_least"}),
        (goal_test(worth_at_least=1, goal=2), {"field": "interview.goal_tests.0.goal"}),
        (goal_test(worth_at_least=1, seat=3), {"field": "interview.goal_tests.0.seat"}),
        (goal_test(terms={"venu": ["hall"]}), {"field": "interview.goal_tests.0.terms", "nearest": "venue"}),
        (goal_test(terms={"venue": ["hal"]}), {"field": "interview.goal_tests.0.terms.venue", "nearest": "hall"}),
        (goal_test(terms={"venue": []}), {"field": "interview.goal_tests.0.terms.venue"}),
        (goal_test(terms={"venue": [0, 40]}), {"field": "interview.goal_tests.0.terms.venue"}),
        (goal_test(terms={"price": [40, 0]}), {"field": "interview.goal_tests.0.terms.price"}),
        (goal_test(terms={"price": [91, 95]}), {"field": "interview.goal_tests.0.terms.price"}),
        (goal_test(terms={"price": ["0", "40"]}), {"field": "interview.goal_tests.0.terms.price"}),
        (goal_test(terms={"chairs": [0, 1]}), {"field": "interview.goal_tests.0.terms.chairs"}),
        ({"goal_tests": INTERVIEW["goal_tests"][:1] * 2}, {"field": "interview.goal_tests"}),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(fields, expected):
    raw = content(**fields)
    with pytest.raises(ValidationError) as caught:
        Scenario.model_validate(raw)
    error = invalid(caught.value, FIELD_NAMES, raw)
    check_fields(error, **expected)
    assert "\n" not in str(error)


def test_goals_are_tested_only_where_there_is_an_outcome():
    with raises(ValidationError, field="interview.goal_tests.0"):
        Scenario.model_validate(content(outcome=None))


def test_claims_have_no_terms_to_test():
    claims = {
        "protocol": {"kind": "claims", "candidates": ["Ida"], "answer": "Ida"},
        "worth": [{"right": 1}, {"right": 1}, {"right": 1}],
    }
    with raises(ValidationError, field="interview.goal_tests.0.terms"):
        Scenario.model_validate(content(outcome=claims, **goal_test(terms={"answer": ["Ida"]})))


def test_an_interview_is_written_as_text_and_read_again_and_a_missing_one_is_left_out():
    instance = Scenario.model_validate(content())
    record = json.loads(instance.model_dump_json())
    assert isinstance(record["interview"], str)
    assert Scenario.model_validate(record) == instance
    assert Scenario.model_validate(instance.model_dump()) == instance
    assert "interview" not in scenario().model_dump_json()


def test_the_hash_of_a_task_covers_its_interview():
    hashes = {fair(content(**fields)).content_hash for fields in ({}, {"domain": "personal"}, {"questions": []})}
    assert len(hashes) == 3


def fair(raw: dict) -> Task:
    return task(3, scenario=Scenario.model_validate(raw))


def result(agreed: bool, payoffs: tuple[float, ...], **terms) -> OutcomeResult:
    return OutcomeResult(agreed=agreed, reason="", terms=terms, payoffs=payoffs, shares=payoffs, efficiency=1)


@pytest.mark.parametrize(
    ("outcome", "truths"),
    [
        (result(True, (6.5, 0, 3), venue="hall", price=40), (True, True, False)),
        (result(True, (6.4, 0, 3), venue="garden", price=40), (False, False, True)),
        (result(True, (9, 0, 2.9), venue="garden", price=0), (True, False, False)),
        (result(True, (9, 0, 3), venue="40", price=50), (True, False, False)),
        (result(False, (3, 3, 3)), (False, False, False)),
        (result(False, (7, 3, 3)), (True, False, False)),
    ],
)
def test_the_truth_of_goals_follows_from_the_agreement(outcome, truths):
    assert tuple(goal_truth(fair(content()), outcome).values()) == truths
    assert list(goal_truth(fair(content()), outcome)) == [(0, 1), (1, 0), (2, 0)]


def test_a_ballot_is_tested_by_its_option():
    ballot = {
        "protocol": {"kind": "ballot", "options": ["park", "museum"]},
        "worth": [{"options": {"park": 1, "museum": 0}}] * 3,
    }
    voting = fair(content(outcome=ballot, **goal_test(terms={"option": ["museum"]})))
    assert goal_truth(voting, result(True, (0, 0, 0), option="museum")) == {(0, 0): True}
    assert goal_truth(voting, result(True, (1, 1, 1), option="park")) == {(0, 0): False}


def test_without_tests_no_truth_is_known():
    assert goal_truth(task(3), result(False, (0, 0, 0))) == {}
    assert goal_truth(fair(content(goal_tests=[])), result(False, (0, 0, 0))) == {}


def test_an_outcome_of_another_task_is_refused():
    with raises(InvalidTaskError, got=2):
        goal_truth(fair(content()), result(False, (0, 0)))


def test_each_type_of_goal_serves_one_need():
    by_need = {need: [goal for goal in GoalType if goal.need is need] for need in Need}
    assert [len(goals) for goals in by_need.values()] == [2, 3, 3]
