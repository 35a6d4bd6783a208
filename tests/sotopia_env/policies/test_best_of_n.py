"""Candidates, how one is chosen, and what is recorded of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sotopia_env.chat_model.protocol import ChatReply
from sotopia_env.foundation.errors import (
    ContextLengthError,
    InvalidValueError,
    ModelCallError,
    ModelRefusedError,
    PolicyError,
)
from sotopia_env.naming import make_policy as make
from sotopia_env.policies import BestOfNPolicy, LLMPolicy
from sotopia_env.policies.combined.best_of_n import OfferWorth, Scorer
from sotopia_env.testing import ScriptedChatModel, check_policy
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.play.policy import policy_identity
from tests.errors import raises
from tests.sotopia_env.factories import task
from tests.sotopia_env.policies.doubles import act, ballot, decide, friends_task, moving, observed, one_number, verified

BAD = "no JSON"
OFFER = moving(propose={"n": 14})


def speech(text: str) -> str:
    return f'{{"action_type": "speak", "argument": "{text}"}}'


@dataclass
class ByText:
    """Scores by a table of arguments; 0 for what is not in it."""

    table: Mapping[str, float]
    name: str = "by-text"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    candidates: list[Any] = field(default_factory=list)

    async def score(self, observation, decisions) -> Sequence[float]:
        self.candidates.append([decision.action.argument for decision in decisions])
        return [self.table.get(decision.action.argument, 0.0) for decision in decisions]


def candidates(*texts: str, reasks: int = 0) -> LLMPolicy:
    replies = [ChatReply(text, prompt_tokens=100, completion_tokens=7, cost=0.25, model="m") for text in texts]
    return LLMPolicy(ScriptedChatModel(replies), reasks=reasks)


@pytest.mark.parametrize(
    ("texts", "table", "best"),
    [
        (("a", "b", "c"), {"a": 1, "b": 3, "c": 2}, "b"),
        (("a", "b", "c"), {"a": -5, "b": -7, "c": -6}, "a"),
        (("a", "b", "c"), {}, "a"),  # ties go to the first
        (("a", "b", "c"), {"b": 2, "c": 2}, "b"),
    ],
)
def test_the_best_candidate_is_taken_and_all_are_paid_for(texts, table, best):
    policy = BestOfNPolicy(candidates(*map(speech, texts)), 3, ByText(table))
    decision = decide(policy, observed(task()))
    assert decision.action == Action(ActionType.SPEAK, best)
    generation = decision.generation
    assert (generation.text, generation.candidates, generation.model) == (speech(best), 3, "m")
    usage = generation.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost) == (300, 21, 0.75)
    assert generation.latency > 0


def test_an_unusable_candidate_wins_only_among_its_like():
    scorer = ByText({"": 9.0, "a": 1.0})
    decision = decide(BestOfNPolicy(candidates(BAD, speech("a"), BAD), 3, scorer), observed(task()))
    assert (decision.action.argument, scorer.candidates, decision.generation.candidates) == ("a", [["a"]], 3)
    decision = decide(BestOfNPolicy(candidates(BAD, BAD), 2, scorer), observed(task()))
    assert decision.action == NO_ACTION
    assert decision.generation.parse_failure is not None


def test_candidates_have_seeds_of_their_own_and_the_first_has_the_policys():
    model = ScriptedChatModel(lambda request: speech("a"))
    decide(BestOfNPolicy(LLMPolicy(model), 8, ByText({})), observed(task()), seed=77)
    replicates = [request.replicate for request in model.requests]
    assert len(set(replicates)) == 8
    assert replicates[0] == 77


def test_one_candidate_changes_nothing():
    observation = observed(task())
    for seed in range(20):
        assert act(BestOfNPolicy(make("random"), 1, ByText({})), observation, seed) == act(
            make("random"), observation, seed
        )


def test_candidates_are_asked_for_at_once():
    waiting = 0

    async def slow(request):
        nonlocal waiting
        waiting += 1
        while waiting < 5:  # answers come when all five have been asked for
            await asyncio.sleep(0)
        return speech("a")

    policy = BestOfNPolicy(LLMPolicy(ScriptedChatModel(slow)), 5, ByText({}))
    decision = asyncio.run(asyncio.wait_for(policy.act(observed(task()), 0), 240))
    assert decision.action.argument == "a"


def failing_on(failures: Mapping[int, Exception]) -> LLMPolicy:
    """Its candidates are the texts a, b, c in order; those with an exception fail with it."""
    calls = iter(range(9))

    async def answer(request):
        index = next(calls)
        if index in failures:
            raise failures[index]
        await asyncio.sleep(0)
        return speech("abc"[index])

    return LLMPolicy(ScriptedChatModel(answer))


GONE = ModelCallError("gone", kind="connection")


@pytest.mark.parametrize(
    ("failures", "argument", "kinds"),
    [
        ({0: GONE}, "c", ["connection"]),
        ({2: GONE}, "b", ["connection"]),
        ({1: GONE, 2: ContextLengthError("too long")}, "a", ["connection", "PolicyError"]),
    ],
)
def test_a_candidate_that_fails_for_good_is_recorded_and_the_rest_go_on(failures, argument, kinds):
    decision = decide(BestOfNPolicy(failing_on(failures), 3, ByText({"b": 1, "c": 2})), observed(task()))
    assert decision.action.argument == argument
    assert decision.generation.candidates == 3 - len(failures)
    assert [error.kind for error in decision.errors] == kinds
    assert all("candidate failed: " in error.message for error in decision.errors)


def test_a_turn_fails_when_all_candidates_do():
    policy = BestOfNPolicy(failing_on(dict.fromkeys(range(3), GONE)), 3, ByText({}))
    with pytest.raises(PolicyError, match="gone"):
        decide(policy, observed(task()))


def test_a_model_that_refuses_everything_cancels_the_rest():
    cancelled = []

    async def answer(request):
        if request.replicate == 0:
            raise ModelRefusedError("no such model", kind="bad_request")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # as one that books what it has spent
            cancelled.append(request.replicate)
            raise

    policy = BestOfNPolicy(LLMPolicy(ScriptedChatModel(answer)), 3, ByText({}))

    async def turn():
        with pytest.raises(ModelRefusedError, match="no such model"):
            await policy.act(observed(task()), 0)
        assert len(cancelled) == 2

    asyncio.run(turn())


def test_candidates_that_cannot_differ_are_refused():
    greedy = LLMPolicy(ScriptedChatModel([speech("a")]), temperature=0)
    with raises(InvalidValueError, field="policy"):
        BestOfNPolicy(greedy, 2, ByText({}))
    assert decide(BestOfNPolicy(greedy, 1, ByText({})), observed(task())).action.argument == "a"


@pytest.mark.parametrize("scores", [[1.0], [1.0, 2.0, 3.0], [float("nan"), 1.0], [float("inf"), 1.0], []])
def test_invalid_scores_end_the_turn(scores):
    class Broken(ByText):
        async def score(self, observation, decisions):
            return scores

    with pytest.raises(PolicyError, match="by-text"):
        decide(BestOfNPolicy(make("random"), 2, Broken({})), observed(task()))


def test_policies_without_text_have_candidates_too():
    decision = decide(BestOfNPolicy(make("random"), 4, ByText({})), observed(task()))
    assert (decision.generation.candidates, decision.generation.text) == (4, "")
    check_policy(BestOfNPolicy(make("random"), 2, ByText({})), task=task(), repeatable=True)


def test_name_and_parameters_tell_all():
    policies = [
        BestOfNPolicy(make("linear"), 4, ByText({})),
        BestOfNPolicy(make("linear"), 5, ByText({})),
        BestOfNPolicy(make("linear:floor=0.3"), 4, ByText({})),
        BestOfNPolicy(make("linear"), 4, ByText({}, parameters={"weights": [1, 2]})),
        BestOfNPolicy(make("linear"), 4, OfferWorth()),
    ]
    assert policies[0].name == "best-of-4(linear)"
    assert len({policy_identity(policy) for policy in policies}) == len(policies)
    assert isinstance(OfferWorth(), Scorer)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((make("linear"), 0, OfferWorth()), "n"),
        ((make("linear"), 2.0, OfferWorth()), "n"),
        (("linear", 2, OfferWorth()), "policy"),
        ((make("linear"), 2, "offer-worth"), "scorer"),
    ],
)
def test_arguments_are_checked(arguments, field):
    with raises(InvalidValueError, field=field):
        BestOfNPolicy(*arguments)


# ---------------------------------------------------------------------------------------------------------------------
# The worth of an offer
def worths(observation, *actions: Action) -> list[float]:
    decisions = [decide(LLMPolicy(ScriptedChatModel([speech("x")])), observation)]
    decisions = [type(decisions[0])(action) for action in actions]
    return list(asyncio.run(OfferWorth().score(observation, decisions)))


def say(text: str) -> Action:
    return Action(ActionType.SPEAK, text)


@pytest.mark.parametrize(
    ("history", "move", "expected"),
    [
        ((), {"propose": {"n": 20}}, 1.0),
        ((), {"propose": {"n": "5"}}, 0.25),  # as a model may write it
        ((), {"propose": {"n": 21}}, 0.0),  # not open
        ((), {"accept": 1}, 0.0),
        ((NO_ACTION, OFFER), {"accept": 1}, 0.7),
        ((NO_ACTION, OFFER), {"accept": True}, 0.7),
        ((OFFER, moving(propose={"n": 2})), {"accept": 2}, 0.1),
        ((OFFER, moving(propose={"n": 2})), {"accept": 1}, 0.0),  # its own
        ((NO_ACTION, OFFER), {"reject": 1}, 0.0),
        ((OFFER, NO_ACTION), {"withdraw": 1}, 0.0),
        ((), {"vote": "park"}, 0.0),
    ],
)
def test_a_move_is_worth_its_prospect(history, move, expected):
    observation = observed(one_number(), *history)
    assert worths(observation, moving(**move)) == pytest.approx([expected])


def test_words_and_leaving_are_worth_nothing():
    observation = observed(one_number(), NO_ACTION, OFFER)
    assert worths(observation, say("I accept your offer of 14!"), Action(ActionType.LEAVE), NO_ACTION) == [0.0] * 3


def test_what_is_worse_than_no_agreement_scores_below_nothing():
    worth = [{"constant": -10, "issues": {"n": {"per_unit": 1}}}, {"issues": {"n": {"per_unit": -1}}}]
    issue = {"name": "n", "kind": "number", "low": 0, "high": 20}
    task = verified({"protocol": {"kind": "agreement"}, "issues": [issue], "worth": worth})
    scores = worths(observed(task), *(moving(propose={"n": n}) for n in (0, 10, 15, 20)))
    assert scores == pytest.approx([-1.0, 0.0, 0.5, 1.0])


def test_a_vote_is_worth_its_option():
    observation = observed(verified(ballot()), moving(vote="park"), moving(vote="zoo"))
    scores = worths(observation, *(moving(vote=option) for option in ("museum", "Zoo", "park")))
    assert scores == pytest.approx([1.0, 0.5, -0.5])
    mine = observed(verified(ballot()), moving(vote="park"), NO_ACTION, NO_ACTION)
    assert worths(mine, moving(vote=None)) == [0.0]


@pytest.mark.parametrize(("task", "kind"), [(task(), "no protocol"), (friends_task(), "claims")])
def test_a_task_without_offers_is_refused_with_the_reason(task, kind):
    with pytest.raises(PolicyError, match=f"offer-worth.*{kind}"):
        decide(BestOfNPolicy(make("random"), 2, OfferWorth()), observed(task))


def test_the_best_of_many_random_offers_asks_for_more():
    greedy = BestOfNPolicy(make("random-offers"), 8, OfferWorth())
    observation, seeds = observed(one_number()), range(10)
    first = {
        policy.name: sum(worths(observation, act(policy, observation, seed))[0] for seed in seeds)
        for policy in (make("random-offers"), greedy)
    }
    assert first[greedy.name] > first["random-offers"] + 1
