"""GOAL and FIN from shares; refusal where there is nothing to verify."""

import pytest

from sotopia_env import tasks
from sotopia_env.errors import EvaluationError
from sotopia_env.evaluators import VerifiedOutcome
from tests.sotopia_env.evaluators.doubles import FIN, GOAL, ToyFamily, transcript, verifiable_task


@pytest.mark.parametrize(
    ("share", "goal", "fin"),
    [(0.0, 0.0, 0.0), (0.25, 2.5, 1.25), (1.0, 10.0, 5.0), (1.4, 10.0, 5.0), (-0.5, 0.0, -2.5), (-3.0, 0.0, -5.0)],
)
def test_scores_are_the_clipped_share(monkeypatch, share, goal, fin):
    monkeypatch.setattr(tasks, "family", lambda name: ToyFamily((share, 0.5)))
    evaluation = VerifiedOutcome().evaluate(transcript("Deal.", of=verifiable_task()))
    scores = evaluation.by_agent["agent_0"]
    assert (scores[GOAL].value, scores[FIN].value) == (goal, fin)
    assert evaluation.by_agent["agent_1"][GOAL].value == 5.0
    assert set(scores) == {GOAL, FIN}
    assert "both said so" in scores[GOAL].reasoning
    assert evaluation.outcome is not None
    assert evaluation.outcome.shares == (share, 0.5)


def test_a_task_without_an_outcome_is_refused_with_a_way_out():
    with pytest.raises(EvaluationError, match=r"'test-task' has no outcome specification.*'rules'"):
        VerifiedOutcome().evaluate(transcript("Deal."))


def test_an_unknown_family_is_a_failed_evaluation():
    with pytest.raises(EvaluationError, match=r"test-task.*'bargaining'\?"):
        VerifiedOutcome().evaluate(transcript("Deal.", of=verifiable_task(family="bargainin")))


def test_a_family_that_forgets_a_seat_is_a_failed_evaluation(monkeypatch):
    monkeypatch.setattr(tasks, "family", lambda name: ToyFamily((0.5,)))
    with pytest.raises(EvaluationError, match="expected 2 shares"):
        VerifiedOutcome().evaluate(transcript("Deal.", of=verifiable_task()))
