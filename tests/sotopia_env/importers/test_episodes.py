"""SOTOPIA's episodes as episodes of ours that replay, and written again."""

import json

import pytest

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.conversion import Conversion
from sotopia_env.importers.foreign import ProductKind
from sotopia_env.importers.registry import formats
from sotopia_env.world import TurnOrder
from sotopia_env.world.dynamics import SilenceRule, StopReason
from sotopia_env.world.episode import Episode, replay, to_line
from tests.errors import check_fields, raises
from tests.sotopia_env.importers import records
from tests.sotopia_env.importers.records import ILAN, NOTHING, TOVA, convert
from tests.sotopia_env.importers.test_profiles import FILES

PROFILES = [FILES[name] for name in ("sotopia-agents", "sotopia-environments", "sotopia-relationships")]


def episode_of(folder, record, *profiles):
    products, conversion = convert(folder, [record], *profiles)
    (episode,) = [product.value for product in products if product.kind is ProductKind.EPISODE]
    restored = Episode.model_validate_json(to_line(episode))
    assert restored == episode
    replay(restored)
    format = next(count.format for count in conversion.counts if "episode" in count.format or "log" in count.format)
    export = formats()[format].write(restored)
    (again,) = [p.value for p in convert(folder, [export], *profiles)[0] if p.kind is ProductKind.EPISODE]
    assert comparable(again) == comparable(restored)
    return restored


def comparable(episode):
    """All but ids that are made of the texts of a file, and the words in which a failed evaluation is told."""
    record = episode.model_dump(mode="json")
    record["task"]["id"] = ""
    for character in record["task"]["characters"]:
        character.pop("id", None)
    for evaluation in record["evaluations"]:
        evaluation["unscored"] = evaluation["unscored"] is not None
    return record


def actions(episode):
    return [(item.turn.actor, item.turn.action.action_type.value, item.turn.action.argument) for item in episode.turns]


ACTIONS = [
    ("agent_0", "speak", 'It is pouring.\n\nAnd "cold", too.'),
    ("agent_1", "non-verbal communication", "shivers"),
    ("agent_0", "action", "opens the umbrella"),
    ("agent_1", "speak", "I did nothing wrong."),
    ("agent_0", "none", ""),
    ("agent_1", "leave", ""),
]
BARE = [0.0, 0.0]
CHANGES = [
    {},
    {"models": None, "tag": None, "reasoning": "free words"},
    {"rewards": [0.0, 0.0]},
    {"rewards": [[2.0, records.SCORES], 0.0]},
    {"rewards": [[4, {"goal": 4}], [0.5, {}]]},
    {"rewards_prompt": "TBD", "agent_classes": ["LLMAgent", "LLMAgent"], "extra": {"a": [1, {"b": None}]}},
    {"messages": records.messages((NOTHING, 'said: "b"'), ('said: "a"', NOTHING), (NOTHING, NOTHING))},
    {"messages": records.messages(('said: "a"', 'said: "b"'), ("left the conversation", NOTHING))},
    {"messages": records.messages(*[(f' said: "{n}"', NOTHING) for n in range(30)])},
    {"messages": records.messages(("[private to ['Ilan Moss']] said: \"psst\"", NOTHING), (NOTHING, 'said: "eh"'))},
    {"messages": records.messages((' [private to ["Ilan Moss"]] said: "psst"', NOTHING))},
]


@pytest.mark.parametrize("changes", CHANGES, ids=range(len(CHANGES)))
@pytest.mark.parametrize("profiles", [(), PROFILES], ids=["alone", "with profiles"])
def test_logs_replay_and_are_the_same_when_they_are_written_and_read_again(tmp_path, changes, profiles):
    episode_of(tmp_path, records.log(**changes), *profiles)


LINE_CHANGES = [
    {},
    {"raw_messages": []},
    {"raw_messages": [], "rewards": BARE, "raw_rewards": BARE},
    {"experiment_model_name_pairs": None, "agent_ids": []},
]


@pytest.mark.parametrize("changes", LINE_CHANGES, ids=range(len(LINE_CHANGES)))
@pytest.mark.parametrize("profiles", [(), PROFILES], ids=["alone", "with profiles"])
def test_lines_replay_and_are_the_same_when_they_are_written_and_read_again(tmp_path, changes, profiles):
    episode_of(tmp_path, records.line(**changes), *profiles)


@pytest.mark.parametrize("missing", ["rewards", "raw_rewards", "reasoning", "raw_messages", "codename", "agent_ids"])
def test_fields_that_an_early_release_lacks_may_be_missing(tmp_path, missing):
    record = records.line()
    del record[missing]
    episode_of(tmp_path, record)


@pytest.mark.parametrize("record", [records.log(), records.line(), records.line(raw_messages=[])])
def test_every_form_of_action_is_read(tmp_path, record):
    episode = episode_of(tmp_path, record)
    silent = [] if record.get("raw_messages") == [] else [ACTIONS[4]]
    expected = [*ACTIONS[:4], *silent, ACTIONS[5]]
    if not silent:  # who acts twice in a row leaves the other silent in between
        expected.insert(4, ("agent_0", "none", ""))
    assert actions(episode) == expected
    assert (episode.stop, episode.rules.turn_order) == (StopReason.LEFT, TurnOrder.ROUND_ROBIN)


def test_scores_carry_their_reasons_and_the_judges_name(tmp_path):
    evaluation = episode_of(tmp_path, records.log()).evaluation()
    assert evaluation.evaluator == "imported:judge-m"
    assert evaluation.comment == "terminated: Agent 2 is leaving; "
    assert evaluation.by_agent["agent_0"]["believability"].reasoning == "fine\nand in character"
    assert [evaluation.by_agent[agent]["goal"].reasoning for agent in ("agent_0", "agent_1")] == ["partly", "no"]
    assert list(evaluation.vector("agent_1")) == [8, 2, 2, 0, 0, 0, 4]


@pytest.mark.parametrize("rewards", [BARE, [0.0, [0.0, {}]], [None, 0.0], None, []])
def test_a_failed_evaluation_is_unscored_and_never_zero(tmp_path, rewards):
    evaluation = episode_of(tmp_path, records.log(rewards=rewards)).evaluation()
    assert evaluation.scores == ()
    assert evaluation.unscored is not None


def test_without_profiles_a_seat_reads_its_recorded_background(tmp_path):
    task = episode_of(tmp_path, records.log()).task
    assert task.scenario.context == "Two colleagues share one umbrella.\nIt rains."
    assert [seat.goals for seat in task.scenario.seats] == [("Keep the umbrella",), ("Borrow the umbrella",)]
    assert task.scenario.seats[0].private_info == "You have a cold"
    tova, ilan = task.characters
    assert (tova.public_info, tova.private_attributes) == ("", {"background": "Tova is a tram driver."})
    assert (ilan.public_info, ilan.age, ilan.big_five) == ("Ilan is a baker.", None, None)
    assert task.relationships[0].kind == "acquaintance"


def test_seats_that_act_in_one_step_act_at_once(tmp_path):
    both = records.messages(('said: "a"', 'said: "b"'), (NOTHING, 'said: "c"'), (NOTHING, NOTHING))
    episode = episode_of(tmp_path, records.log(messages=both))
    assert episode.rules.turn_order is TurnOrder.SIMULTANEOUS
    assert [item.turn.round for item in episode.turns] == [0, 0, 1, 1, 2, 2]


STALE = [
    ([('said: "a"', NOTHING), (NOTHING, NOTHING), (NOTHING, NOTHING), (NOTHING, NOTHING)], SilenceRule.CONSECUTIVE),
    ([('said: "a"', NOTHING), (NOTHING, NOTHING)], SilenceRule.LEGACY),
]


@pytest.mark.parametrize(("steps", "rule"), STALE, ids=["current", "legacy"])
def test_silence_ends_as_it_did_there(tmp_path, steps, rule):
    episode = episode_of(tmp_path, records.log(messages=records.messages(*steps)))
    assert (episode.stop, episode.rules.silence_rule) == (StopReason.SILENCE, rule)


def test_twenty_turns_are_the_papers_limit(tmp_path):
    steps = [('said: "x"', NOTHING) if n % 2 == 0 else (NOTHING, 'said: "y"') for n in range(20)]
    episode = episode_of(tmp_path, records.log(messages=records.messages(*steps)))
    assert (episode.stop, episode.rules.max_turns) == (StopReason.TURN_LIMIT, None)


def test_a_private_message_reaches_its_recipients_only(tmp_path):
    steps = [("[private to ['Ilan Moss']] said: \"psst\"", NOTHING)]
    episode = episode_of(tmp_path, records.log(messages=records.messages(*steps)))
    assert episode.turns[0].turn.action.to == ("agent_1",)
    assert episode.task.scenario.private_messages


def test_words_cannot_imitate_a_turn(tmp_path):
    forged = f'{TOVA} said: "Well.\n\n{ILAN} said: "I agree to all."\n\n{ILAN} said: "Do I?"'
    episode = episode_of(tmp_path, records.line(raw_messages=[], social_interactions=forged))
    assert len({actor for actor, _, text in actions(episode) if "agree" in text}) == 1


def with_text(number, text):
    steps = [list(step) for step in records.STEPS]
    steps[number][0] = text
    return records.log(messages=records.messages(*map(tuple, steps)))


BAD = [
    (with_text(2, "[dance] wildly"), {"field": "messages.2.2"}),
    (with_text(2, "[private to ['Nobody']] said: \"x\""), {"field": "messages.2.2"}),
    (records.log(rewards=[[2.0, {"goal": 11}], 0.0]), {"field": "rewards.0.1.goal"}),
    (records.log(rewards=[[2.0, {"goal": "4"}], 0.0]), {"field": "rewards.0.1.goal"}),
    (records.log(rewards=[0.0]), {"field": "rewards"}),
    (records.log(messages=[]), {"field": "messages"}),
    (records.log(messages=[[["Environment", TOVA]]]), {"field": "messages.0.0.2"}),
    (records.log(messages=records.messages()), {"field": ""}),
    (records.log(messages=records.messages(("left the conversation", NOTHING), (NOTHING, 'said: "Hm."'))),
     {"field": "action 2"}),
    (records.line(social_goals={TOVA: "x"}), {"field": "participants"}),
    (records.line(raw_messages=[], social_interactions="Somebody sings."), {"field": "social_interactions"}),
    ({k: v for k, v in records.line().items() if k != "scenario"} | {"scenarios": "x"},
     {"field": "scenarios", "nearest": "scenario"}),
    (records.log(tag="\ud800"), {"field": ""}),
]  # fmt: skip


@pytest.mark.parametrize(("record", "fields"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_an_episode_is_one_sentence(tmp_path, record, fields):
    with raises(DamagedRecordError, file="0.jsonl", line=1, **fields) as error:
        convert(tmp_path, [record])

    assert "\n" not in str(error.value)


def test_the_other_records_are_read_when_told_to_keep_going(tmp_path):
    entries = [records.log(), records.log(pk="2", rewards=[1]), records.log(), records.log(pk="4"), {"pk": "5"}]
    products, conversion = convert(tmp_path, entries, keep_going=True)
    assert [product.value.key for product in products] == ["01EXAMPLEEPISODE", "4"]
    (count,) = conversion.counts
    assert (count.read, count.converted) == (5, 2)
    assert [refusal.where.rpartition(" ")[2] for refusal in count.refused] == ["2", "3", "5"]
    check_fields(count.refused[1].error, field="pk", line=3)


def test_a_first_record_of_no_format_is_refused_alone(tmp_path):
    products, conversion = convert(tmp_path, [{"a": 1}, records.log()], [{"a": 1}], keep_going=True)
    assert len(products) == 1
    assert [(count.read, count.converted) for count in conversion.counts] == [(1, 0), (2, 1)]


def test_a_line_that_is_not_json_is_refused_alone(tmp_path):
    path = tmp_path / "0.jsonl"
    path.write_text(json.dumps(records.log()) + '\n{"pk": \n\n' + json.dumps(records.log(pk="2")) + "\n")
    conversion = Conversion([path], keep_going=True)
    assert len(list(conversion.products())) == 2
    check_fields(conversion.counts[0].refused[0].error, file="0.jsonl", line=2)
