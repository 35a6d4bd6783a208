"""Games of roles in SOTOPIA's and Kaggle's shapes become one day with a vote; everybody in them is invented."""

import asyncio
import copy
from collections import Counter
from fractions import Fraction

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.naming.policies import make_policy
from sotopia_env.outcomes.move import Move, MoveKind
from sotopia_env.tasks.families.mini_mafia import town_chance
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.play.table import Table
from sotopia_env.world.scenario import Task
from tests.errors import raises
from tests.sotopia_env.importers.records import convert
from tests.sotopia_env.importers.samples import VOTE_GAME, WEREWOLF_CONFIG


def task_of(folder, record) -> tuple[Task, list[str]]:
    products, conversion = convert(folder, [record])
    return products[0].value, [note.reason for note in conversion.counts[0].notes]


def payoffs(task, votes):
    """What each seat gains if it first speaks as often as it may, and then votes."""
    table = Table(task)
    while table.stop is None:
        (agent,) = table.acting
        talks = len(table.turns) < task.scenario.outcome.protocol.opens * len(task.agents)
        move = None if talks else Move(MoveKind.VOTE, votes[task.names[agent]])
        table.answer(agent, Action(ActionType.SPEAK, "Hm.", move=move))
    assert not any(turn.violation for turn in table.state.turns)
    return task.protocol.payoffs(table.state.table)


def changed(record, **changes):
    """A copy of a configuration of Werewolf with other parts."""
    config = copy.deepcopy(record["game_config"])
    return {"game_config": {**config, **changes}}


def players(*roles):
    return [{"role": role, "id": f"P{number}", "display_name": "x"} for number, role in enumerate(roles)]


def test_roles_are_dealt_and_a_pack_knows_itself(tmp_path):
    task, _ = task_of(tmp_path, VOTE_GAME)
    facts = task.scenario.facts
    assert [facts.truth[f"role of {name}"] for name in task.names.values()] == ["Hare", "Fox", "Fox", "Owl", "Hare"]
    assert facts.view("agent_1").knowledge == {"role of Bo": "Fox", "role of Cy": "Fox"}
    assert facts.view("agent_3").knowledge == {"role of Di": "Owl"}
    beliefs = facts.view("agent_0").beliefs()["role of Bo"]
    assert beliefs == {"Hare": 1 / 4, "Fox": 2 / 4, "Owl": 1 / 4}


def test_a_vote_against_the_hidden_team_is_worth_1_to_all_others(tmp_path):
    task, _ = task_of(tmp_path, VOTE_GAME)
    fox, hare = dict.fromkeys(task.names.values(), "Cy"), dict.fromkeys(task.names.values(), "Ed")
    assert payoffs(task, fox) == (1, 0, 0, 1, 1)
    assert payoffs(task, hare) == (0, 1, 1, 0, 0)


def test_the_day_has_its_rounds_of_talk_and_one_vote(tmp_path):
    task, _ = task_of(tmp_path, VOTE_GAME)
    assert (task.scenario.outcome.protocol.opens, task.scenario.max_turns) == (1, 10)
    assert task.scenario.outcome.protocol.secret
    assert not task.scenario.private_messages


def test_everything_that_is_left_out_is_counted_by_rule(tmp_path):
    _, notes = task_of(tmp_path, VOTE_GAME)
    assert Counter(note.partition(":")[0] for note in notes) == {
        "state_properties (roles)": 1,
        "state_transition (first vote)": 1,
        "end_conditions (first vote)": 2,
    }


FREE = [
    {"state_transition": {"Night": "Day", "Day": "Night"}},
    {"end_conditions": []},
    # A role of both teams does not tell who is hidden.
    {"agents": [*VOTE_GAME["agents"][:4], {"name": "Ed", "role": "Fox", "team": "Hares"}]},
]


@pytest.mark.parametrize("changes", FREE, ids=range(len(FREE)))
def test_without_a_vote_or_a_hidden_team_a_game_is_free_talk(tmp_path, changes):
    task, notes = task_of(tmp_path, {**VOTE_GAME, **changes})
    assert task.scenario.outcome is None
    assert task.scenario.facts is None
    assert any("free talk" in note for note in notes)


def test_the_smallest_werewolf_is_mini_mafia(tmp_path):
    task, notes = task_of(tmp_path, WEREWOLF_CONFIG)
    assert list(task.names.values()) == ["Ada", "Bo", "Cy"]  # Di, the last villager, was killed in the night
    assert [note.partition(":")[0] for note in notes] == ["night (fixed)"]
    facts = task.scenario.facts
    assert [len(facts.view(agent).knowledge) for agent in task.agents] == [1, 1, 3]
    assert facts.view("agent_0").beliefs()["role of Bo"] == {"Villager": 0, "Werewolf": 0.5, "Seer": 0.5}
    assert task.scenario.max_turns == 9


def test_the_town_wins_as_often_as_in_mini_mafia(tmp_path):
    """The Seer knows the Werewolf and nobody says a word: 7/12. A lot depends on names, so they differ."""
    games, wins = 300, 0
    names = [
        {**agent, "id": f"{agent['id']} {n}"} for n in range(60) for agent in WEREWOLF_CONFIG["game_config"]["agents"]
    ]
    configs = [changed(WEREWOLF_CONFIG, agents=names[4 * n : 4 * n + 4]) for n in range(60)]
    tasks = [product.value for product in convert(tmp_path, configs)[0]]
    for game in range(games):
        table = Table(tasks[game % 60], seed=game)
        asyncio.run(table.play(make_policy("mute")))
        wins += table.task.protocol.payoffs(table.state.table)[0]
    chance = town_chance([(1, 2), (0,), (0, 1)])
    assert chance == Fraction(7, 12)
    assert abs(wins / games - chance) < 3 * (chance * (1 - chance) / games) ** 0.5


MISSING = [
    ({"agents": players("Werewolf", "Werewolf", "Seer", "Villager", "Villager")}, "nights of 2 werewolves"),
    ({"agents": players("Werewolf", "Doctor", "Seer", "Villager", "Villager")}, "the role Doctor"),
    ({"agents": players("Werewolf", "Villager", "Villager", "Villager")}, "a game without a Seer"),
    ({"agents": players("Werewolf", "Seer", "Villager")}, "a night that leaves no Villager"),
    ({"agents": players("Werewolf", "Seer", *["Villager"] * 4)}, "a second day"),
    ({"agents": players("Werewolf", "Seer", *["Villager"] * 3),
      "day_voting_protocol": {"name": "SequentialVoting", "params": {"tie_break": "no_elected"}}}, "a second day"),
    ({"discussion_protocol": {"name": "TurnByTurnBiddingDiscussion"}}, "the discussion TurnByTurnBiddingDiscussion"),
    ({"day_voting_protocol": {"name": "Duel"}}, "the vote Duel"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "rule"), MISSING, ids=range(len(MISSING)))
def test_a_rule_that_is_missing_is_named(tmp_path, changes, rule):
    with raises(DamagedRecordError, field="game_config") as caught:
        convert(tmp_path, [changed(WEREWOLF_CONFIG, **changes)])
    assert rule in str(caught.value)


def test_a_tie_that_decides_nothing_lets_the_wolf_escape(tmp_path):
    protocol = {"name": "SequentialVoting", "params": {"tie_break": "no_elected"}}
    task, _ = task_of(tmp_path, changed(WEREWOLF_CONFIG, day_voting_protocol=protocol))
    assert payoffs(task, {"Ada": "Bo", "Bo": "Cy", "Cy": "Ada"}) == (0, 1, 0)
    assert payoffs(task, {"Ada": "Bo", "Bo": "Cy", "Cy": "Bo"}) == (1, 0, 1)
    assert not task.scenario.outcome.protocol.secret


def test_a_game_without_its_outer_key_is_told_which_one(tmp_path):
    with raises(DamagedRecordError) as caught:
        convert(tmp_path, [WEREWOLF_CONFIG["game_config"]])
    assert "kaggle-werewolf also needs game_config" in str(caught.value)


BAD = [
    ({"discussion_protocol": {"name": "RoundRobinDiscussion", "params": {"max_rounds": "two"}}},
     {"field": "game_config.discussion_protocol.params.max_rounds"}),
    ({"day_voting_protocol": {"name": "SequentialVoting", "params": {"tie_break": "randon"}}},
     {"field": "game_config.day_voting_protocol.params.tie_break", "nearest": "random"}),
    ({"agents": players("Werewolf", "Seer", "Villager")[:1] * 2}, {"field": "participants"}),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "fields"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_a_configuration_is_one_sentence(tmp_path, changes, fields):
    with raises(DamagedRecordError, **fields):
        convert(tmp_path, [changed(WEREWOLF_CONFIG, **changes)])
