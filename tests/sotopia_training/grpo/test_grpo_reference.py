"""What KL is measured against, and that nothing of it is left beside the trained model."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from sotopia_training.fitting.loop import load_for_training
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.multi_turn import episode_reward, prompt_rows, trainer_class
from sotopia_training.grpo.settings import trainer_arguments
from sotopia_training.grpo.situations import situations
from sotopia_training.models.loading import load_causal_lm
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.stage.settings import LoraSettings, ModelSettings
from trl.trainer.utils import use_adapter

from sotopia_env.foundation.errors import InvalidValueError
from tests.errors import raises
from tests.sotopia_training.conftest import SHORT as BRIEF
from tests.sotopia_training.grpo.grpo_settings import SITUATIONS, multi_turn_settings


@pytest.mark.parametrize("reference", ["start", "base"])
def test_kl_is_measured_against_the_configured_reference(adapted, tiny_model, tmp_path, reference):
    """R15: TRL 0.16 with PEFT measured against the bare base, whatever was cloned before."""
    settings = multi_turn_settings(
        start_from=str(adapted),
        lora=LoraSettings(dropout=0),
        trainer={"beta": 0.1},
        reference=reference,
        output=str(tmp_path),
    )
    model_settings = grpo.begin_from(settings.model, str(adapted), BRIEF)
    model, adapter = load_for_training(model_settings, gradient_checkpointing=False)
    trainer = trainer_class()(
        model=model,
        args=trainer_arguments(settings, BRIEF),
        train_dataset=Dataset.from_list(prompt_rows(situations(SITUATIONS))),
        processing_class=load_tokenizer(tiny_model),
        peft_config=adapter,
        reward_funcs=[episode_reward],
    )
    grpo.set_reference(trainer, settings)
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]])
    with torch.no_grad(), use_adapter(trainer.model, "ref"):
        measured = trainer.model.eval()(input_ids=ids).logits
    bare = load_causal_lm(ModelSettings(base=str(tiny_model)))
    started = load_causal_lm(ModelSettings(base=str(tiny_model), adapter=str(adapted / "model")))
    with torch.no_grad():
        expected = {"base": bare(input_ids=ids).logits, "start": started.eval()(input_ids=ids).logits}
    assert not torch.allclose(expected["base"], expected["start"], atol=1e-2)
    assert torch.allclose(measured, expected[reference], atol=1e-4)


def test_an_unchanged_policy_has_zero_kl_to_its_start(adapted, cloned, tmp_path):
    """With dropout on, policy and reference would differ by the masks they draw."""
    still = {"learning_rate": 1e-12, "max_steps": 2, "beta": 0.04}
    table = {"adapter": (adapted, LoraSettings(dropout=0.3)), "weights": (cloned, None)}
    for name, (start, lora) in table.items():
        settings = multi_turn_settings(start_from=str(start), lora=lora, output=str(tmp_path / name), trainer=still)
        steps = [entry for entry in grpo.run(settings)["log"] if "kl" in entry]
        assert len(steps) == 2
        assert [entry["kl"] for entry in steps] == pytest.approx([0, 0], abs=1e-6), name


def test_an_adapter_is_trained_on_with_the_dropout_that_was_asked_for(adapted, tiny_model):
    """R17: settings that nothing reads; the adapter was made with none."""
    settings = ModelSettings(base=str(tiny_model), adapter=str(adapted / "model"), lora=LoraSettings(dropout=0.3))
    model, _ = load_for_training(settings, gradient_checkpointing=False)
    rates = {module.p for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {0.3}


def test_the_bare_base_as_reference_is_refused_without_an_adapter(cloned, tmp_path, monkeypatch):
    monkeypatch.setattr(grpo, "load_for_training", lambda *_: pytest.fail("a model was loaded"))
    with raises(InvalidValueError, field="reference"):
        grpo.run(
            multi_turn_settings(
                start_from=str(cloned), trainer={"beta": 0.1}, reference="base", output=str(tmp_path / "out")
            )
        )


def test_the_trained_adapter_is_left_alone_in_the_model_directory(adapted, tmp_path):
    """TRL saves the frozen reference beside it; the next stage must not find two."""
    settings = multi_turn_settings(
        start_from=str(adapted),
        lora=LoraSettings(dropout=0),
        output=str(tmp_path / "out"),
        trainer={"max_steps": 1, "beta": 0.1},
    )
    grpo.run(settings)
    model = Path(settings.output) / "model"
    assert (model / "adapter_config.json").is_file()
    assert not (model / "ref").exists()
    assert grpo.read_prompt_settings(model) == BRIEF
