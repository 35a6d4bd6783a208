"""How much memory a GRPO step needs, estimated from a model's configuration before anything is loaded.

An estimate, not a promise: weights, gradients, AdamW's moments, the cache of keys and values while sampling, the
activations of one forward and backward pass, and the logits, which are often the largest of all. It is meant to catch
what cannot fit, such as a batch of 64 answers of 4,096 tokens over a vocabulary of 152,064 in float32: 160 GB of
logits. A run is refused when the estimate exceeds what the device has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sotopia_env.errors import InvalidValueError
from training.grpo_settings import GRPOSettings
from training.settings import PromptSettings

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes by what takes them.

    Attributes:
        weights: of the policy, of its adapter and of a second copy for the KL penalty.
        training: gradients and the optimiser's moments.
        cache: keys and values of all answers that are sampled at once.
        activations: of one forward and backward pass.
        logits: of that pass, in float32, with their gradient.
    """

    weights: int
    training: int
    cache: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        """Bytes at the worst moment: sampling and learning take turns."""
        return self.weights + self.training + max(self.cache, self.activations + self.logits)

    def text(self) -> str:
        """The estimate in one sentence, in GB."""
        parts = ("weights", "training", "cache", "activations", "logits")
        told = ", ".join(f"{name} {getattr(self, name) / 1e9:.1f}" for name in parts)
        return f"{self.total / 1e9:.1f} GB ({told})"


def estimate(config: Any, settings: GRPOSettings, prompt: PromptSettings) -> Estimate:
    """Returns the estimate for a transformers configuration of a decoder.

    Args:
        config: with ``hidden_size``, ``num_hidden_layers``, ``num_attention_heads``, ``intermediate_size`` and
            ``vocab_size``.
        settings: batch, answers, adapter, quantisation.
        prompt: length of a row.
    """
    width, layers, words = config.hidden_size, config.num_hidden_layers, config.vocab_size
    heads = config.num_attention_heads
    key_value = width // heads * (getattr(config, "num_key_value_heads", None) or heads)
    per_layer = 2 * width * width + 2 * width * key_value + 3 * width * config.intermediate_size
    tied = 1 if getattr(config, "tie_word_embeddings", False) else 2
    inner, outer = layers * per_layer, tied * words * width
    bytes_each = _BYTES[settings.dtype]
    quantised = settings.quantization == "nf4"  # then embeddings, head and norms are put into float32 for training
    weights = int(inner * 0.56) + outer * 4 if quantised else (inner + outer) * bytes_each
    if settings.lora is None:
        trained = inner + outer
        weights *= 2 if settings.beta > 0 else 1
    else:
        trained = layers * settings.lora.rank * 2 * (4 * width + 3 * (width + config.intermediate_size) // 2)
        weights += trained * 4 * (2 if settings.beta > 0 else 1)
    tokens = settings.fit.batch_size * prompt.max_length
    sampled = settings.fit.batch_size * settings.steps_per_generation * prompt.max_length
    kept = 2 * width * bytes_each if settings.fit.gradient_checkpointing else 34 * width * bytes_each
    answered = prompt.max_length if settings.mode == "multi-turn" else (settings.max_answer or prompt.max_answer)
    return Estimate(
        weights=weights,
        training=trained * 12,
        cache=sampled * layers * 2 * key_value * bytes_each,
        activations=tokens * layers * kept,
        logits=2 * settings.fit.batch_size * answered * words * 4,
    )


def check_memory(base: str | Path, settings: GRPOSettings, prompt: PromptSettings) -> Estimate:
    """Returns the estimate, and refuses what cannot fit; nothing but the model's configuration is loaded.

    Raises:
        InvalidValueError: it exceeds what the device has; says by what.
    """
    from transformers import AutoConfig

    found = estimate(AutoConfig.from_pretrained(str(base)), settings, prompt)
    there = available_memory()
    if settings.check_memory and found.total > there:
        raise InvalidValueError(
            f"memory: an estimated {found.text()} do not fit in {there / 1e9:.1f} GB; lower fit.batch_size or "
            "prompt length, set fit.gradient_checkpointing or quantization: nf4 (check_memory: false tries anyway)"
        )
    return found


def available_memory() -> int:
    """Bytes of the GPU this process computes on, or of the machine where there is none."""
    import os

    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(int(os.environ.get("LOCAL_RANK", "0"))).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
