"""Composition: precedence, aggregates, failures; and the names of evaluators."""

import asyncio

import pytest

from sotopia_env.evaluators import Composite, VerifiedOutcome
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, UnknownNameError
from sotopia_env.naming import EVALUATOR_NAMES as NAMES
from sotopia_env.naming import make_evaluator as make
from sotopia_env.world.episode import Evaluator
from sotopia_env.world.reward import DIMENSIONS
from tests.errors import raises
from tests.sotopia_env.evaluators.doubles import (
    BEL,
    FIN,
    GOAL,
    REL,
    Fixed,
    transcript,
)
from tests.sotopia_env.outcome_tasks import sale

A = Fixed("a", {BEL: 2.0, GOAL: 0.0})
B = Fixed("b", {BEL: 6.0, GOAL: 8.0, REL: -1.0})
C = Fixed("c", {BEL: 10.0})


def evaluate(evaluator, episode):
    return asyncio.run(evaluator.evaluate(episode))


@pytest.mark.parametrize(
    ("aggregate", "bel", "goal"), [("first", 2.0, 0.0), ("mean", 6.0, 4.0), ("median", 6.0, 4.0), ("min", 2.0, 0.0)]
)
def test_aggregates(aggregate, bel, goal):
    evaluation = evaluate(Composite([A, B, C], aggregate), transcript("Hello."))
    for agent in ("agent_0", "agent_1"):
        scores = evaluation.by_agent[agent]
        assert (scores[BEL].value, scores[GOAL].value, scores[REL].value) == (bel, goal, -1.0)
        assert scores[REL].source == "b"
        assert scores[BEL].source == ("a" if aggregate == "first" else f"{aggregate}(a, b, c)")


def test_a_score_of_zero_is_a_score():
    """Guards the ``a or b`` trap: a verified 0 must not be replaced by what the next evaluator thinks."""
    assert evaluate(Composite([A, B]), transcript()).by_agent["agent_0"][GOAL].value == 0.0
    assert evaluate(Composite([A, B], "mean"), transcript()).by_agent["agent_0"][GOAL].value == 4.0


def test_s8_a_failure_is_neither_zero_nor_silent():
    """Guards S8: every exception became an empty list, and failing looked like a score of 0."""
    broken = Fixed("broken", failure="the line is dead")
    evaluation = evaluate(Composite([broken, B], strict=False), transcript())
    assert evaluation.by_agent["agent_0"][BEL].source == "b"
    assert "broken failed: the line is dead" in evaluation.comment
    with pytest.raises(EvaluationError, match=r"the line is dead.*no idea"):
        evaluate(Composite([broken, Fixed("mute", unscored="no idea")], strict=False), transcript())


def test_s8_an_error_that_no_evaluator_declares_is_not_caught():
    class Buggy(Fixed):
        async def evaluate(self, episode):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(Composite([Buggy("buggy"), B]), transcript())


def test_a_failed_member_is_not_replaced_by_another():
    strict = Composite([Fixed("broken", failure="the line is dead"), B])
    with pytest.raises(EvaluationError, match="the line is dead"):
        evaluate(strict, transcript())
    assert evaluate(Composite([VerifiedOutcome(), B]), transcript()).scores  # not applicable, not failed


def test_moves_are_verified_and_the_next_member_scores_the_rest():
    judge = Fixed("judge", dict.fromkeys(DIMENSIONS, 0.0))
    evaluation = evaluate(Composite([VerifiedOutcome(), judge]), transcript("Hello.", of=sale()))
    sources = {dimension: score.source for dimension, score in evaluation.by_agent["agent_0"].items()}
    assert sources == {d: "verified" if d in (GOAL, FIN) else "judge" for d in DIMENSIONS}
    assert evaluation.by_agent["agent_0"][GOAL].value == 0.0
    assert evaluation.outcome is not None
    free = evaluate(Composite([VerifiedOutcome(), judge]), transcript("Hello."))
    assert {score.source for score in free.scores} == {"judge"}
    assert free.comment == ""


def test_only_members_that_do_not_apply_leave_the_episode_unscored():
    with pytest.raises(EvaluationError, match=r"verified.*'test-task'"):
        evaluate(Composite([VerifiedOutcome()]), transcript())


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("verified", "verified"),
        (" diligence + verified ", "diligence+verified"),
        ("mean(verified+diligence)", "mean(verified+diligence)"),
    ],
)
def test_make(spec, name):
    evaluator = make(spec)
    assert evaluator.name == name
    assert isinstance(evaluator, Evaluator)
    assert make(evaluator) is evaluator


@pytest.mark.parametrize(
    ("spec", "error", "fields"),
    [
        ("verifid", UnknownNameError, {"field": "evaluator", "nearest": "verified"}),
        ("verified+diligense", UnknownNameError, {"field": "evaluator", "nearest": "diligence"}),
        ("verified,diligence", UnknownNameError, {"field": "evaluator"}),
        ("mead(diligence+verified)", UnknownNameError, {"field": "aggregate", "nearest": "mean"}),
        ("", UnknownNameError, {"field": "evaluator"}),
        ("verified+verified", InvalidValueError, {"field": "evaluators"}),
        ("verified+rules", InvalidValueError, {"field": "evaluator", "got": "rules"}),  # counted words
        (3, InvalidValueError, {"field": "evaluator"}),
        (VerifiedOutcome, InvalidValueError, {"field": "evaluator"}),
    ],
)
def test_make_refuses(spec, error, fields):
    with raises(error, **fields):
        make(spec)


def test_names_and_parameters_identify_what_scored():
    expected = ("verified", "diligence", "games")
    assert expected == NAMES, (
        "a new evaluator goes in here; test_testing.py checks its contract, docs/measures.md explains"
    )
    assert Composite([VerifiedOutcome(), A]).parameters == {
        "aggregate": "first",
        "strict": True,
        "members": {"verified": {}, "a": dict(A.parameters)},
    }
    with raises(InvalidValueError, field="evaluators"):
        Composite([])
    with raises(UnknownNameError, field="aggregate", nearest="median"):
        Composite([A], "medain")
