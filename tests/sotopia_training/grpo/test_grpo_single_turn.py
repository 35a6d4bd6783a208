"""GRPO on single answers: its prompts on disk, and what the reward model thinks of them."""

import importlib.util
import itertools
import json

import pytest
from sotopia_training.grpo import single_turn as single_turn_module
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.single_turn import SingleTurn
from sotopia_training.models.loading import find_model
from sotopia_training.reward.scorer import write_note
from sotopia_training.stage.settings import LoraSettings, ModelSettings

from sotopia_env import tasks
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.world import Rules
from sotopia_env.world.episode import Episode
from sotopia_env.world.play.table import Table
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT as BRIEF
from tests.sotopia_training.grpo.grpo_settings import reward_model_of, single_turn_settings
from tests.sotopia_training.played import haggling, offer

OFFER = '{"action_type": "speak", "argument": "How about $70?"}'
WHISPER = '{"action_type": "speak", "argument": "How about $70?", "to": ["Bo"]}'
LEAVE = '{"action_type": "leave", "argument": ""}'


def rewards(work, tokenizer, answers, cut_off=(), table=None):
    """What some answers to one prompt are worth, and what is logged about them."""
    logged, table = {}, table or Table(haggling(), Rules())
    (seat,) = table.acting
    values = work.reward(
        [[{"role": "user", "content": "You sell a lamp."}]] * len(answers),
        [[{"role": "assistant", "content": text}] for text in answers],
        [tokenizer.encode(text) + [tokenizer.eos_token_id] * (text not in cut_off) for text in answers],
        [table.episode().model_dump_json()] * len(answers),
        [seat] * len(answers),
        lambda name, value: logged.setdefault(name.removeprefix("reward_model/"), []).append(value),
    )
    return values, logged


@pytest.fixture(scope="module")
def scored_by(cloned, tmp_path_factory):
    return reward_model_of(cloned, tmp_path_factory.mktemp("rm"))


def work_of(cloned, scored_by, run, tokenizer, gate, output):
    settings = single_turn_settings(cloned, scored_by, run, output=str(output))
    reward = settings.reward.model_copy(update={"gate": gate, "invalid": -7.0})
    return SingleTurn(settings.model_copy(update={"reward": reward}), BRIEF, tokenizer)


@pytest.mark.parametrize("gate", [True, False])
def test_refused_answers_are_counted_and_not_scored_by_the_reward_model(
    cloned, scored_by, expert_run, tokenizer, tmp_path, gate
):
    """What the gate refuses has a reward, the penalty, that would hide what the model thinks of the others."""
    work = work_of(cloned, scored_by, expert_run, tokenizer, gate, tmp_path)
    cut = OFFER.replace("70", "80")
    begun = f"Well. {OFFER.replace('70', '90')}"  # the object may be a draft: the text would have gone on
    values, logged = rewards(work, tokenizer, [OFFER, "hm", cut, begun], cut_off=[cut, begun])
    assert logged.keys() == {"score", "valid", "unfinished", "refused"}
    assert (logged["valid"], logged["unfinished"]) == ([1, 0, 1, 0], [0, 0, 1, 1])
    if gate:
        assert values[1:] == [-7, -7, -7]
        assert (logged["refused"], logged["score"]) == ([0, 1, 1, 1], values[:1])
    else:
        assert logged["refused"] == [0, 0, 0, 0]
        assert logged["score"] == [values[0], values[1] + 7, values[2], values[3] + 7]


def test_the_gate_refuses_the_same_actions_as_the_environment(cloned, scored_by, expert_run, tokenizer, tmp_path):
    work = work_of(cloned, scored_by, expert_run, tokenizer, True, tmp_path)
    group = next(iter(tasks.generate("group_decision", 1, 0)))
    name = group.names[group.agents[1]]
    answers = [OFFER, WHISPER.replace("Bo", name), LEAVE]
    bargain = Table(haggling(), Rules(action_types=("speak",)))
    for table, valid in (
        (bargain, [1, 0, 0]),
        (Table(haggling(), Rules()), [1, 0, 1]),
        (Table(group, Rules(first_seat=0)), [1, 1, 1]),
    ):
        values, logged = rewards(work, tokenizer, answers, table=table)
        assert logged["valid"] == valid
        assert [value != -7 for value in values] == [bool(one) for one in valid]


def test_the_gate_refuses_moves_that_are_not_open(cloned, scored_by, expert_run, tokenizer, tmp_path):
    """Words would be heard, but a reward model that says they are worth something would teach empty promises."""
    work = work_of(cloned, scored_by, expert_run, tokenizer, True, tmp_path)
    table = Table(haggling(), Rules())
    table.answer("agent_0", offer(70))
    moves = [{"accept": 1}, {"accept": 2}, {"propose": {"price": 60}}, {"propose": {"price": 6000}}, {"vote": "x"}]
    answers = [json.dumps({"action_type": "speak", "argument": "Well.", "move": move}) for move in moves]
    values, logged = rewards(work, tokenizer, answers, table=table)
    assert logged["valid"] == [1, 0, 1, 0, 0]
    assert [value == -7 for value in values] == [False, True, False, True, True]


def test_prompts_keep_the_state_that_they_were_cut_from(cloned, scored_by, expert_run, tokenizer, tmp_path):
    work = work_of(cloned, scored_by, expert_run, tokenizer, True, tmp_path)
    rows = work.rows(tmp_path / "rows")
    assert len(rows) > 4
    for row in rows:
        table = Table.resume(Episode.model_validate_json(row["state"]))
        assert (len(table.episode().turns), table.acting) == (row["turn"], (row["seat"],))


def test_the_policys_own_end_token_says_which_answers_were_finished(cloned, scored_by, expert_run, tokenizer, tmp_path):
    """A reward model of another family has another one; no answer would ever be finished."""
    work = work_of(cloned, scored_by, expert_run, tokenizer, True, tmp_path)
    work._scorer.tokenizer.eos_token = "<|im_start|>"
    assert work._scorer.tokenizer.eos_token_id != tokenizer.eos_token_id
    values, logged = rewards(work, tokenizer, [OFFER])
    assert logged["refused"] == [0]
    assert values[0] != -7


def test_a_reward_model_that_was_shown_other_prompts_is_refused(cloned, expert_run, tokenizer, tmp_path):
    scored_by = reward_model_of(cloned, tmp_path / "rm")
    chat = BRIEF.model_copy(update={"format": "chat"})
    write_note(scored_by / "model", ModelSettings(base=str(find_model(cloned)), lora=None), chat)
    with raises(InvalidValueError, field="reward.model") as caught:
        work_of(cloned, scored_by, expert_run, tokenizer, True, tmp_path)
    assert "'brief'" in caught.value.expected
    assert "'chat'" in caught.value.got


def test_a_stage_is_not_continued_with_another_reward_model_in_the_same_place(cloned, expert_run, tmp_path):
    scored_by = reward_model_of(cloned, tmp_path / "rm")
    settings = single_turn_settings(cloned, scored_by, expert_run, output=str(tmp_path / "out"))
    grpo.begin_stage(settings)
    (tmp_path / "out/rows").mkdir()
    (tmp_path / "out/rows/some.jsonl").write_text("{}")
    grpo.begin_stage(settings)
    config = scored_by / "model/config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "rms_norm_eps": 0.5}))
    with raises(InvalidValueError, field="start.reward_model", file="out"):
        grpo.begin_stage(settings)


def test_a_gated_reward_model_trains_inside_trl(cloned, scored_by, expert_run, tmp_path):
    settings = single_turn_settings(cloned, scored_by, expert_run, output=str(tmp_path / "out"))
    settings = settings.model_copy(update={"reward": settings.reward.model_copy(update={"gate": True})})
    steps = [entry for entry in grpo.run(settings)["log"] if "loss" in entry]
    assert len(steps) == 2
    assert all(0 <= entry["reward_model/refused"] <= 1 for entry in steps)
    assert all(entry["reward"] >= -1 for entry in steps)


def test_prompts_are_read_from_disk_and_rewritten_if_incomplete(cloned, expert_run, tokenizer, tmp_path, monkeypatch):
    settings = single_turn_settings(
        cloned, reward_model_of(cloned, tmp_path / "rm"), expert_run, output=str(tmp_path / "out")
    )
    work, folder = SingleTurn(settings, BRIEF, tokenizer), tmp_path / "rows"
    prompt_records = single_turn_module.prompt_records
    expected = list(prompt_records(settings, BRIEF, tokenizer))

    def cut(*values):
        yield from itertools.islice(prompt_records(*values), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(single_turn_module, "prompt_records", cut)
    with pytest.raises(KeyboardInterrupt):
        work.rows(folder)
    assert not folder.exists()
    monkeypatch.setattr(single_turn_module, "prompt_records", prompt_records)
    rows = work.rows(folder)
    assert [row["turn"] for row in rows] == [row["turn"] for row in expected]
    assert [row["prompt"] for row in rows] == [row["prompt"] for row in expected]
    assert rows.cache_files
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("rows")] == ["rows"]
    monkeypatch.setattr(single_turn_module, "prompt_records", lambda *_: pytest.fail("made twice"))
    assert len(work.rows(folder)) == len(expected)


def test_a_reward_model_of_a_four_bit_base_needs_support_for_it(cloned, expert_run, tmp_path, monkeypatch):
    scored_by = reward_model_of(cloned, tmp_path / "rm")
    quantised = ModelSettings(base=str(find_model(cloned)), lora=LoraSettings(rank=4), quantization="nf4")
    write_note(scored_by / "model", quantised, BRIEF)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    monkeypatch.setattr(grpo, "load_for_training", lambda *_: pytest.fail("a model was loaded"))
    with raises(InvalidValueError, field="quantization"):
        grpo.run(single_turn_settings(cloned, scored_by, expert_run, output=str(tmp_path / "out")))
