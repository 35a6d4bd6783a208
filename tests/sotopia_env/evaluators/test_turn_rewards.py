"""Rewards of single turns: exact sums, open offers, and continuations."""

from __future__ import annotations

import asyncio

import pytest

from sotopia_env import naming
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.evaluators.turn_rewards import GOAL, counterfactual_rewards, standing, standing_rewards, state_values
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.world import Action, Rules, TurnOrder
from sotopia_env.world.action import ActionType
from sotopia_env.world.episode import Episode
from sotopia_env.world.outcome import outcome_of
from sotopia_env.world.play.continuations import Continuations
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import Scalarisation

FAMILIES = ("bargaining", "division", "negotiation", "job_committee", "group_decision", "mutual_friend", "campsite")


def play(family: str, policy: str, rules: Rules, n: int = 4) -> list[Episode]:
    tasks = naming.task_set(family, n, 3, "medium")
    policies = [(naming.make_policy(policy),) * len(tasks[0].agents)]
    return asyncio.run(
        run_episodes(plan_episodes(tasks, policies, rules=rules), evaluator=VerifiedOutcome(), progress=False)
    ).episodes


@pytest.mark.parametrize("order", [TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_rewards_of_an_episode_sum_to_its_reward(family, order):
    total = 0
    for policy in ("random-offers", "linear", "random", "leaver"):
        for episode in play(family, policy, Rules(turn_order=order, max_turns=24)):
            for agent in episode.task.agents:
                rewards = standing_rewards(episode, agent)
                final = GOAL(episode.evaluations[-1].vector(agent, GOAL.dimensions))
                assert rewards.baseline + sum(rewards.values) == pytest.approx(final)
                for other in (Scalarisation.of({"goal": 1, "fin": 2}), Scalarisation.of("fin")):
                    final = other(episode.evaluations[-1].vector(agent, other.dimensions))
                    rewards = standing_rewards(episode, agent, other)
                    assert rewards.baseline + sum(rewards.values) == pytest.approx(final)
                rewards = standing_rewards(episode, agent, Scalarisation.of("share"))
                share = episode.evaluations[-1].outcome.shares[episode.task.seat_of[agent]]
                assert rewards.baseline + sum(rewards.values) == pytest.approx(share)
                assert len(rewards.values) == sum(turn.actor == agent for turn in episode.plain_turns)
                total += any(rewards.values)
    assert total, "no episode of this family moved anything"


def table_of(*actions: Action) -> Table:
    table = Table(naming.task_set("bargaining", 1, 0, "medium")[0], Rules(max_turns=8))
    for action in actions:
        assert table.answer(table.acting[0], action) is None
    return table


def test_an_offer_is_worth_what_accepting_it_pays_and_nothing_after_the_end():
    price = {"price": 98}
    table = table_of(Action(ActionType.SPEAK, "Well?"), Action(ActionType.SPEAK, "98.", move={"propose": price}))
    task, turns = table.task, table.episode().plain_turns
    accepted = table.fork(2, Action(ActionType.SPEAK, "Fine.", move={"accept": 1})).episode()
    share = outcome_of(task, accepted.plain_turns).shares[0]
    assert share > 0
    assert standing(task, turns, "agent_0") == pytest.approx(min(share, 1))
    assert standing(task, turns, "agent_1") == 0, "its own offer needs the other's assent"
    rewards = standing_rewards(accepted, "agent_0")
    assert rewards.by_turn == {0: pytest.approx(min(share, 1)), 2: 0.0}, "the offer was what it gained, not the assent"
    left = table.fork(2, Action(ActionType.LEAVE)).episode()
    assert standing_rewards(left, "agent_0").by_turn == {
        0: pytest.approx(min(share, 1)),
        2: pytest.approx(-min(share, 1)),
    }


def test_a_task_without_an_outcome_has_no_such_rewards():
    task = naming.task_set("starter", None, 0, "medium")[0]
    with pytest.raises(InvalidValueError):
        standing_rewards(Table(task).episode(), task.agents[0])


def test_a_reward_that_needs_a_judge_has_no_measured_parts():
    with pytest.raises(InvalidValueError) as caught:
        standing_rewards(table_of(Action(ActionType.SPEAK, "Well?")).episode(), "agent_0", Scalarisation.of("overall"))
    assert caught.value.field == "scalarisation"


def gains(episode: Episode, agent: str, samples: int = 2):
    continuations = Continuations(lambda info: naming.make_policy(info.name), VerifiedOutcome())
    values = asyncio.run(state_values(episode, continuations, samples, agent))
    return counterfactual_rewards(episode, agent, values)


def test_continuations_measure_what_a_turn_changes():
    episode = play("bargaining", "linear", Rules(max_turns=12), 1)[0]
    rewards = gains(episode, "agent_0")
    # These policies draw nothing, so every continuation is the episode and no turn of its own changes it.
    assert set(rewards.values) == {0.0}
    assert set(rewards.errors.values()) == {0.0}
    assert rewards.episodes <= 4 * len(rewards.values)
    # Another action than the policy's does.
    own = sorted(rewards.by_turn)
    left = Table.resume(episode).fork(own[-1], Action(ActionType.LEAVE)).episode()
    reward = GOAL(episode.evaluations[-1].vector("agent_0", GOAL.dimensions))
    assert gains(left, "agent_0").by_turn[own[-1]] == pytest.approx(-reward)
    with pytest.raises(InvalidValueError):
        gains(episode, "agent_0", samples=0)


def test_every_state_is_measured_once_for_all_seats_and_one_sample_has_no_error():
    episode = play("division", "random-walk", Rules(max_turns=10), 1)[0]
    continuations = Continuations(lambda info: naming.make_policy(info.name), VerifiedOutcome())
    values = asyncio.run(state_values(episode, continuations, 3))
    assert [len(values[state]) for state in sorted(values)] == [3] * len(episode.turns) + [1]
    for agent in episode.task.agents:
        rewards = counterfactual_rewards(episode, agent, values)
        assert rewards == gains(episode, agent, 3)
        assert None not in rewards.errors.values()
    assert set(gains(episode, "agent_0", samples=1).errors.values()) == {None}
