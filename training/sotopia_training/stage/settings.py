"""Settings that training stages share: the model, its adapter and its prompts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sotopia_env.foundation.settings import Settings


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
        dtype: the data type of the weights (of the computation, with ``nf4``).
        attention: transformers' ``attn_implementation``; ``None`` for its default.
    """

    base: str
    adapter: str | None = None
    lora: LoraSettings | None = LoraSettings()
    quantization: str = Field(default="none", pattern="^(none|nf4)$")
    dtype: str = Field(default="float32", pattern="^(float32|bfloat16|float16)$")
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
