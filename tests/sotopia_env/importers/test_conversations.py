"""Configurations of several agents, and conversations of ConvoKit; everybody in them is invented."""

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers import gathering
from sotopia_env.world import Rules
from sotopia_env.world.dynamics import initial_state
from sotopia_env.world.episode import Episode, replay, to_line
from sotopia_env.world.observation import observe
from tests.errors import raises
from tests.sotopia_env.importers.records import convert
from tests.sotopia_env.importers.samples import GAME, GROUP, corpus_line


def briefings(folder, record):
    products, conversion = convert(folder, [record])
    task = products[0].value
    texts = [observe(initial_state(task, Rules(), 0), agent).text for agent in task.agents]
    return task, texts, [note.reason for note in conversion.counts[0].notes]


def test_a_scene_of_three_is_a_task_with_private_messages(tmp_path):
    task, texts, notes = briefings(tmp_path, GROUP)
    assert [person.name for person in task.characters] == ["Ada Moss", "Bo Moss", "Cy Moss"]
    assert task.scenario.private_messages
    assert [[f"{name} is tired" in text for name in ("Ada", "Bo", "Cy")] for text in texts] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    assert any("simultaneous" in note for note in notes)


def test_a_game_gives_every_seat_its_own_role_alone(tmp_path):
    task, texts, notes = briefings(tmp_path, GAME)
    assert "The players are Ada, Bo, Cy. A fox wins {alone}." in task.scenario.context
    assert ["You are a fox" in text for text in texts] == [False, True, True]
    assert ["In your team: Cy." in text for text in texts] == [False, True, False]  # foxes meet at night
    assert any("Night, Day" in note for note in notes)


BAD = [
    ({**GAME, "agents": [*GAME["agents"][:2], {"name": "Cy", "role": "Foxx"}]},
     {"field": "agents.2.role", "nearest": "Fox"}),
    ({**GAME, "agents": [GAME["agents"][0]] * 2}, {"field": "participants"}),
    ({**GROUP, "agents": [*GROUP["agents"][:2], {**GROUP["agents"][2], "profile": {"age": "old"}}]},
     {"field": "agents.2.profile.age"}),
]  # fmt: skip


@pytest.mark.parametrize(("record", "fields"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_a_configuration_is_one_sentence(tmp_path, record, fields):
    with raises(DamagedRecordError, **fields):
        convert(tmp_path, [record])


THREADS = [
    corpus_line("a", "a", "ann", "Who has a spare key?", 3),
    corpus_line("x", "x", "zoe", "Rain.", "7"),
    corpus_line("c", "a", "t2: bob [mod]", "Mine.", 5),
    corpus_line("y", "x", "yan", "", "8"),
    corpus_line("b", "a", "cid", "Not me.", 4),
]


def test_conversations_are_gathered_from_a_file_in_any_order(tmp_path):
    products, conversion = convert(tmp_path, THREADS)
    assert (conversion.counts[0].read, conversion.counts[0].converted) == (5, 5)
    first, second = (Episode.model_validate_json(to_line(product.value)) for product in products)
    for episode in (first, second):
        replay(episode)
    words = [item.turn.action.argument for item in first.turns if item.turn.action.argument]
    assert words == ["Who has a spare key?", "Not me.", "Mine."]  # by time
    assert list(first.task.names.values()) == ["ann", "cid", "t2 bob mod"]
    assert (first.key, second.key) == ("a", "x")


def test_a_monologue_and_a_broken_line_cost_only_themselves(tmp_path):
    alone = corpus_line("m", "m", "ann", "Nobody here.", 1)
    products, conversion = convert(tmp_path, [*THREADS, alone, {"id": 3}], keep_going=True)
    assert len(products) == 2
    assert conversion.counts[0].left_out == 2


def test_a_file_of_conversations_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(gathering, "MOST_VALUES", 4)
    with raises(DamagedRecordError, line=5):
        convert(tmp_path, THREADS)
