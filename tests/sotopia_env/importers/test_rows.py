"""Conversations, completions and preferences of chat models, as training rows."""

import json

import pytest
from sotopia_training.reward import text

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import ProductKind
from tests.errors import raises
from tests.sotopia_env.importers.records import convert
from tests.sotopia_env.importers.samples import EXPORT, SAMPLES


def rows(folder, *records):
    products, _ = convert(folder, list(records))
    assert {product.kind for product in products} == {ProductKind.ROW}
    return [product.value for product in products]


def roles(row):
    return [message["role"] for message in row["prompt"]]


@pytest.mark.parametrize("name", ["sharegpt", "chat-messages"])
def test_every_answer_of_a_conversation_is_a_row(tmp_path, name):
    first, second = rows(tmp_path, SAMPLES[name][0])
    assert (roles(first), roles(second)) == (["system", "user"], ["system", "user", "assistant", "user"])
    assert [row["completion"][0]["content"] for row in (first, second)] == ["Hello.", "Fine."]
    assert first["scenario"] == second["scenario"]  # so that a split does not part them
    assert first["value"] is second["value"] is None


def test_the_current_branch_of_an_export_is_read(tmp_path):
    first, second = rows(tmp_path, SAMPLES["chatgpt-export"][0])
    assert [message["content"] for message in second["prompt"]] == ["Hi.", "Hello.", "You?"]
    assert [row["completion"][0]["content"] for row in (first, second)] == ["Hello.", "Fine."]


def test_a_chat_of_lines_is_one_conversation_and_a_header_begins_the_next(tmp_path):
    chat = SAMPLES["sillytavern-chat"][0]
    first, second = rows(tmp_path, *chat, *chat)
    assert first == second
    assert [message["content"] for message in first["prompt"]] == ["Come in.", "Hi."]
    assert first["completion"][0]["content"] == "Hello."


def test_a_label_is_the_value_of_the_last_answer(tmp_path):
    labelled = {**SAMPLES["chat-messages"][0], "label": False}
    assert [row["value"] for row in rows(tmp_path, labelled)] == [None, 0.0]


PAIRS = [
    sample for name in ("preference-rows", "sharegpt-preferences", "message-preferences") for sample in SAMPLES[name]
]


@pytest.mark.parametrize("pair", PAIRS, ids=range(len(PAIRS)))
def test_a_preference_is_two_rows_of_one_prompt(tmp_path, pair):
    chosen, rejected = rows(tmp_path, pair)
    assert chosen["prompt"] == rejected["prompt"]
    assert roles(chosen)[-1] == "user"
    assert [(row["completion"][0]["content"], row["value"]) for row in (chosen, rejected)] == [("Yes.", 1), ("No.", 0)]


def test_scores_of_a_preference_are_its_values_and_its_prompt_is_there_once(tmp_path):
    pair = {"prompt": "Well?", "score_chosen": 8.5, "score_rejected": 3}
    question = {"role": "user", "content": "Well?"}
    answers = {name: [question, {"role": "assistant", "content": name}] for name in ("chosen", "rejected")}
    chosen, rejected = rows(tmp_path, {**pair, **answers, "messages": answers["chosen"]})
    assert chosen["prompt"] == rejected["prompt"] == [question]
    assert (chosen["value"], rejected["value"]) == (8.5, 3)


def test_a_reward_model_reads_the_rows(tmp_path):
    values = [
        row for name in ("preference-rows", "completion-rows", "sharegpt") for row in rows(tmp_path, *SAMPLES[name])
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in values))
    assert [row.value for row in text.read_rows(path)] == [row["value"] for row in values]


ANSWERED = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
LOOP = {**EXPORT, "mapping": {**EXPORT["mapping"], "root": {"parent": "b", "message": None}}}
BAD = [
    (LOOP, "mapping"),
    ({**EXPORT, "current_node": "c"}, "parent"),
    ({"conversations": [{"from": "alien", "value": "x"}]}, "conversations.0.from"),
    ({"conversations": [{"from": "human", "value": "x"}]}, ""),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}, "messages.0.content"),
    (
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "images": ["x.png"]},
        "images",
    ),
    ({"chosen": "Yes.", "rejected": "No."}, "prompt"),
    ({"prompt": "Well?", "chosen": "", "rejected": "No."}, "chosen"),
]


@pytest.mark.parametrize(("record", "field"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_a_conversation_is_one_sentence(tmp_path, record, field):
    with raises(DamagedRecordError, field=field):
        rows(tmp_path, record)
