"""A resumed run trains the checkpoint's weights, whatever the installed transformers loads of them."""

import copy

import pytest
import torch
from sotopia_training.fitting.resumed_weights import load_missing_weights
from sotopia_training.models.loading import find_model, load_causal_lm
from sotopia_training.stage.settings import ModelSettings

from sotopia_env.foundation.errors import InvalidValueError
from tests.errors import raises


@pytest.fixture
def two_adapters(tiny_model, adapted):
    """A policy in training with TRL's frozen copy of where it began, which has other weights."""
    from peft import PeftModel

    base = load_causal_lm(ModelSettings(base=str(tiny_model)))
    model = PeftModel.from_pretrained(base, find_model(adapted), is_trainable=True)
    model.load_adapter(find_model(adapted), "ref")
    change(model, ".default.")
    return model


def change(model, part):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name and part in name:
                parameter.add_(1)


@pytest.mark.parametrize("missing", [".default.", ".ref.", ".", "nothing"])
def test_missing_adapters_are_loaded(two_adapters, tmp_path, missing):
    two_adapters.save_pretrained(tmp_path)
    saved = copy.deepcopy(two_adapters.state_dict())
    change(two_adapters, missing)
    trained = [name for name, parameter in two_adapters.named_parameters() if parameter.requires_grad]
    load_missing_weights(two_adapters, tmp_path)
    assert all(torch.equal(saved[name], weight) for name, weight in two_adapters.state_dict().items())
    assert trained == [name for name, parameter in two_adapters.named_parameters() if parameter.requires_grad]


def test_a_checkpoint_without_an_adapter_of_the_model_is_refused(two_adapters, tmp_path):
    two_adapters.save_pretrained(tmp_path, selected_adapters=["default"])
    with raises(InvalidValueError, file="ref"):
        load_missing_weights(two_adapters, tmp_path)


@pytest.mark.parametrize("shard", ["5GB", "200KB"])
@pytest.mark.parametrize("tied", [True, False])
def test_all_weights_are_compared(tiny_model, tmp_path, shard, tied):
    model = load_causal_lm(ModelSettings(base=str(tiny_model), lora=None))
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.save_pretrained(tmp_path, max_shard_size=shard)
    load_missing_weights(model, tmp_path)
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    field = "model.embed_tokens.weight" if tied else "lm_head.weight"
    with raises(InvalidValueError, field=field, file=tmp_path.name):
        load_missing_weights(model, tmp_path)
