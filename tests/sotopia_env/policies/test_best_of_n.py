"""Candidates, how one is chosen, and what is recorded of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sotopia_env import tasks
from sotopia_env.chat_model.protocol import ChatReply
from sotopia_env.errors import InvalidValueError, ModelCallError, PolicyError
from sotopia_env.naming import make_policy as make
from sotopia_env.policies import BestOfNPolicy, LLMPolicy, OfferWorth, Scorer
from sotopia_env.policies.policy import policy_identity
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.testing import ScriptedChatModel, check_policy, state_after
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.observation import observe
from tests.sotopia_env.factories import task
from tests.sotopia_env.policies.doubles import act, decide, observed

BAD = "no JSON"


def speech(text: str) -> str:
    return f'{{"action_type": "speak", "argument": "{text}"}}'


@dataclass
class ByText:
    """Scores by a table of arguments; 0 for what is not in it."""

    table: Mapping[str, float]
    name: str = "by-text"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)

    async def score(self, observation, decisions) -> Sequence[float]:
        self.seen.append([decision.action.argument for decision in decisions])
        return [self.table.get(decision.action.argument, 0.0) for decision in decisions]


def candidates(*texts: str, reasks: int = 0) -> LLMPolicy:
    replies = [ChatReply(text, prompt_tokens=100, completion_tokens=7, cost=0.25, model="m") for text in texts]
    return LLMPolicy(ScriptedChatModel(replies), reasks=reasks)


@pytest.mark.parametrize(
    ("texts", "table", "chosen"),
    [
        (("a", "b", "c"), {"a": 1, "b": 3, "c": 2}, "b"),
        (("a", "b", "c"), {"a": -5, "b": -7, "c": -6}, "a"),
        (("a", "b", "c"), {}, "a"),  # ties go to the first
        (("a", "b", "c"), {"b": 2, "c": 2}, "b"),
    ],
)
def test_the_best_candidate_is_taken_and_all_are_paid_for(texts, table, chosen):
    policy = BestOfNPolicy(candidates(*map(speech, texts)), 3, ByText(table))
    decision = decide(policy, observed(task()))
    assert decision.action == Action(ActionType.SPEAK, chosen)
    generation = decision.generation
    assert (generation.text, generation.candidates, generation.model) == (speech(chosen), 3, "m")
    usage = generation.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost) == (300, 21, 0.75)
    assert generation.latency > 0


def test_an_unusable_candidate_wins_only_among_its_like():
    scorer = ByText({"": 9.0, "a": 1.0})
    decision = decide(BestOfNPolicy(candidates(BAD, speech("a"), BAD), 3, scorer), observed(task()))
    assert (decision.action.argument, scorer.seen, decision.generation.candidates) == ("a", [["a"]], 3)
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
    seen = observed(task())
    for seed in range(20):
        assert act(BestOfNPolicy(make("random"), 1, ByText({})), seen, seed) == act(make("random"), seen, seed)


def test_candidates_are_asked_for_at_once():
    waiting = 0

    async def slow(request):
        nonlocal waiting
        waiting += 1
        while waiting < 5:  # answers come when all five have been asked for
            await asyncio.sleep(0)
        return speech("a")

    policy = BestOfNPolicy(LLMPolicy(ScriptedChatModel(slow)), 5, ByText({}))
    decision = asyncio.run(asyncio.wait_for(policy.act(observed(task()), 0), 5))
    assert decision.action.argument == "a"


def test_a_candidate_that_fails_fails_the_turn_and_cancels_the_rest():
    cancelled = []

    async def answer(request):
        if request.replicate == 0:
            raise ModelCallError("gone", kind="connection")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # as one that books what it has spent
            cancelled.append(request.replicate)
            raise

    policy = BestOfNPolicy(LLMPolicy(ScriptedChatModel(answer)), 3, ByText({}))

    async def turn():
        with pytest.raises(PolicyError, match="gone"):
            await policy.act(observed(task()), 0)
        assert len(cancelled) == 2

    asyncio.run(turn())


@pytest.mark.parametrize("scores", [[1.0], [1.0, 2.0, 3.0], [float("nan"), 1.0], [float("inf"), 1.0], []])
def test_scores_that_are_none_end_the_turn(scores):
    class Broken(ByText):
        async def score(self, observation, decisions):
            return scores

    with pytest.raises(PolicyError, match="'by-text': expected 2 finite numbers"):
        decide(BestOfNPolicy(make("random"), 2, Broken({})), observed(task()))


def test_policies_without_text_have_candidates_too():
    decision = decide(BestOfNPolicy(make("random"), 4, ByText({})), observed(task()))
    assert (decision.generation.candidates, decision.generation.text) == (4, "")
    check_policy(BestOfNPolicy(make("random"), 2, ByText({})), repeatable=True)


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
    ("arguments", "message"),
    [
        ((make("linear"), 0, OfferWorth()), "n: expected a whole number, 1 or more, got 0"),
        ((make("linear"), 2.0, OfferWorth()), "n: expected a whole number"),
        (("linear", 2, OfferWorth()), "policy: expected a policy, got 'linear'"),
        ((make("linear"), 2, "offer-worth"), "scorer: expected a scorer"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        BestOfNPolicy(*arguments)


# ---------------------------------------------------------------------------------------------------------------------
# The worth of an offer
def worths(observation, *actions: Action) -> list[float]:
    decisions = [decide(LLMPolicy(ScriptedChatModel([speech("x")])), observation)]
    decisions = [type(decisions[0])(action) for action in actions]
    return list(asyncio.run(OfferWorth().score(observation, decisions)))


def say(text: str) -> Action:
    return Action(ActionType.SPEAK, text)


@pytest.mark.parametrize("family", ["bargaining", "division", "hiring"])
def test_an_offer_is_worth_what_the_family_says(family):
    (played,) = tasks.generate(family, 1, seed=5)
    state = state_after(played, Action(ActionType.NONE))
    seen = observe(state, "agent_1")
    problem = tasks.family(family).problem(seen)
    best, middle = problem.candidates()[0], problem.candidates()[len(problem.candidates()) // 2]
    offers = [say(problem.phrase_offer(terms, 0)) for terms, _ in (best, middle)]
    assert worths(seen, *offers, say("Nice weather."), Action(ActionType.LEAVE)) == pytest.approx(
        [best[1], middle[1], 0.0, 0.0]
    )


def test_settling_is_worth_what_is_settled():
    (played,) = tasks.generate("bargaining", 1, seed=5)
    first = tasks.family("bargaining").problem(observe(state_after(played), "agent_0"))
    terms = first.candidates()[len(first.candidates()) // 2][0]
    seen = observe(state_after(played, first.phrase_offer(terms, 0)), "agent_1")
    problem = tasks.family("bargaining").problem(seen)
    accept = say(problem.phrase_accept(terms, 0))
    assert worths(seen, accept, say("Hm.")) == pytest.approx([problem.value(terms), 0.0])


def test_scoring_leaves_no_trace_in_what_is_read_afterwards():
    (played,) = tasks.generate("bargaining", 1, seed=5)
    seen = observe(state_after(played), "agent_0")
    problem = tasks.family("bargaining").problem(seen)
    worths(seen, say(problem.phrase_offer(problem.candidates()[0][0], 0)))
    assert list(tasks.family("bargaining").problem(seen).outgoing()) == []


def test_it_says_so_where_no_offer_can_be_read():
    with pytest.raises(PolicyError, match="task of a family"):
        decide(BestOfNPolicy(make("random"), 2, OfferWorth()), observed(task()))


def test_the_best_of_many_random_offers_asks_for_more():
    played = list(tasks.generate("bargaining", 6, seed=2))
    greedy = BestOfNPolicy(make("random-offers"), 8, OfferWorth())
    first = {}
    for policy in (make("random-offers"), greedy):
        plans = [EpisodePlan(t, (policy, make("silent")), Rules(max_turns=1)) for t in played]
        episodes = run_episodes(plans, progress=False).episodes
        first[policy.name] = sum(
            worths(observe(state_after(e.task), "agent_0"), e.turns[0].turn.action)[0] for e in episodes
        )
    assert first[greedy.name] > first["random-offers"] + 1
