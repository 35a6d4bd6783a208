"""Scenarios in the shape of SOTOPIA-TOM's; everybody in them is invented."""

import asyncio
import copy
import json
from collections import Counter
from statistics import fmean

import pytest

from sotopia_env.evaluators.information import information_measures
from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.formats.facts.tom import NOTHING_WANTED, VERSIONS, TomScenario
from sotopia_env.importers.importing import import_files
from sotopia_env.naming.policies import make_policy
from sotopia_env.outcomes.move import Move, MoveKind
from sotopia_env.world import Rules
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import initial_state
from sotopia_env.world.episode import read_episodes, replay
from sotopia_env.world.observation import observe
from sotopia_env.world.play.table import Table
from tests.errors import raises
from tests.sotopia_env.cli.test_cli import sotopia
from tests.sotopia_env.importers.records import convert
from tests.sotopia_env.importers.samples import TOM_AGENTS, TOM_SCENARIO, tom_agent

BAKER, HOST, CLERK = "agent_0", "agent_1", "agent_2"


def task_of(folder, record=TOM_SCENARIO):
    products, conversion = convert(folder, [record])
    return products[0].value, [note.reason for note in conversion.counts[0].notes]


def texts(task):
    return [observe(initial_state(task, Rules(), 0), agent).text for agent in task.agents]


def test_a_fact_has_its_knowers_channel_and_secrecy(tmp_path):
    task, _ = task_of(tmp_path)
    facts = task.scenario.facts.by_name
    table = {name: (v.known_by, v.channel, v.may_know, v.wanted_by) for name, v in facts.items()}
    assert table == {
        "Number of loaves": ((BAKER,), "all", "all", (HOST,)),
        "Recipe sourdough": ((BAKER,), "private", (), ()),  # wanted, and not to be shared
        "Oven repair": ((BAKER,), "private", (CLERK,), (CLERK,)),  # the host cannot know it
        "Rent of the stall": ((HOST,), "all", "all", (BAKER,)),
        "Guest of honour": ((HOST,), "private", (), ()),
        "Queue plan": ((CLERK,), "all", "all", ()),
    }
    assert [character.name for character in task.characters] == ["Baker", "Host", "Clerk of works"]
    assert task.scenario.private_messages


def test_every_key_that_is_not_a_fact_is_named_with_its_rule(tmp_path):
    _, notes = task_of(tmp_path)
    assert Counter(note.partition(":")[0] for note in notes) == {
        "desired_knowledge (unmatched)": 2,
        "desired_knowledge (withheld)": 1,
        "what_to_share (by words)": 1,
        "what_not_to_share (by words)": 1,
        "cannot_know_knowledge (by words)": 1,
    }
    assert any("'Colour of the tent' names no fact" in note for note in notes)


def test_a_key_that_fits_several_facts_is_left_out(tmp_path):
    record = copy.deepcopy(TOM_SCENARIO)
    record["agents"][1]["pre_interaction_knowledge"]["Rent of the tent"] = {"value": "9", "sensitivity": "public"}
    record["agents"][0]["post_interaction_knowledge"]["desired_knowledge"] = ["Rent"]
    task, notes = task_of(tmp_path, record)
    assert any("'Rent' fits 2 facts" in note for note in notes)
    assert not task.scenario.facts.by_name["Rent of the stall"].wanted_by


def test_words_of_a_fact_stand_in_the_briefing_of_its_knower_alone(tmp_path):
    task, _ = task_of(tmp_path)
    for words, owner in (("ninety", 0), ("rye, salt", 0), ("40 coins", 1), ("the old mayor", 1), ("two rows", 2)):
        assert [words in text for text in texts(task)] == [seat == owner for seat in range(3)]


def test_what_a_scenario_says_about_the_end_is_read_by_nobody(tmp_path):
    task, _ = task_of(tmp_path)
    for text in texts(task):
        assert "Colour of the tent" not in text
        assert "The oven repair date" not in text
        assert "are to learn" not in text
    assert all(not task.scenario.facts.view(agent).targets for agent in task.agents)
    # A seat does not read of facts that it may not know.
    assert ["Oven repair" in text for text in texts(task)] == [True, False, True]


def test_the_true_version_is_not_told_by_its_letter():
    agents = [tom_agent(1, "Ann", {f"Fact {n}": f"text {n}" for n in range(400)}), TOM_AGENTS[2]]
    scenario = TomScenario.of({**TOM_SCENARIO, "agents": agents})
    counts = Counter(scenario.version(f"Fact {n}") for n in range(400))
    assert set(counts) == set(VERSIONS)
    assert all(abs(count - 100) < 45 for count in counts.values())  # five standard deviations of 8.7


def test_without_a_wanted_fact_the_task_says_so(tmp_path):
    agents = [tom_agent(1, "Ann", {"Hour": "nine"}, [], [], ["Hour"]), tom_agent(2, "Bob", {"Day": "Sunday"})]
    task, _ = task_of(tmp_path, {**TOM_SCENARIO, "agents": agents, "sector": "Trade"})
    assert task.scenario.tags == ("sotopia-tom", "Trade", NOTHING_WANTED)


BAD = [
    # No key of any list is a fact: the record is refused with the key to write.
    ([tom_agent(1, "Ann", {"Hour": "nine"}, ["Dya of rest"]), tom_agent(2, "Bob", {"Day of rest": "Sunday"})],
     {"field": "agents.0.post_interaction_knowledge.desired_knowledge", "nearest": "Day of rest"}),
    ([tom_agent(1, "Ann", {"View": "yes"}), tom_agent(2, "Bob", {"View": "no"})],
     {"field": "agents.1.pre_interaction_knowledge.View", "got": "no"}),
    ([tom_agent(1, "Ann", {"Hour": "nine"}), tom_agent(2, "Ann", {"Day": "Sunday"})], {"field": "participants"}),
    ([{**TOM_AGENTS[0], "goals": {}}, TOM_AGENTS[1]], {"field": "agents.0.goals.primary_objective"}),
]  # fmt: skip


@pytest.mark.parametrize(("agents", "fields"), BAD, ids=range(len(BAD)))
def test_a_scenario_that_cannot_be_read_is_one_sentence(tmp_path, agents, fields):
    with raises(DamagedRecordError, **fields):
        convert(tmp_path, [{**TOM_SCENARIO, "agents": agents}])


def test_a_value_that_two_agents_share_is_one_fact(tmp_path):
    agents = [tom_agent(1, "Ann", {"Hour": "nine"}), tom_agent(2, "Bob", {"Hour": "nine"}), TOM_AGENTS[2]]
    task, _ = task_of(tmp_path, {**TOM_SCENARIO, "agents": agents})
    assert task.scenario.facts.by_name["Hour"].known_by == (BAKER, HOST)


def test_a_repeated_scenario_is_refused_and_the_other_is_played(tmp_path):
    (tmp_path / "scenarios.json").write_text(json.dumps([TOM_SCENARIO, TOM_SCENARIO]))
    assert import_files([tmp_path / "scenarios.json"], tmp_path / "out", keep_going=True).refused == 1
    file, run = tmp_path / "out" / "tasks.jsonl", tmp_path / "run"
    sotopia("rollout", "--tasks", file, "--policy", "random", "--evaluator", "none", "--out", run)
    (episode,) = read_episodes(run / "episodes.jsonl")
    assert not episode.task.scenario.facts.open_wants
    assert len(replay(episode).turns) == len(episode.turns) > 0


def test_a_private_fact_is_learned_by_the_one_to_whom_it_is_shown(tmp_path):
    task, _ = task_of(tmp_path)
    table = Table(task)
    table.answer(BAKER, Action(ActionType.SPEAK, "On Tuesday.", to=(CLERK,), move=Move(MoveKind.SHOW, "Oven repair")))
    version = task.scenario.facts.truth["Oven repair"]
    assert [f"Oven repair = {version}" in table.observe(agent).text for agent in (HOST, CLERK)] == [False, True]


def measures(task, name):
    """The measures of SOTOPIA-TOM for three seats of one script, over the seats to which they apply."""
    table = Table(task, Rules(max_turns=30))
    asyncio.run(table.play(make_policy(name)))
    assert not any(turn.violation for turn in table.state.turns)
    seats = information_measures(task, table.state.turns, horizon=8).values()
    fields = ("disclosure", "acquisition", "breaches")
    return {field: fmean(v for seat in seats if (v := getattr(seat, field)) is not None) for field in fields}


def test_scripts_that_read_only_their_own_briefing_anchor_the_measures(tmp_path):
    """A seat that does not read what it is to learn can ask for everything, so the oracle is perfect here, too."""
    record = copy.deepcopy(TOM_SCENARIO)
    record["agents"][2]["pre_interaction_knowledge"]["Fee"] = {"value": "two", "sensitivity": "private"}
    task, _ = task_of(tmp_path, record)
    assert task.scenario.facts.by_name["Fee"].may_know == "all"
    assert measures(task, "oracle") == {"disclosure": 1, "acquisition": 1, "breaches": 0}
    # The baker withholds one of three, the host one of two, the clerk none of two.
    assert measures(task, "silent") == pytest.approx(
        {"disclosure": (1 / 3 + 1 / 2) / 3, "acquisition": 0, "breaches": 0}
    )
