"""GOAL and FIN from shares; refusal where there is nothing to verify."""

import asyncio

import pytest

from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.testing import state_after
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn
from sotopia_env.world.episode import Episode
from tests.sotopia_env.evaluators.doubles import FIN, GOAL, transcript
from tests.sotopia_env.outcome_tasks import acts, ballot, contract, riddle, sale, verified


def deal(price, task=None):
    """A transcript in which the price is proposed and accepted."""
    moves = acts(f"{price}?", {"propose": {"price": price}}), acts("Yes.", {"accept": 1})
    return Episode.of_state(state_after(sale() if task is None else task, *moves))


def bounded(no_agreement):
    """The buyer pays the price of at most 100, which is worth 100 to it; the seller would keep what it has."""
    outcome = sale().scenario.outcome.model_dump(mode="json")
    outcome["worth"][1]["no_agreement"] = no_agreement
    return verified(outcome)


@pytest.mark.parametrize(
    ("task", "price", "goals", "fins"),
    [
        (sale(), 0, (10.0, 0.0), (5.0, 0.0)),
        (sale(), 25, (7.5, 2.5), (3.75, 1.25)),
        (sale(), 100, (0.0, 10.0), (0.0, 5.0)),
        (bounded(50), 75, (5.0, 5.0), (2.5, 2.5)),
        (bounded(50), 0, (10.0, 0.0), (5.0, -5.0)),  # worse than none for the seller: nothing on GOAL, a loss on FIN
        (bounded(50), 45, (10.0, 0.0), (5.0, -0.5)),
    ],
)
def test_scores_are_the_clipped_share_of_what_could_be_gained(task, price, goals, fins):
    evaluation = asyncio.run(VerifiedOutcome().evaluate(deal(price, task)))
    scores = evaluation.by_agent
    assert tuple(scores[agent][GOAL].value for agent in task.agents) == pytest.approx(goals)
    assert tuple(scores[agent][FIN].value for agent in task.agents) == pytest.approx(fins)
    assert set(scores["agent_0"]) == {GOAL, FIN}
    assert "Agreed on #1: price" in scores["agent_0"][GOAL].reasoning
    assert evaluation.outcome.terms == {"price": price}


@pytest.mark.parametrize(
    ("task", "actions", "goals"),
    [
        (contract(), ("84, June 1, one log for me.", "I accept!", "Deal!"), (0.0, 0.0)),  # words alone change nothing
        (ballot(2), (acts("", {"vote": "museum"}), acts("", {"vote": "museum"})), (10.0, 10.0)),
        (ballot(2), (acts("", {"vote": "museum"}), acts("", {"vote": "park"})), (0.0, 0.0)),
        (riddle(), (acts("", {"claim": "Bo Li"}), acts("", {"claim": "bo li"})), (10.0, 10.0)),
        (sale(), (acts("", {"propose": {"price": 5}}), acts("I accept #1!", {"accept": 9})), (0.0, 0.0)),
    ],
)
def test_every_protocol_is_scored_by_its_moves(task, actions, goals):
    scores = asyncio.run(VerifiedOutcome().evaluate(Episode.of_state(state_after(task, *actions)))).by_agent
    assert tuple(scores[agent][GOAL].value for agent in task.agents) == goals


def test_a_task_without_an_outcome_is_refused_with_a_way_out():
    with pytest.raises(EvaluationError, match=r"'test-task'.*'judge:MODEL'"):
        asyncio.run(VerifiedOutcome().evaluate(transcript("Deal.")))


def test_a_move_that_was_never_open_is_a_failed_evaluation():
    forged = Turn(0, 0, "agent_0", Action(ActionType.SPEAK, "Deal.", move=acts("", {"accept": 3}).move))
    with pytest.raises(EvaluationError, match=r"verified: recorded move.*#3.*test-task"):
        asyncio.run(VerifiedOutcome().evaluate(Episode(task=sale()).with_turns([forged])))
