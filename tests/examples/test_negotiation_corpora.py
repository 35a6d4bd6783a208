"""Negotiation corpora as episodes with moves, by formats of another package; all dialogues are invented."""

import json

import pytest

from sotopia_env.foundation.errors import DamagedRecordError, InvalidValueError
from sotopia_env.importers.conversion import Conversion
from sotopia_env.importers.exporting import export_records
from sotopia_env.importers.importing import import_files
from sotopia_env.importers.registry import formats
from sotopia_env.world.episode import Episode, replay, to_line
from sotopia_env.world.outcome import outcome_of
from tests.errors import raises
from tests.examples.negotiation_games import CONFIG, SALE
from tests.sotopia_env.importers.records import convert, write
from tests.sotopia_env.importers.samples import OTHERS, SAMPLES, detected, misreadings

pytestmark = pytest.mark.usefixtures("negotiation_package")


def dond(own, other, dialogue, output):
    return (
        f"<input> {own} </input> <dialogue> {dialogue} </dialogue> <output> {output} </output> "
        f"<partner_input> {other} </partner_input>"
    )


A, B = "2 1 3 2 1 2", "2 2 3 0 1 6"
TALK = "YOU: i don't need the books ? <eos> THEM: fine . <eos> YOU: <selection>"
MIRRORED = "THEM: i don't need the books ? <eos> YOU: fine . <eos> THEM: <selection>"
DEAL, DEAL_MIRRORED = (
    "item0=0 item1=3 item2=0 item0=2 item1=0 item2=1",
    "item0=2 item1=0 item2=1 item0=0 item1=3 item2=0",
)
SPLIT_WRONGLY = "item0=2 item1=3 item2=0 item0=2 item1=0 item2=1"
SIX = {"<no_agreement>": " ".join(["<no_agreement>"] * 6), "<disagree>": " ".join(["<disagree>"] * 6)}


def items(*values):
    counts = {"book": 2, "hat": 3, "ball": 1}
    return [{"Name": name, "Count": counts[name], "Value": value} for name, value in zip(counts, values, strict=True)]


def event(agent, time, action, data, **more):
    return {"agent": agent, "time": time, "action": action, "data": data, **more}


DOND_COCOA = {
    "uuid": "D1",
    "scenario_uuid": "S1",
    "scenario": {"uuid": "S1", "attributes": [], "kbs": [items(1, 2, 2), items(2, 0, 6)]},
    "agents": {"0": "human", "1": "rulebased"},
    "agents_info": None,
    "events": [
        event(1, "1.5", "message", "hi", start_time=1.0, metadata=None),
        event(1, 2.5, "message", "hats?", start_time=None, metadata=None),
        event(0, 3.5, "select", {"book": 0, "hat": 3, "ball": 0}, metadata=None),
        event(1, 4.5, "select", {"book": 2, "hat": 0, "ball": 1}, metadata=None),
    ],
    "outcome": {"reward": {"0": 6, "1": 10}, "agreed": True, "valid_deal": True, "item_split": [{}, {}]},
}
BIKE = {"Category": "bike", "Title": "Old bike", "Price": 120, "Description": ["Red.", "Rides."], "Images": []}
CRAIGSLIST_COCOA = {
    "uuid": "C1",
    "scenario_uuid": "S2",
    "scenario": {
        "uuid": "S2",
        "kbs": [
            {
                "personal": {"Role": "buyer", "Target": 84.0, "Bottomline": None},
                "item": BIKE,
            },
            {"personal": {"Role": "seller", "Target": "120", "Bottomline": 90}, "item": {}},
        ],
    },
    "agents": {"0": "human", "1": "human"},
    "events": [
        {"agent": 0, "time": "1", "action": "message", "data": "Is $90 fine?"},
        {"agent": 1, "time": 2, "action": "offer", "data": {"price": "110", "sides": "with a lock"}},
        {"agent": 0, "time": 3, "action": "reject", "data": None},
        {"agent": 1, "time": 3, "action": "offer", "data": {"price": None, "sides": "cash only"}},
        {"agent": 0, "time": 4, "action": "offer", "data": {"price": 99.5, "sides": ""}},
        {"agent": 1, "time": 5, "action": "accept", "data": None},
    ],
    "outcome": {"reward": 1, "offer": {"price": 99.5}},
}
CRAIGSLIST = {
    "agent_info": {"Bottomline": ["None", "None"], "Role": ["seller", "buyer"], "Target": [100.0, 70.0]},
    "agent_turn": [0, 1, 1, 0],
    "dialogue_acts": {"intent": ["intro", "init-price", "offer", "accept"], "price": [-1.0, 80.0, 90.0, -1.0]},
    "utterance": ["Hello.", "Would you take 80?", "", ""],
    "items": {
        "Category": ["phone"],
        "Images": ["x.jpg"],
        "Price": [100.0],
        "Description": ["New."],
        "Title": ["Phone"],
    },
}
YOU_GET = {"Food": "1", "Water": "2", "Firewood": "0"}
THEY_GET = {"Food": "2", "Water": "1", "Firewood": "3"}


def submitted(own, other):
    return {
        "text": "Submit-Deal",
        "task_data": {"issue2youget": own, "issue2theyget": other},
        "id": "mturk_agent_1",
    }


CASINO = {
    "dialogue_id": 548,
    "chat_logs": [
        {"text": "Hello!", "task_data": {}, "id": "mturk_agent_2"},
        {"text": "Water for me?", "task_data": {}, "id": "mturk_agent_2"},
        submitted(THEY_GET, YOU_GET),
        {"text": "Reject-Deal", "task_data": {"data": "reject_deal"}, "id": "mturk_agent_2"},
        {"text": "Sorry.", "task_data": {}, "id": "mturk_agent_2"},
        submitted(YOU_GET, THEY_GET),
        {"text": "Accept-Deal", "task_data": {"data": "accept_deal"}, "id": "mturk_agent_2"},
    ],
    "participant_info": {
        "mturk_agent_1": {
            "value2issue": {"High": "Food", "Medium": "Water", "Low": "Firewood"},
            "value2reason": {"High": "We are many.", "Medium": "It is hot.", "Low": "We have some."},
            "outcomes": {"points_scored": 13, "satisfaction": "Slightly satisfied", "opponent_likeness": "Like"},
            "demographics": {"age": 43, "gender": "female", "ethnicity": "x", "education": "y"},
            "personality": {"svo": "proself", "big-five": {"extraversion": 5.0}},
        },
        "mturk_agent_2": {
            "value2issue": {"High": "Firewood", "Medium": "Water", "Low": "Food"},
            "value2reason": {"High": "Cold\nnights.", "Medium": "", "Low": ""},
            "outcomes": {"points_scored": 25, "satisfaction": "x", "opponent_likeness": "y"},
            "demographics": {"age": 22},
            "personality": {},
        },
    },
    "annotations": [["Hello!", "small-talk"], ["Water for me?", "elicit-pref,self-need"]],
}  # fmt: skip


def side_with(record, side, value):
    kbs = list(record["scenario"]["kbs"])
    kbs[side] = value
    return {**record, "scenario": {**record["scenario"], "kbs": kbs}}


def without(record, field, number, **changes):
    entries = [dict(entry) for entry in record[field]]
    entries[number] |= changes
    return {**record, field: entries}


WALK = {"text": "Walk-Away", "task_data": {"data": "walk_away"}, "id": "mturk_agent_1"}
WALKED = {**CASINO, "chat_logs": [*CASINO["chat_logs"][:2], WALK]}
QUIT = {**CRAIGSLIST_COCOA, "events": [*CRAIGSLIST_COCOA["events"][:2], event(0, 9, "quit", None)]}
DISAGREED = without(DOND_COCOA, "events", 3, data={"book": 2, "hat": 1, "ball": 1})

CASES = [
    ("deal-or-no-deal", [dond(A, B, TALK, DEAL), dond(B, A, MIRRORED, DEAL_MIRRORED)], True, (6, 10)),
    ("deal-or-no-deal", [dond(A, B, TALK, DEAL)], True, (6, 10)),
    ("deal-or-no-deal", [dond(A, B, MIRRORED, SPLIT_WRONGLY)], False, (0, 0)),
    *(("deal-or-no-deal", [dond(A, B, TALK, text)], False, (0, 0)) for text in SIX.values()),
    ("deal-or-no-deal", [dond(A, B, "THEM: hi", "<disconnect>")], False, (0, 0)),
    ("deal-or-no-deal-cocoa", [DOND_COCOA], True, (6, 10)),
    ("deal-or-no-deal-cocoa", [DISAGREED], False, (0, 0)),
    ("craigslist-cocoa", [CRAIGSLIST_COCOA], True, (2.5, 9.5)),
    ("craigslist-cocoa", [QUIT], False, (0, 0)),
    ("craigslist", [CRAIGSLIST], True, (5, -5)),
    ("casino", [CASINO], True, (13, 25)),
    ("casino", [WALKED], False, (5, 5)),
]


@pytest.mark.parametrize(("name", "entries", "agreed", "payoffs"), CASES, ids=range(len(CASES)))
def test_formal_acts_are_moves(tmp_path, name, entries, agreed, payoffs):
    products, conversion = convert(tmp_path, entries)
    (episode,) = [product.value for product in products]
    restored = Episode.model_validate_json(to_line(episode))
    replay(restored)
    assert [count.format for count in conversion.counts] == [name]
    assert not any(item.turn.violation for item in episode.turns)
    outcome = outcome_of(episode.task, [item.turn for item in episode.turns])
    assert outcome.agreed is agreed
    assert outcome.payoffs == pytest.approx(payoffs)


def test_talk_stays_talk(tmp_path):
    products, _ = convert(tmp_path, [CRAIGSLIST_COCOA])
    turns = [item.turn for item in products[0].value.turns]
    assert turns[0].action.argument == "Is $90 fine?"
    assert turns[0].action.move is None
    assert (turns[1].action.argument, turns[1].action.move.to_json()) == ("with a lock", {"propose": {"price": 110}})


def test_both_lines_of_a_dialogue_are_one_episode(tmp_path):
    lines = [dond(A, B, TALK, DEAL), dond(B, A, MIRRORED, DEAL_MIRRORED), dond(A, B, TALK, SIX["<disagree>"])]
    report = import_files([write(tmp_path / "train.txt", lines)], tmp_path / "out")
    assert [(count.read, count.converted, count.left_out) for count in report.counts] == [(3, 3, 0)]
    assert report.written["episodes.jsonl"] == 2
    with raises(InvalidValueError, field="format"):  # corpora are read, not written
        export_records(tmp_path / "out", tmp_path / "back.jsonl")
    assert not (tmp_path / "back.jsonl").exists()


def test_a_json_array_is_read_value_by_value(tmp_path):
    path = tmp_path / "casino.json"
    other = {**CASINO, "dialogue_id": 549}
    path.write_text(json.dumps([CASINO, other], indent=1))
    assert import_files([path], tmp_path / "out").written["episodes.jsonl"] == 2
    path.write_text(json.dumps([CASINO, other], indent=1)[:-6])
    with raises(DamagedRecordError, file="casino.json"):
        import_files([path], tmp_path / "out2")
    conversion = Conversion([path], keep_going=True)
    assert [product.value.key for product in conversion.products()] == ["casino-548"]


CORPORA = {
    "deal-or-no-deal": [dond(A, B, TALK, DEAL)],
    "deal-or-no-deal-cocoa": [DOND_COCOA],
    "craigslist-cocoa": [CRAIGSLIST_COCOA],
    "craigslist": [CRAIGSLIST],
    "casino": [CASINO],
    "negotiation-arena": [SALE],
    "llm-deliberation": [CONFIG],
}


def test_no_format_reads_the_samples_of_another(tmp_path):
    def save(value):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{'txt' if isinstance(value, str) else 'json'}"
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return path

    assert {name: detected(save(values[0])) for name, values in CORPORA.items()} == {name: name for name in CORPORA}
    assert misreadings(save, CORPORA, {**SAMPLES, **CORPORA, "none": OTHERS}) == []
    assert misreadings(save, SAMPLES, CORPORA) == []


BAD = [
    (dond("2 1 3", B, TALK, DEAL), "input"),
    (dond(A, "1 1 1 1 1 1", TALK, DEAL), "partner_input"),
    (dond(A, B, "HIM: hi", DEAL), "dialogue.0"),
    (dond(A, B, TALK, "item0=x"), "output"),
    (without(DOND_COCOA, "events", 0, agent=3), "events.0.agent"),
    (without(DOND_COCOA, "events", 0, action="sing"), "events.0.action"),
    (without(CRAIGSLIST_COCOA, "events", 1, data={"price": "much"}), "events.1.data.price"),
    ({**CRAIGSLIST, "agent_turn": [0]}, 'agent_turn, utterance, intent, price'),
    ({**CRAIGSLIST, "agent_info": {"Role": ["buyer", "buyer"]}}, 'Role'),
    (without(CASINO, "chat_logs", 2, task_data={"issue2youget": {"Food": "1"}}),
     "chat_logs.2.task_data.issue2youget"),
    (without(CASINO, "chat_logs", 2, id="mturk_agent_7"), "chat_logs.2.id"),
    (without(CASINO, "chat_logs", 2, task_data={"issue2youget": {**YOU_GET, "Food": 1e308}, "issue2theyget": THEY_GET}),
     "chat_logs.2.task_data.issue2youget.Food"),
    (side_with(DOND_COCOA, 1, items(2, 0, 6)[1:]), "scenario.kbs"),
    (side_with(DOND_COCOA, 1, [7]), "scenario.kbs.1.0"),
    (side_with(DOND_COCOA, 0, [*items(2, 0, 6)[:2], {"Name": "ball"}]), "scenario.kbs.0.2.Count"),
    (side_with(CRAIGSLIST_COCOA, 0, {"personal": 7}), "scenario.kbs.0.personal"),
    (side_with(CRAIGSLIST_COCOA, 1, {"personal": {}, "item": "x"}), "scenario.kbs.1.item"),
    ({**CRAIGSLIST, "agent_info": {**CRAIGSLIST["agent_info"], "Target": []}}, 'agent_info.Target'),
    (without(DOND_COCOA, "events", 0, data="\ud800"), ""),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "field"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_a_dialogue_is_one_sentence(tmp_path, entry, field):
    with raises(DamagedRecordError, field=field):
        convert(tmp_path, [entry])


def test_an_act_that_is_not_open_is_kept_and_does_not_count(tmp_path):
    wrong = {"issue2youget": {**YOU_GET, "Food": "3"}, "issue2theyget": THEY_GET}
    products, _ = convert(tmp_path, [without(CASINO, "chat_logs", 5, task_data=wrong)])
    episode = products[0].value
    assert [item.turn.index for item in episode.turns if item.turn.violation] == [7, 8]
    replay(episode)


def test_a_broken_package_does_not_keep_the_other_formats_away(tmp_path, monkeypatch, caplog):
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sotopia.formats]\nbroken = no_such_module:FORMATS\n")
    monkeypatch.syspath_prepend(tmp_path)
    formats.cache_clear()
    try:
        assert {"casino", "sotopia-episodes"} <= formats().keys()
        assert "no_such_module" in caplog.text
    finally:
        formats.cache_clear()
