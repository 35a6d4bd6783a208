"""Interviews: what is refused, in one sentence, and the exact truth of goals."""

import json

import pytest
from pydantic import ValidationError

from sotopia_env.errors import InvalidTaskError
from sotopia_env.records import explain
from sotopia_env.world import OutcomeResult, Scenario, Task, goal_truth
from sotopia_env.world.interview import GoalType, Need
from sotopia_env.world.taskset import FIELD_NAMES
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
    ("fields", "words"),
    [
        (question(answer=" "), ["interview.questions.1.answer", "must not be blank"]),
        (question(wrong=[]), ["interview.questions.1.wrong", "at least 1"]),
        (question(wrong=["it is  HAUNTED."]), ["interview.questions.1", "wrong.0", "unlike all others"]),
        (question(wrong=["Mice.", "mice."]), ["interview.questions.1", "wrong.1", "mice."]),
        (question(about=1), ["interview.questions.1.about", "private_info", "got 1"]),
        (question(about=3), ["interview.questions.1.about", "0 to 2, got 3"]),
        (question(asked=[1, 0]), ["interview.questions.1", "asked", "other than the one it is about, got 0"]),
        (question(asked=[1, 1]), ["interview.questions.1", "asked", "different seats"]),
        (question(asked=[1, 5]), ["interview.questions.1.asked", "0 to 2, got 5"]),
        ({"roles": ["sender"]}, ["interview.roles", "(3), got 1"]),
        ({"goal_types": [["competition"]] * 3}, ["interview.goal_types.0", "(2), got 1"]),
        ({"roles": ["sender", "receivers", "receiver"]}, ["interview.roles.1", "did you mean 'receiver'?"]),
        ({"goal_tets": []}, ["interview.goal_tets", "did you mean 'goal_tests'?"]),
        (goal_test(), ["interview.goal_tests.0", "worth_at_least", "got neither"]),
        (goal_test(worth_at_least=1, goal=2), ["interview.goal_tests.0.goal", "0 to 1, got 2"]),
        (goal_test(worth_at_least=1, seat=3), ["interview.goal_tests.0.seat", "0 to 2, got 3"]),
        (goal_test(terms={"venu": ["hall"]}), ["interview.goal_tests.0.terms", "did you mean 'venue'?"]),
        (goal_test(terms={"venue": ["hal"]}), ["interview.goal_tests.0.terms.venue", "did you mean 'hall'?"]),
        (goal_test(terms={"venue": []}), ["interview.goal_tests.0", "terms.venue", "at least one"]),
        (goal_test(terms={"venue": [0, 40]}), ["interview.goal_tests.0.terms.venue", "expected one of 'hall'"]),
        (goal_test(terms={"price": [40, 0]}), ["interview.goal_tests.0.terms.price", "[low, high] within 0 to 90"]),
        (goal_test(terms={"price": [91, 95]}), ["interview.goal_tests.0.terms.price", "within 0 to 90"]),
        (goal_test(terms={"price": ["0", "40"]}), ["interview.goal_tests.0.terms.price", "within 0 to 90"]),
        (goal_test(terms={"chairs": [0, 1]}), ["interview.goal_tests.0.terms.chairs", "worth_at_least"]),
        ({"goal_tests": INTERVIEW["goal_tests"][:1] * 2}, ["interview.goal_tests", "one test per goal", "(0, 1)"]),
    ],
)
def test_what_is_wrong_is_refused_in_one_sentence(fields, words):
    raw = content(**fields)
    with pytest.raises(ValidationError) as error:
        Scenario.model_validate(raw)
    sentence = explain(error.value, FIELD_NAMES, raw)
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence


def test_goals_are_tested_only_where_there_is_an_outcome():
    with pytest.raises(ValidationError, match=r"goal_tests.0: expected a scenario with an outcome, got none"):
        Scenario.model_validate(content(outcome=None))


def test_claims_have_no_terms_to_test():
    claims = {
        "protocol": {"kind": "claims", "candidates": ["Ida"], "answer": "Ida"},
        "worth": [{"right": 1}, {"right": 1}, {"right": 1}],
    }
    with pytest.raises(ValidationError, match="terms: expected none, since claims agree on no terms"):
        Scenario.model_validate(content(outcome=claims, **goal_test(terms={"answer": ["Ida"]})))


def test_an_interview_is_written_as_text_and_read_again_and_left_out_where_there_is_none():
    interviewed = Scenario.model_validate(content())
    written = json.loads(interviewed.model_dump_json())
    assert isinstance(written["interview"], str)
    assert Scenario.model_validate(written) == interviewed
    assert Scenario.model_validate(interviewed.model_dump()) == interviewed
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
def test_the_truth_of_goals_follows_from_what_was_agreed(outcome, truths):
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
    with pytest.raises(InvalidTaskError, match="expected an outcome with 3 payoffs, got 2"):
        goal_truth(fair(content()), result(False, (0, 0)))


def test_each_type_of_goal_serves_one_need():
    by_need = {need: [goal for goal in GoalType if goal.need is need] for need in Need}
    assert [len(goals) for goals in by_need.values()] == [2, 3, 3]
