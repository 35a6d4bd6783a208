"""Rewards of turns by what the others believe: sums, silence, aims, and the martingale of Bayesian beliefs."""

from __future__ import annotations

import asyncio
from statistics import fmean, stdev

import pytest

from sotopia_env.adapters.seat import Seats
from sotopia_env.evaluators.turn_rewards import belief_rewards
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.tasks.families.mini_mafia import HIDDEN, INFORMED, PLAIN, role_of
from sotopia_env.tasks.families.registry import generate
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, TurnOrder
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from tests.sotopia_env.evaluators.test_probes import game, scores
from tests.sotopia_env.tasks.test_mini_mafia import seats


def with_aims(task: Task, aims: dict[str, dict[str, str]]) -> Task:
    """The task with other ``aims``, by variable."""
    facts = task.scenario.facts
    variables = tuple(v.model_copy(update={"aims": aims.get(v.name, {})}) for v in facts.variables)
    scenario = task.scenario.model_copy(update={"facts": facts.model_copy(update={"variables": variables})})
    return Task(id=task.id, scenario=scenario, characters=task.characters, relationships=task.relationships)


def mean_truth(episode: Episode, turns: int) -> float:
    """The mean probability of the truth in all answers at one moment, without control questions."""
    truth = episode.task.scenario.facts.truth
    beliefs = [belief for belief in episode.evaluation().beliefs if belief.turns == turns and not belief.control]
    return fmean(belief.probabilities[truth[belief.variable]] for belief in beliefs)


@pytest.mark.parametrize("names", [("bayesian", "honest", "bayesian"), ("deceiver", "bayesian", "bayesian:doubt=0.2")])
def test_rewards_sum_to_the_change_of_belief(names):
    episode, _ = game(names, probe="turns")
    plain = episode.model_copy(update={"task": with_aims(episode.task, {})})
    total = sum(sum(belief_rewards(plain, agent).values) for agent in episode.task.agents)
    # No script learns anything in its own turn, so that the turns of the others explain every change.
    assert total == pytest.approx(mean_truth(episode, 9) - mean_truth(episode, 0))
    assert total != 0


def test_silence_gets_nothing_and_a_belief_of_the_speaker_is_never_counted():
    episode, agents = game(("mute", "honest", "bayesian:doubt=0"), probe="turns")
    honest, mute = (belief_rewards(episode, agents[role]) for role in (INFORMED, HIDDEN))
    assert mute.values == (0, 0, 0)
    assert sum(honest.values) > 0
    assert scores(episode.evaluation(), agents[INFORMED])["persuasion"] == pytest.approx(sum(honest.values))
    own = [b for b in episode.evaluation().beliefs if b.respondent == agents[PLAIN]]
    changed = tuple(b.model_copy(update={"shares": b.shares[::-1]}) for b in own)
    others = tuple(b for b in episode.evaluation().beliefs if b.respondent != agents[PLAIN])
    assert belief_rewards(episode, agents[PLAIN], (*others, *changed)) == belief_rewards(episode, agents[PLAIN])


def test_a_liar_is_paid_for_what_it_aims_at():
    stories = []
    for seed in range(8):
        episode, agents = game(("deceiver", "mute", "bayesian:doubt=0"), seed, probe="turns")
        plain = episode.model_copy(update={"task": with_aims(episode.task, {})})
        by_aims, by_truth = (sum(belief_rewards(one, agents[HIDDEN]).values) for one in (episode, plain))
        move = next(turn.action.move for turn in episode.plain_turns if turn.actor == agents[HIDDEN])
        accused = next(
            n for n, role in move.content.items() if role == episode.task.scenario.shared_data["roles"]["hidden"]
        )
        stories.append(accused == role_of(episode.task.names[agents[INFORMED]]))
        # A villager does not believe a story in which it is the mafioso itself.
        assert (by_aims > 0 > by_truth) if stories[-1] else (by_aims == by_truth == 0)
    assert set(stories) == {True, False}


def test_the_mean_change_of_a_bayesian_belief_in_a_fixed_option_is_zero():
    """Speakers lie as often as is assumed; a belief in the truth, unlike one in a fixed option, grows on average."""
    policy = make_policy("bayesian:lies=0.5,doubt=0.5")
    evaluator = make_evaluator("facts:probe=turns", policies=[policy])
    fixed: list[float] = []
    truth: list[float] = []
    for number in range(100):
        task = generate("mini_mafia", 1, 0, "medium", start=number)[0]
        name = role_of(next(iter(task.names.values())))
        label = task.scenario.shared_data["roles"]["hidden"]
        task = with_aims(task, {name: dict.fromkeys(task.agents, label)})
        table = Table(task, Rules(max_turns=3), seed=number)
        asyncio.run(table.play(policy))
        asyncio.run(table.evaluate(evaluator))
        episode = table.episode()
        fixed += [sum(sum(belief_rewards(episode, agent).values) for agent in task.agents)]
        plain = episode.model_copy(update={"task": with_aims(task, {})})
        truth += [sum(sum(belief_rewards(plain, agent).values) for agent in task.agents)]
    assert any(fixed)
    assert abs(fmean(fixed)) < 2 * stdev(fixed) / len(fixed) ** 0.5
    assert fmean(truth) > 2 * stdev(truth) / len(truth) ** 0.5


# --- where they come from and go to -------------------------------------------------------------------------------


def test_without_beliefs_after_every_turn_or_with_turns_at_once_there_are_none():
    episode, agents = game(("mute", "honest", "bayesian"), probe="end")
    with pytest.raises(InvalidValueError, match="probe=turns"):
        belief_rewards(episode, agents[INFORMED])
    veiled = episode.model_copy(update={"rules": Rules(turn_order=TurnOrder.SIMULTANEOUS)})
    with pytest.raises(InvalidValueError, match="one after the other"):
        belief_rewards(veiled, agents[INFORMED])


def test_a_seat_of_a_trainer_gets_the_change_of_its_partners_beliefs():
    task = generate("mini_mafia", 1, 0)[0]
    agents = seats(task)
    focal = agents[INFORMED]
    partners = {agents[HIDDEN]: "mute", agents[PLAIN]: "bayesian:doubt=0"}
    table = Table(task, seed=0)
    group = Seats(table, partners, evaluator="verified+facts:probe=turns", turns="belief")
    seat, words = group[focal], iter(["Hello."])
    asyncio.run(group.play())
    assert seat.turn_rewards is None
    accusation = {role_of(task.names[agents[HIDDEN]]): task.scenario.shared_data["roles"]["hidden"]}
    while not seat.done:
        move = None if seat.info["own_turns"] != 1 else {"state": accusation}
        seat_action = Action(ActionType.SPEAK, next(words, "Well."))
        seat.take(seat_action if move is None else {"action_type": "speak", "argument": "It was them.", "move": move})
        asyncio.run(group.play())
    first, second, third = seat.turn_rewards
    assert first == third == 0
    assert second > 0
    assert seat.reward is not None
    assert seat.step_reward(by_turn=True) == third
    with pytest.raises(UnknownNameError, match="belief"):
        Seats(Table(task), partners, turns="beliefs")
