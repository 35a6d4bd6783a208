"""GRPO under the mask of constrained decoding: the distribution that is trained is the one that was sampled from."""

import json

import pytest
import torch
from sotopia_training.grpo import settings as grpo_settings
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.masked_head import MaskedHead
from sotopia_training.grpo.settings import RewardSettings, check
from sotopia_training.models import constraints
from sotopia_training.models.generation import BatchedGenerator
from sotopia_training.stage.settings import LoraSettings

from sotopia_env.foundation.errors import InvalidValueError
from tests.sotopia_training.grpo.grpo_settings import multi_turn_settings, single_turn_settings

pytestmark = pytest.mark.skipif(not constraints.is_available(), reason="llguidance is not installed")


@pytest.fixture(autouse=True)
def _engine_is_new():
    constraints.grammars_of.cache_clear()
    yield
    constraints.grammars_of.cache_clear()


@pytest.fixture
def sampled(monkeypatch):
    """Every answer that is sampled: its prompt and tokens, and the sampler's log-probabilities."""
    answers, generate = {}, BatchedGenerator.generate

    def note(self, prompts, seeds, schemas=None):
        results = generate(self, prompts, seeds, schemas)
        for prompt, answer in zip(prompts, results, strict=True):
            answers[(*prompt, *answer.ids)] = answer
        return results

    monkeypatch.setattr(BatchedGenerator, "generate", note)
    return answers


@pytest.fixture
def computed(monkeypatch):
    """Every call in which TRL asks for log-probabilities: the rows' tokens, and the log-probability of each."""
    from trl import GRPOTrainer

    calls, compute = [], GRPOTrainer._get_per_token_logps_and_entropies

    def note(self, model, ids, mask, width, *args, **kwargs):
        output = compute(self, model, ids, mask, width, *args, **kwargs)
        whole = torch.cat([torch.zeros(len(ids), ids.shape[1] - width), output[0].detach()], 1)
        rows = zip(ids, mask.bool(), whole, strict=True)
        calls.append([(tuple(row[read].tolist()), logps[read].tolist()) for row, read, logps in rows])
        return output

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", note)
    return calls


def run(start, folder, lora=None, **trainer):
    """Constrained GRPO from a model, on the tasks of :data:`asked`."""
    settings = {"start_from": str(start), "output": str(folder / "out"), "reward": RewardSettings(evaluator="verified")}
    return grpo.run(multi_turn_settings(**settings, constrained=True, lora=lora, trainer=trainer))


def answers_in(tokens, answers):
    """The answers whose prompt and tokens a row begins with, with their places in it."""
    for whole, answer in answers.items():
        if tokens[: len(whole)] == whole:
            yield slice(len(whole) - len(answer.ids), len(whole)), answer


@pytest.mark.parametrize("gives_up", [False, True])
def test_the_learner_and_the_sampler_have_equal_log_probabilities(
    gives_up, cloned, tmp_path, sampled, computed, monkeypatch
):
    """Importance ratios of the first step are 1, whichever of sampler, old policy and learner is compared."""
    import llguidance

    if gives_up:
        limits, build = llguidance.LLParserLimits(step_lexer_fuel=60), llguidance.LLMatcher
        monkeypatch.setattr(constraints, "_new_matcher", lambda t, g: build(t, g, log_level=0, limits=limits))
    batches = {"steps_per_generation": 2, "per_device_train_batch_size": 4, "save_strategy": "no"}
    run(cloned, tmp_path, max_steps=1, temperature=0.7, **batches)
    assert any(answer.unconstrained for answer in sampled.values()) == gives_up
    old, first = computed[0], computed[-1]  # all rows before the step; those of the first batch in it
    assert (len(old), len(first)) == (8, 4)
    count = 0
    for tokens, logps in [*old, *first]:
        trained = set()
        for span, answer in answers_in(tokens, sampled):
            assert logps[span] == pytest.approx(answer.logprobs, abs=1e-4)
            trained.update(range(span.start, span.stop))
        assert not any(logp for number, logp in enumerate(logps) if number not in trained)
        count += len(trained)
    assert count > 100
    ratios = [torch.tensor(logps) - torch.tensor(dict(old)[tokens]) for tokens, logps in first]
    assert torch.cat(ratios).exp().sub(1).abs().max() < 1e-4


def test_without_the_mask_the_log_probabilities_differ(cloned, tmp_path, sampled, computed, monkeypatch):
    monkeypatch.setattr(MaskedHead, "install", lambda self, trainer: None)
    run(cloned, tmp_path, max_steps=1)
    gains = [
        theirs - free
        for tokens, logps in computed[0]
        for span, answer in answers_in(tokens, sampled)
        for theirs, free in zip(answer.logprobs, logps[span], strict=True)
    ]
    assert min(gains) > -1e-4  # what is left of the distribution has been scaled up
    assert max(gains) > 0.1


def test_an_adapter_trains_and_its_reference_is_masked_too(adapted, tmp_path):
    run(adapted, tmp_path, LoraSettings(), beta=0.1, max_steps=2)
    log = json.loads((tmp_path / "out" / "done.json").read_text())["log"]
    first, second = (entry for entry in log if "loss" in entry)
    assert first["kl"] == pytest.approx(0, abs=1e-6)
    assert first["grad_norm"] > 0
    assert second["kl"] > 0
    assert first["episodes/valid"] > 0.9


def test_training_that_cannot_use_masks_is_refused_first(monkeypatch):
    with pytest.raises(InvalidValueError) as refusal:
        check(single_turn_settings("x", "m", "r", constrained=True))
    assert refusal.value.field == "constrained"
    monkeypatch.setattr(grpo_settings, "is_available", lambda: False)
    with pytest.raises(InvalidValueError) as refusal:
        check(multi_turn_settings(constrained=True))
    assert refusal.value.field == "constrained"


def test_models_that_cap_their_logits_are_refused(tokenizer):
    from types import SimpleNamespace

    from transformers import Gemma2Config, Gemma2ForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Gemma2Config(vocab_size=300, num_key_value_heads=2, head_dim=16, final_logit_softcapping=0.01, **sizes)
    accelerator = SimpleNamespace(distributed_type=None)
    trainer = SimpleNamespace(
        model=Gemma2ForCausalLM(config), ref_model=None, use_vllm=False, accelerator=accelerator, temperature=1.0
    )
    with pytest.raises(InvalidValueError) as refusal:
        MaskedHead(tokenizer).install(trainer)
    assert refusal.value.field == "constrained"
