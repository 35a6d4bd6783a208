"""GOAL and FIN from shares; refusal where there is nothing to verify."""

import pytest

from sotopia_env import tasks
from sotopia_env.errors import EvaluationError
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.world.scenario import Task
from tests.sotopia_env.evaluators.doubles import FIN, GOAL, ToyFamily, only_family, transcript, verifiable_task


@pytest.mark.parametrize(
    ("share", "goal", "fin"),
    [(0.0, 0.0, 0.0), (0.25, 2.5, 1.25), (1.0, 10.0, 5.0), (1.4, 10.0, 5.0), (-0.5, 0.0, -2.5), (-3.0, 0.0, -5.0)],
)
def test_scores_are_the_clipped_share(monkeypatch, share, goal, fin):
    only_family(monkeypatch, ToyFamily((share, 0.5)))
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
    only_family(monkeypatch, ToyFamily((0.5,)))
    with pytest.raises(EvaluationError, match="expected 2 shares"):
        VerifiedOutcome().evaluate(transcript("Deal.", of=verifiable_task()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"listed_price": "99"}, r"outcome.parameters.listed_price: .*got '99'"),
        ({"sides": []}, r"outcome.parameters.sides"),
    ],
)
def test_a_task_from_outside_that_its_family_cannot_read_is_a_failed_evaluation(change, said):
    made = tasks.generate("bargaining", 1, seed=0)[0]
    data = made.model_dump(mode="json")
    data["scenario"]["outcome"]["parameters"] = {**made.scenario.outcome.parameters, **change}
    broken = Task.model_validate(data)
    with pytest.raises(EvaluationError, match=rf"verified: task '{made.id}'.*{said}"):
        VerifiedOutcome().evaluate(transcript("Deal.", of=broken))


def test_a_task_is_checked_once(monkeypatch):
    checked = []
    monkeypatch.setattr(tasks, "check", checked.append)
    made = tasks.generate("bargaining", 1, seed=0)[0]
    for text in ("Deal.", "No."):
        VerifiedOutcome().evaluate(transcript(text, of=made))
    assert checked == [made]
