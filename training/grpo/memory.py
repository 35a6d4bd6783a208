"""Memory that a GRPO step needs, estimated from a model's configuration before anything is loaded.

It counts weights, gradients, AdamW's moments, the key-value cache while sampling, the activations of one forward and
backward pass, the logits, which are often the largest part, and a reward model. It detects runs that cannot fit, such
as a batch of 64 answers of 4,096 tokens over a vocabulary of 152,064 in float32: 160 GB of logits. A run is refused
when the estimate exceeds the device's free memory. Partners that are models on the same device are not included.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sotopia_env.errors import InvalidValueError
from training.grpo.settings import GRPOSettings
from training.models.loading import adapter_base, find_model
from training.reward.scorer import read_note
from training.stage.settings import PromptSettings

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes by part.

    Attributes:
        weights: of the policy, of its adapter and of a second copy for the KL penalty.
        training: gradients and the optimiser's moments.
        cache: keys and values of all answers sampled at once.
        activations: of one forward and backward pass.
        logits: of that pass, in float32, with their gradient.
        scorer: weights of the reward model.
    """

    weights: int
    training: int
    cache: int
    activations: int
    logits: int
    scorer: int = 0

    @property
    def total(self) -> int:
        """Bytes at the peak: sampling and learning alternate."""
        return self.weights + self.scorer + self.training + max(self.cache, self.activations + self.logits)

    def text(self) -> str:
        """Returns the estimate in GB."""
        parts = ("weights", "training", "cache", "activations", "logits", "scorer")
        sizes = ", ".join(f"{name} {getattr(self, name) / 1e9:.1f}" for name in parts)
        return f"{self.total / 1e9:.1f} GB ({sizes})"


def _parameters(config: Any) -> tuple[int, int]:
    """The numbers of weights in the layers, and in embeddings and output layer."""
    width = config.hidden_size
    per_layer = 2 * width * width + 2 * width * _key_value(config) + 3 * width * config.intermediate_size
    tied = 1 if getattr(config, "tie_word_embeddings", False) else 2
    return config.num_hidden_layers * per_layer, tied * config.vocab_size * width


def _key_value(config: Any) -> int:
    heads = config.num_attention_heads
    return int(config.hidden_size // heads * (getattr(config, "num_key_value_heads", None) or heads))


def _weights(config: Any, dtype: str, quantized: bool, outer_bytes: int) -> int:
    inner, outer = _parameters(config)
    return int(inner * 0.56) + outer * outer_bytes if quantized else (inner + outer) * _BYTES[dtype]


def estimate(config: Any, settings: GRPOSettings, prompt: PromptSettings, scorer: int = 0) -> Estimate:
    """Returns the estimate for a transformers configuration of a decoder.

    Args:
        config: with ``hidden_size``, ``num_hidden_layers``, ``num_attention_heads``, ``intermediate_size`` and
            ``vocab_size``.
        settings: batch, answers, adapter, quantisation.
        prompt: length of a row.
        scorer: bytes of a reward model; see :func:`scorer_weights`.
    """
    width, layers, vocabulary = config.hidden_size, config.num_hidden_layers, config.vocab_size
    bytes_each = _BYTES[settings.dtype]
    # In 4 bit, embeddings, head and norms are put into float32 for training.
    weights = _weights(config, settings.dtype, settings.quantization == "nf4", outer_bytes=4)
    if settings.lora is None:
        trained = sum(_parameters(config))
        weights *= 2 if settings.beta > 0 else 1
    else:
        trained = layers * settings.lora.rank * 2 * (4 * width + 3 * (width + config.intermediate_size) // 2)
        weights += trained * 4 * (2 if settings.beta > 0 else 1)
    tokens = settings.fit.batch_size * prompt.max_length
    sampled = settings.fit.batch_size * settings.steps_per_generation * prompt.max_length
    per_token = 2 * width * bytes_each if settings.fit.gradient_checkpointing else 34 * width * bytes_each
    answer_length = prompt.max_length if settings.mode == "multi-turn" else (settings.max_answer or prompt.max_answer)
    return Estimate(
        weights=weights,
        training=trained * 12,
        cache=sampled * layers * 2 * _key_value(config) * bytes_each,
        activations=tokens * layers * per_token,
        logits=2 * settings.fit.batch_size * answer_length * vocabulary * 4,
        scorer=scorer,
    )


def scorer_weights(directory: str | Path) -> int:
    """Returns the bytes of a reward model's weights, from its note and its configuration, without its adapter."""
    from transformers import AutoConfig

    path = find_model(directory)
    model = read_note(path).model
    base = adapter_base(path) or str(path)
    return _weights(AutoConfig.from_pretrained(base), model.dtype, model.quantization == "nf4", _BYTES[model.dtype])


def check_memory(base: str | Path, settings: GRPOSettings, prompt: PromptSettings) -> Estimate:
    """Returns the estimate, and refuses a run that cannot fit; loads only the model's configuration.

    Raises:
        InvalidValueError: it exceeds the free memory; names the parts.
    """
    from transformers import AutoConfig

    scorer = 0 if settings.reward.model is None else scorer_weights(settings.reward.model)
    need = estimate(AutoConfig.from_pretrained(str(base)), settings, prompt, scorer)
    available = available_memory()
    if settings.check_memory and need.total > available:
        raise InvalidValueError(
            f"memory: an estimated {need.text()} do not fit in the {available / 1e9:.1f} GB that are free; lower "
            "fit.batch_size or prompt length, set fit.gradient_checkpointing or quantization: nf4 "
            "(check_memory: false tries anyway)"
        )
    return need


def available_memory() -> int:
    """Returns the free bytes on the GPU of this process, or in main memory if there is no GPU."""
    import psutil
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info(int(os.environ.get("LOCAL_RANK", "0")))[0])
    return int(psutil.virtual_memory().available)
