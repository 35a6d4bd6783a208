"""Settings that training stages share: the model, its adapter and its prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from sotopia_env.foundation.settings import Settings

Quantization = Literal["none", "nf4"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]


def fast_dtype(device: str = "") -> Literal["float32", "bfloat16"]:
    """Returns the data type in which a device computes fast: bfloat16 on a GPU and on some CPUs, else float32.

    The CPUs are those with AMX, and those of AMD with AVX512-BF16.

    Args:
        device: ``cuda`` or ``cpu``; empty for a GPU if one is available.
    """
    import torch

    if device == "cuda" or (not device and torch.cuda.is_available()):
        return "bfloat16"
    cpu: Mapping[str, Any] = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    # Measured against float32: three times the speed with AMX; with AVX512-BF16 alone 2.7 times (a step of cloning
    # SmolLM2) on AMD Zen 5 and no gain on another CPU; and with neither, products of matrices take 36 times as long.
    # A rule, and no measurement, so that processes on equal machines choose alike.
    fast = cpu.get("amx_bf16") or (cpu.get("avx512_bf16") and "AMD" in str(cpu.get("cpu_name")))
    return "bfloat16" if fast else "float32"


def _resolved(dtype: DtypeName) -> DtypeName:
    return fast_dtype() if dtype == "auto" else dtype


Dtype = Annotated[DtypeName, AfterValidator(_resolved)]
"""A data type of weights. ``auto`` becomes the fast one of this machine, so that records name what was used."""


class LoraSettings(Settings):
    """Low-rank adaptation (SOTOPIA-π, arXiv 2403.08715, B.5; SOTOPIA-RL, C.1: the same rank, alpha and dropout).

    Attributes:
        rank: the rank of the two factors; at least 1.
        alpha: the update is scaled by alpha / rank.
        dropout: the dropout before the first factor, from 0 to below 1.
        target_modules: the names of the adapted layers, or ``"all-linear"``.
    """

    rank: int = Field(default=8, ge=1)
    alpha: int = Field(default=16, ge=1)
    dropout: float = Field(default=0.05, ge=0, lt=1)
    target_modules: str | tuple[str, ...] = "all-linear"


class ModelSettings(Settings):
    """The model that a stage starts from.

    Attributes:
        base: directory or hub name of the base model.
        adapter: directory of an adapter on ``base`` to start from; ``None`` starts from the base itself.
        lora: the adapter to train; ``None`` trains all weights.
        quantization: ``"nf4"`` loads the base in 4 bit with double quantisation (QLoRA), ``"none"`` as it is.
        dtype: the data type of the weights (of the computation, with ``nf4``); ``auto`` for :func:`fast_dtype`.
        attention: transformers' ``attn_implementation``; ``None`` for its default.
    """

    base: str
    adapter: str | None = None
    lora: LoraSettings | None = LoraSettings()
    quantization: Quantization = "none"
    dtype: Dtype = "float32"
    attention: str | None = None


class PromptSettings(Settings):
    """Format and limits of prompts; saved beside every trained model, which is prompted the same way when it plays.

    Attributes:
        format: the format of :mod:`sotopia_env.policies.agent_prompt`; models are trained on text, not function calls.
        max_length: the maximum number of tokens of prompt and answer; longer prompts lose their oldest turns.
        max_answer: the number of these tokens that are reserved for the answer.
        chat_template: replaces the model's own, e.g. with one that keeps earlier messages unchanged (Mistral's does
            not).
        chat_template_kwargs: arguments of the model's chat template, e.g. ``{enable_thinking: false}`` of Qwen3.
    """

    format: Literal["chat", "single", "brief"] = "chat"
    max_length: int = Field(default=4096, ge=16)
    max_answer: int = Field(default=256, ge=1)
    chat_template: str | None = None
    chat_template_kwargs: dict[str, bool | int | float | str] = Field(default_factory=dict)
