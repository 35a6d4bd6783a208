"""Directories that are not usable models: an error with a hint before any weight is loaded; real files."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from sotopia_training.models import gguf_files, loading
from sotopia_training.models.gguf_files import converted
from sotopia_training.models.loading import load_causal_lm
from sotopia_training.models.tokenizers import load_tokenizer, prompt_ids
from sotopia_training.stage.settings import ModelSettings, PromptSettings

from sotopia_env import Table, naming, tasks
from sotopia_env.chat_model import make_model
from sotopia_env.foundation.errors import InvalidValueError, ModelRefusedError, UnknownNameError
from sotopia_env.foundation.extras import install_command
from sotopia_env.naming.models import with_directories
from sotopia_env.world import Rules
from tests.errors import raises

USER = {"role": "user", "content": "Hello."}
MESSAGE = "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
CALL = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
PLAIN = "{% for m in messages %}" + MESSAGE + "{% endfor %}" + CALL
OWN_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are Tiny, a helpful model.<|im_end|>\n' }}"
    "{% endif %}" + PLAIN
)
FORGETFUL = (
    "{% for m in messages %}{% if loop.last %}" + MESSAGE + "{% else %}{{ m['role'] + '\n' }}{% endif %}{% endfor %}"
) + CALL
WITHOUT_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}" + PLAIN


@pytest.fixture
def directory(tiny_model, tmp_path, monkeypatch):
    """Makes ``./bc``, a copy of the tiny model; ``template`` replaces its own, ``without`` names files to leave out."""
    monkeypatch.chdir(tmp_path)

    def make(template=None, without=()):
        shutil.copytree(tiny_model, "bc", ignore=shutil.ignore_patterns(*without))
        if template is not None:
            (tmp_path / "bc" / "chat_template.jinja").write_text(template)
        return tmp_path / "bc"

    return make


@pytest.mark.parametrize("without", [["tokenizer*", "chat_template*"], ["tokenizer.json"]])
def test_without_a_tokenizer_the_files_that_are_missing_are_named(directory, without):
    directory(without=without)
    with raises(InvalidValueError, file="bc") as caught:
        naming.make_policy("./bc")
    assert "tokenizer.json" in caught.value.hint


def test_a_trained_model_that_was_copied_without_its_template_is_refused(directory):
    (directory(without=["chat_template*"]) / "sotopia_policy.json").write_text('{"prompt": {}}')
    with raises(InvalidValueError, field="chat_template", got=None, file="bc") as caught:
        naming.make_policy("./bc")
    assert "chat_template.jinja" in caught.value.hint


def test_a_base_model_without_a_template_plays_in_a_plain_form(directory, caplog):
    path = directory(without=["chat_template*"])
    policy = naming.make_policy("./bc:max_tokens=8,constrained=off")
    assert "no chat template" in caplog.text
    table = Table(tasks.generate("bargaining", 1, seed=3)[0], Rules(max_turns=2), seed=3)
    asyncio.run(table.play({"agent_0": policy, "agent_1": policy}))
    assert len(table.turns) == 2
    tokenizer = load_tokenizer(path)
    conversation = [{"role": "system", "content": "You are Ada."}, USER]
    text = tokenizer.decode(prompt_ids(tokenizer, conversation))
    assert [part.split(":")[0] for part in text.split("### ")[1:]] == ["system", "user", "assistant"]
    tokenizer.save_pretrained(path)  # what is trained from it has the form beside its weights
    (path / "sotopia_policy.json").write_text('{"prompt": {}}')
    assert prompt_ids(load_tokenizer(path), conversation) == prompt_ids(tokenizer, conversation)


@pytest.mark.parametrize("template", [FORGETFUL, WITHOUT_SYSTEM])
def test_a_template_that_no_conversation_can_follow_plays_in_the_format_single(directory, template):
    directory(template)
    with raises(InvalidValueError, field="chat_template", file="bc") as caught:
        naming.make_policy("./bc")
    assert "'single'" in caught.value.hint
    naming.make_policy("./bc:format=single")


def test_an_invalid_template_is_refused(directory):
    directory("{% for m in messages %}{{ m['content'] ")
    with raises(InvalidValueError, field="chat_template", got=..., file="bc"):
        naming.make_policy("./bc")


@pytest.mark.parametrize("format_", ["chat", "single"])
def test_a_system_message_of_the_template_itself_is_left_out(directory, tmp_path, format_):
    own = directory(OWN_SYSTEM)
    tokenizer = load_tokenizer(own, PromptSettings(format=format_))
    system = {"role": "system", "content": "You are Ada."}
    assert "Tiny" not in tokenizer.decode(prompt_ids(tokenizer, [USER]))
    text = tokenizer.decode(prompt_ids(tokenizer, [system, USER]))
    assert text.count("system") == 1
    assert "You are Ada." in text
    tokenizer.save_pretrained(tmp_path / "saved")  # as beside a trained model
    again = load_tokenizer(tmp_path / "saved", PromptSettings(format=format_))
    assert prompt_ids(again, [USER]) == prompt_ids(tokenizer, [USER])
    assert again.chat_template == tokenizer.chat_template


def test_other_templates_stay_as_they_are(directory):
    assert load_tokenizer(directory(PLAIN)).chat_template == PLAIN


def test_a_directory_without_its_prefix_is_suggested_with_it(directory):
    directory()
    for make, name in ((naming.make_policy, "bc:format=brief"), (with_directories(make_model), "bc")):
        with pytest.raises(UnknownNameError) as caught:
            make(name)
        assert caught.value.nearest == "./bc"


def test_a_directory_without_a_model_is_not_a_provider(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "played").mkdir(parents=True)
    with raises(InvalidValueError, field="policy", got="runs/played"):
        naming.make_policy("runs/played")


def test_weights_that_are_missing_are_not_drawn_at_random(directory):
    from safetensors.torch import load_file, save_file

    own = directory()
    weights = load_file(own / "model.safetensors")
    name = next(name for name in weights if name.endswith("mlp.up_proj.weight"))
    del weights[name]
    save_file(weights, own / "model.safetensors", {"format": "pt"})
    with raises(InvalidValueError, file="bc") as caught:
        load_causal_lm(ModelSettings(base=str(own)))
    assert name in caught.value.expected


def test_weights_that_are_cut_off_end_the_run_at_the_first_prompt(directory):
    own = directory()
    file = own / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    policy = naming.make_policy("./bc:format=brief")
    table = Table(tasks.generate("bargaining", 1, seed=1)[0], Rules(max_turns=2), seed=1)
    with pytest.raises(ModelRefusedError):
        asyncio.run(policy.act(table.observe("agent_0"), seed=1))


def write_gguf(path, kind, architecture="llama"):
    """A GGUF file of one tensor and a tokenizer of 32 tokens."""
    gguf = pytest.importorskip("gguf")
    import numpy as np

    kind = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(str(path), architecture)
    for add, value in (
        (writer.add_context_length, 512), (writer.add_embedding_length, 256), (writer.add_block_count, 1),
        (writer.add_feed_forward_length, 256), (writer.add_head_count, 4), (writer.add_layer_norm_rms_eps, 1e-5),
        (writer.add_vocab_size, 32), (writer.add_tokenizer_model, "gpt2"), (writer.add_bos_token_id, 0),
        (writer.add_eos_token_id, 0), (writer.add_token_types, [1] * 32), (writer.add_token_merges, ["A B"]),
        (writer.add_token_list, [*map(chr, range(65, 96)), "AB"]),
    ):  # fmt: skip
        add(value)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    is_plain = kind is gguf.GGMLQuantizationType.F32
    tensor = np.zeros((32, 256), np.float32) if is_plain else np.zeros((32, 256 // block * size), np.uint8)
    writer.add_tensor("token_embd.weight", tensor, raw_dtype=None if is_plain else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [("Q8_K", "llama"), ("F32", "bert"), ("F32", "llama")],
    ids=["a type without a reader", "another architecture", "not all weights"],
)
def test_a_gguf_file_that_cannot_be_read_leaves_nothing_behind(tmp_path, monkeypatch, kind, architecture):
    monkeypatch.setenv("SOTOPIA_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "m.gguf", kind, architecture)
    with raises(InvalidValueError, file="m.gguf"):
        converted(tmp_path / "m.gguf")
    assert not list((tmp_path / "cache").glob("*"))
    with raises(InvalidValueError, file="m.gguf"):
        naming.make_policy(f"{tmp_path}/")


@pytest.mark.parametrize("size", [0, 6, 30, 300, 2900])
def test_a_gguf_file_of_which_a_part_was_downloaded_is_refused_in_one_sentence(tmp_path, monkeypatch, capsys, size):
    """Its readers raise struct.error, ValueError, IndexError and others, and print a table of the missing weights."""
    monkeypatch.setenv("SOTOPIA_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "m.gguf"
    write_gguf(file, "F32")
    file.write_bytes(file.read_bytes()[:size])
    with raises(InvalidValueError, file="m.gguf") as caught:
        converted(file)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().err == ""


def test_a_conversion_prints_nothing_without_a_terminal(tmp_path, monkeypatch, capfd):
    """Missing weights are an error in one sentence, not also transformers' table."""
    monkeypatch.setenv("SOTOPIA_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "m.gguf", "F32")
    with raises(InvalidValueError, file="m.gguf"):
        converted(tmp_path / "m.gguf")
    output = capfd.readouterr()
    assert (output.out, output.err) == ("", "")


def test_without_torch_the_extra_that_brings_it_is_named(directory, monkeypatch):
    directory()
    find_spec = loading.importlib.util.find_spec
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    with raises(InvalidValueError, hint=install_command("train")):
        naming.make_policy("./bc")


def test_a_policy_file_of_another_format_is_refused(directory):
    own = directory()
    (own / "sotopia_policy.json").write_text(json.dumps({"prompt": {"format": "verse"}}))
    with raises(InvalidValueError, field="format", got="verse"):
        naming.make_policy("./bc")


def test_a_model_that_was_trained_on_other_prompts_is_named(directory, caplog):
    loading.write_prompt_settings(directory(), PromptSettings(format="brief"))
    naming.make_policy("./bc")
    assert not caplog.records
    file = Path("bc/sotopia_policy.json")
    content = json.loads(file.read_text())
    assert "agent_reask" not in content["texts"]  # training has no complaints
    content["texts"]["sample"] = "0" * 12
    file.write_text(json.dumps(content))
    naming.make_policy("./bc")
    assert caplog.text.count("other prompts") == 1
    assert "(sample)" in caplog.text


@pytest.mark.parametrize("texts", [None, {}, {"of_an_earlier_version": "0" * 12}, ["sample"]])
def test_of_a_model_whose_prompts_are_unknown_nothing_is_said(directory, caplog, texts):
    file = directory() / "sotopia_policy.json"
    file.write_text(json.dumps({"prompt": {"format": "brief"}, "texts": texts}))
    naming.make_policy("./bc")
    assert not caplog.records


def test_a_conversion_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("SOTOPIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf_files, "LIMIT", 0.05)  # less than the process needs to begin
    write_gguf(tmp_path / "m.gguf", "F32")
    with raises(InvalidValueError, file="m.gguf") as caught:
        converted(tmp_path / "m.gguf")
    assert "safetensors" in str(caught.value)
    assert not list((tmp_path / "cache").glob("*"))


def test_a_conversion_that_is_killed_says_that_memory_may_have_run_out(tmp_path, monkeypatch):
    monkeypatch.setenv("SOTOPIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf_files.sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\nkill -9 $$\n")
    (tmp_path / "python").chmod(0o755)
    write_gguf(tmp_path / "m.gguf", "F32")
    with pytest.raises(MemoryError, match=r"m\.gguf"):
        converted(tmp_path / "m.gguf")
    assert not list((tmp_path / "cache").glob("*"))
