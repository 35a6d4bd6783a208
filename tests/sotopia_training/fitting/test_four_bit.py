"""4 bit on a CPU: gradients after sampling, resumption, merging into full weights, and play."""

import asyncio
import shutil

import pytest
import torch
from peft import PeftConfig, PeftModel, get_peft_model
from sotopia_training.data.sources import SourceSettings
from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings, run
from sotopia_training.fitting.loop import load_for_training
from sotopia_training.models.generation import BatchedGenerator, Sampling
from sotopia_training.models.loading import load_causal_lm
from sotopia_training.models.tokenizers import answer_text, prompt_ids
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import LoraSettings, ModelSettings

from sotopia_env import Table, naming, tasks
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.world import Rules
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT, StoppedError, killed_after

pytest.importorskip("bitsandbytes")
LORA = LoraSettings(rank=4, dropout=0)


def gradients(model, ids):
    """The gradients of all adapters after one loss."""
    model.train()
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}


def test_sampling_leaves_the_gradients_of_later_steps_whole(tiny_model):
    """bitsandbytes repacks weights that are used without gradients, and then has no backward pass."""
    settings = ModelSettings(base=str(tiny_model), lora=LORA, quantization="nf4")
    torch.manual_seed(0)
    base, new = load_for_training(settings, False)
    model = get_peft_model(base, new)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.1)
    ids = torch.arange(8, 40).view(1, -1)
    before = gradients(model, ids)
    model.eval()
    with torch.no_grad():
        model(input_ids=ids)
    after = gradients(model, ids)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(gradient.abs().sum() > 0 for gradient in before.values())


def cloning(base, run_, output):
    return BehaviorCloningSettings(
        model=ModelSettings(base=str(base), lora=LORA, quantization="nf4"),
        prompt=SHORT,
        data=(SourceSettings(run=str(run_)),),
        validation=0.2,
        output=str(output),
        trainer={"max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 2, "logging_steps": 1},
    )


@pytest.fixture(scope="module")
def whole(tiny_model, expert_run, tmp_path_factory):
    """The directory of a stage that was not interrupted."""
    folder = tmp_path_factory.mktemp("four-bit") / "whole"
    run(cloning(tiny_model, expert_run, folder))
    return folder


def losses(figures):
    return [(entry["step"], entry.get("loss", entry.get("eval_loss"))) for entry in figures["log"]]


def test_a_resumed_stage_has_the_losses_of_one_that_was_not(whole, tiny_model, expert_run, tmp_path, monkeypatch):
    broken = cloning(tiny_model, expert_run, tmp_path / "broken")
    with monkeypatch.context() as patch:
        killed_after(patch, 3)
        with pytest.raises(StoppedError):
            run(broken)
    resumed = run(broken)
    assert losses(resumed) == losses(StageDirectory(whole, "", None).figures)
    weights = [
        {name: p for name, p in load(path).named_parameters() if "lora_" in name}
        for path in (whole, tmp_path / "broken")
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_stage_continued_on_other_weights_is_refused(tiny_model, expert_run, tmp_path, monkeypatch):
    """A checkpoint has no base in it, so adapters of the old base would be trained further on the new one."""
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    settings = cloning(base, expert_run, tmp_path / "broken")
    with monkeypatch.context() as patch:
        killed_after(patch, 3)
        with pytest.raises(StoppedError):
            run(settings)
    model = load_causal_lm(ModelSettings(base=str(base)))
    with torch.no_grad():
        model.model.embed_tokens.weight[0] += 1
    model.save_pretrained(base)
    with raises(InvalidValueError, field="start.base", file="broken"):
        run(settings)


def load(path):
    """The trained model as it plays: its base in 4 bit."""
    model = StageDirectory(path, "", None).model
    settings = cloning(PeftConfig.from_pretrained(model).base_model_name_or_path, "", path).model
    return load_causal_lm(settings.model_copy(update={"adapter": str(model)}))


def test_an_adapter_of_a_four_bit_base_merges_into_full_weights(whole, tiny_model):
    """Servers, vLLM among them, read merged weights: the sum of the base in full precision and the update."""
    adapter = str(StageDirectory(whole, "", None).model)
    beside = PeftModel.from_pretrained(load_causal_lm(ModelSettings(base=str(tiny_model))), adapter).eval()
    ids = torch.arange(8, 40).view(1, -1)
    with torch.no_grad():
        expected = beside(input_ids=ids).logits
        merged = beside.merge_and_unload()(input_ids=ids).logits
        quantised = load(whole).eval()(input_ids=ids).logits
    torch.testing.assert_close(merged, expected, atol=1e-4, rtol=0)
    difference = (quantised - expected).abs().mean() / expected.abs().mean()
    assert 0 < difference < 0.3  # of the quantisation


def test_a_trained_adapter_plays_over_the_four_bit_base_that_it_was_trained_on(whole):
    """``quantization=nf4`` is an option of a directory in a seat."""
    options = "quantization=nf4,dtype=float32,temperature=0,constrained=off,max_tokens=24"
    policy = naming.make_policy(f"{whole}:{options}")
    (task,) = tasks.generate("bargaining", 1, seed=3)
    table = Table(task, Rules(max_turns=2, worths=False), seed=3)
    ids = prompt_ids(policy.model.tokenizer, AgentPrompt("brief").messages(table.observe("agent_0")))
    asyncio.run(table.play({"agent_0": policy, "agent_1": naming.make_policy("linear")}))
    generation = table.episode().turns[0].generation
    generator = BatchedGenerator(load(whole).eval(), policy.model.tokenizer, Sampling(24, 0.0))
    (sampled,) = generator.generate([ids], [0])
    expected = sampled.ids[:-1] if sampled.finished else sampled.ids
    assert generation.text == answer_text(policy.model.tokenizer, expected)
    assert policy.parameters["model_parameters"]["quantization"] == "nf4"
    assert policy.model.features()[0][2].endswith(", nf4 (float32) on cpu")
    loaded = policy.model.model.load()
    layers = {type(m.get_base_layer()).__name__ for m in loaded.modules() if hasattr(m, "lora_A")}
    assert layers == {"Linear4bit"}
