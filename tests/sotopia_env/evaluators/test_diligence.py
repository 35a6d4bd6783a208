"""Due Diligence: what a reasonable agent would have done, decision by decision."""

import asyncio

import pytest

from sotopia_env.evaluators import Diligence
from sotopia_env.foundation.errors import EvaluationError
from sotopia_env.outcomes import AdditiveWorth, AgreementRules, ChoiceIssue, Move, MoveKind, NumberIssue, OutcomeSpec
from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.move import read_move
from sotopia_env.world import Rules
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.episode import Episode
from tests.sotopia_env.factories import scenario, task

SELLER, BUYER = 0, 1
PRICE = OutcomeSpec(
    protocol=AgreementRules(),
    issues=(NumberIssue(name="price", low=0, high=20, unit="$"),),
    worth=(
        AdditiveWorth(constant=-10, issues={"price": {"per_unit": 1}}),
        AdditiveWorth(constant=14, issues={"price": {"per_unit": -1}}),
    ),
)
SLOTS = ("nine", "ten", "eleven", "noon")
SLOT = OutcomeSpec(
    protocol=AgreementRules(),
    issues=(ChoiceIssue(name="slot", options=SLOTS),),
    worth=(
        AdditiveWorth(issues={"slot": dict(zip(SLOTS, (1, 0, -1, 0.25), strict=True))}),
        AdditiveWorth(issues={"slot": dict(zip(SLOTS, (-1, 0.75, 1, 0.5), strict=True))}),
    ),
)


def act(move):
    """The action of a short form: a price or slot, ``yes``, ``no``, or nothing."""
    kinds = {"yes": MoveKind.ACCEPT, "no": MoveKind.REJECT}
    if move is None:
        return Action(ActionType.SPEAK, "Well.")
    if move in kinds:
        return Action(ActionType.SPEAK, "", (), Move(kinds[move], True))
    return Action(
        ActionType.SPEAK, "", (), Move(MoveKind.PROPOSE, {"slot" if isinstance(move, str) else "price": move})
    )


def scores(spec, *moves):
    """What each seat gets of moves in turn, the seller's or requestor's first."""
    state = initial_state(task(scenario=scenario(outcome=spec)), Rules(max_turns=len(moves)), 0)
    for move in moves:
        state = transition(state, act(move))
        assert state.turns[-1].violation is None, state.turns[-1].violation
    evaluation = asyncio.run(Diligence().evaluate(Episode.of_state(state)))
    return [{s.dimension: s.value for s in evaluation.scores if s.agent == agent} for agent in state.task.agents]


def test_facts_beside_an_agreement_change_no_decision():
    """What is stated beside an offer, or alone, is not a decision; the offers are judged as without facts."""
    facts = Facts.model_validate(
        {"variables": [{"name": "hour", "options": ["one", "two"], "value": "two", "known_by": ["agent_1"]}]}
    )
    of = task(scenario=scenario(outcome=PRICE, facts=facts))
    state = initial_state(of, Rules(max_turns=6), 0)
    parts = [{"propose": {"price": 20}}, {"propose": {"price": 11}, "state": {"hour": "one"}}, {"ask": "hour"}]
    parts += [{"show": "hour"}, {"propose": {"price": 12}, "ask": "hour"}, {"accept": True}]
    for part in parts:
        state = transition(state, Action(ActionType.SPEAK, "Well.", move=read_move(part)))
        assert state.turns[-1].violation is None, state.turns[-1].violation
    evaluator = Diligence()
    assert evaluator.applies(Episode.of_state(state))
    evaluation = asyncio.run(evaluator.evaluate(Episode.of_state(state)))
    values = [{s.dimension: s.value for s in evaluation.scores if s.agent == agent} for agent in of.agents]
    assert values == scores(PRICE, 20, 11, None, None, 12, "yes")


# Moves, then the buyer's Outcome Optimality, Due Diligence and archetype.
NUMBERS = [
    ((20, 11, 15, 12, 12), 0.5, 1.0, "robust"),  # opens low, gives a third, is met
    ((20, 11, 15, 12, 13, "yes"), 0.25, 1.0, "ineffective"),  # took it within bounds, having asked for better
    ((13, "yes"), 0.25, 0.0, "negligent"),  # the first price, never having asked for better
    ((11, "yes"), 0.75, 0.0, "lucky"),
    ((20, 15, 15), 0.0, 0.0, "negligent"),  # opens above the reservation price, and is taken at its word
    ((20, 10, 19, 12, 12), 0.5, 0.5, "robust"),  # half of what was left at once
    ((20, 10, 20, 10, 20, 11, None), 0.0, 1.0, "ineffective"),  # no deal for all the diligence
    ((20, 11, 15, "no", 12, "yes"), 0.5, 1.0, "robust"),  # rejecting a price is not a decision that has a rule
]


@pytest.mark.parametrize(("moves", "optimality", "diligence", "archetype"), NUMBERS, ids=range(len(NUMBERS)))
def test_of_a_buyer_every_offer_and_acceptance_counts(moves, optimality, diligence, archetype):
    buyer = scores(PRICE, *moves)[BUYER]
    assert (buyer["outcome_optimality"], buyer["due_diligence"]) == (optimality, diligence)
    assert [name for name in ("robust", "lucky", "ineffective", "negligent") if buyer[name] == 1] == [archetype]


def test_a_seller_is_measured_by_the_same_rules():
    seller = scores(PRICE, 20, 11, 14, 12, 12)[SELLER]  # 6 of 10 at once; then an acceptance of 12 after asking for 14
    assert seller["due_diligence"] == pytest.approx(2 / 3)


SLOT_MOVES = [
    (("nine", "eleven", "noon", "ten", "ten"), 1.0, 1.0),  # from the best down, each refused before the next
    (("nine", "noon", "noon"), 2 / 3, 0.0),  # a worse one although eleven was open
    (("noon", "yes"), 2 / 3, 0.0),  # took the first one
    (("nine", "no", "noon", "no", None, "eleven", None), 0.0, 1.0),  # busy at nine; better than noon was open
    (("nine", "yes"), 0.0, 0.0),  # a conflict
    (("nine", "eleven", "ten", "yes"), 1.0, 1.0),  # the best that was left
]


@pytest.mark.parametrize(("moves", "optimality", "diligence"), SLOT_MOVES, ids=range(len(SLOT_MOVES)))
def test_of_a_choice_the_best_that_is_open_is_asked_for_first(moves, optimality, diligence):
    assistant = scores(SLOT, *moves)[1]
    assert (assistant["outcome_optimality"], assistant["due_diligence"]) == (pytest.approx(optimality), diligence)


def test_an_option_worth_nothing_is_better_than_one_that_costs():
    worth = AdditiveWorth(no_agreement=-5, issues={"slot": dict(zip(SLOTS, (-3, 0, -4, -5), strict=True))})
    spec = SLOT.model_copy(update={"worth": (SLOT.worth[0], worth)})
    assert scores(spec, "nine", "yes")[1]["due_diligence"] == 0.0  # took a loss although ten was open
    assert scores(spec, "ten", "yes")[1]["due_diligence"] == 1.0


def test_who_decided_nothing_has_no_diligence_and_no_archetype():
    seller, buyer = scores(PRICE, 20, None)
    assert seller["due_diligence"] == 1.0
    assert buyer == {"outcome_optimality": 0.0}


def test_an_outcome_of_another_kind_is_said_to_be_one():
    episode = Episode.of_state(initial_state(task(), Rules(), 0))
    assert not Diligence().applies(episode)
    with pytest.raises(EvaluationError, match="'verified'"):
        asyncio.run(Diligence().evaluate(episode))
