"""GRPO on single answers: its prompts on disk, and what the reward model thinks of them."""

import importlib.util
import itertools

import pytest

from sotopia_env.errors import InvalidValueError
from tests.training.conftest import SHORT as BRIEF
from tests.training.grpo_asked import reward_model_of, single_turn
from training import grpo
from training.models import find_model
from training.reward_scorer import write_note
from training.settings import LoraSettings, ModelSettings


@pytest.mark.parametrize("gate", [True, False])
def test_refused_answers_are_counted_and_are_no_opinion_of_the_reward_model(
    cloned, expert_run, tokenizer, tmp_path, gate
):
    """What the gate refuses has a reward, the penalty, that would hide what the model thinks of the others."""
    settings = single_turn(cloned, reward_model_of(cloned, tmp_path / "rm"), expert_run, output=str(tmp_path / "out"))
    reward = settings.reward.model_copy(update={"gate": gate, "invalid": -7.0})
    work = grpo._SingleTurn(settings.model_copy(update={"reward": reward}), BRIEF, tokenizer)
    offer, whole = '{"action_type": "speak", "argument": "How about $70?"}', [True, True, False]
    said = [offer, "hm", offer]
    ids = [
        tokenizer.encode(text) + [tokenizer.eos_token_id] * done for text, done in zip(said, whole, strict=True)
    ]  # the last was cut off
    logged = {}
    values = work.reward(
        [[{"role": "user", "content": "You sell a lamp."}]] * 3,
        [[{"role": "assistant", "content": text}] for text in said],
        ids,
        lambda name, value: logged.setdefault(name.removeprefix("reward_model/"), []).append(value),
    )
    assert logged.keys() == {"score", "valid", "unfinished", "refused"}
    assert (logged["valid"], logged["unfinished"]) == ([1, 0, 1], [0, 0, 1])
    if gate:
        assert values[1:] == [-7, -7]
        assert (logged["refused"], logged["score"]) == ([0, 1, 1], values[:1])
    else:
        assert logged["refused"] == [0, 0, 0]
        assert logged["score"] == [values[0], values[1] + 7, values[2]]


def test_prompts_are_read_from_disk_and_begun_again_where_their_writing_was_cut_off(
    cloned, expert_run, tokenizer, tmp_path, monkeypatch
):
    settings = single_turn(cloned, reward_model_of(cloned, tmp_path / "rm"), expert_run, output=str(tmp_path / "out"))
    work, folder = grpo._SingleTurn(settings, BRIEF, tokenizer), tmp_path / "rows"
    expected = list(work._rows())
    made = work._rows

    def cut():
        yield from itertools.islice(made(), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "_rows", cut)
    with pytest.raises(KeyboardInterrupt):
        work.rows(folder)
    assert not folder.exists()
    monkeypatch.setattr(work, "_rows", made)
    found = work.rows(folder)
    assert [row["turn"] for row in found] == [row["turn"] for row in expected]
    assert [row["prompt"] for row in found] == [row["prompt"] for row in expected]
    assert found.cache_files
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("rows")] == ["rows"]
    monkeypatch.setattr(work, "_rows", lambda: pytest.fail("made twice"))
    assert len(work.rows(folder)) == len(expected)


def test_a_reward_model_of_a_four_bit_base_needs_support_for_it(cloned, expert_run, tmp_path, monkeypatch):
    scored_by = reward_model_of(cloned, tmp_path / "rm")
    quantised = ModelSettings(base=str(find_model(cloned)), lora=LoraSettings(rank=4), quantization="nf4")
    write_note(scored_by / "model", quantised, BRIEF)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    monkeypatch.setattr(grpo, "load_for_training", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(InvalidValueError, match="needs bitsandbytes"):
        grpo.run(single_turn(cloned, scored_by, expert_run, output=str(tmp_path / "out")))
