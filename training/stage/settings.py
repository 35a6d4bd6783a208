"""Settings that stages of training share: the model, its adapter, its prompts, and what a forecast assumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sotopia_env.settings import Settings


class LoraSettings(Settings):
    """Low-rank adaptation (SOTOPIA-π, arXiv 2403.08715, B.5; SOTOPIA-RL, C.1: the same rank, alpha and dropout).

    Attributes:
        rank: of the two factors; at least 1.
        alpha: the update is scaled by alpha / rank.
        dropout: before the first factor, from 0 to below 1.
        target_modules: names of the adapted layers, or ``"all-linear"``.
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
        dtype: of the weights (of the computation, with ``nf4``).
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
        format: see :mod:`sotopia_env.policies.agent_prompt`; what is trained is text, not function calls.
        max_length: tokens of prompt and answer together; longer prompts lose their oldest turns.
        max_answer: of these, tokens reserved for the answer.
        chat_template: replaces the model's own, e.g. one that keeps conversations as they were (Mistral's does not).
        chat_template_kwargs: arguments of the model's chat template, e.g. ``{enable_thinking: false}`` of Qwen3.
    """

    format: Literal["chat", "single", "brief"] = "chat"
    max_length: int = Field(default=4096, ge=16)
    max_answer: int = Field(default=256, ge=1)
    chat_template: str | None = None
    chat_template_kwargs: dict[str, bool | int | float | str] = Field(default_factory=dict)


class Assumptions(Settings):
    """What a forecast takes for granted, because no file says it yet.

    Attributes:
        devices: the forecast is made for one device and for so many.
        rows: answers, conversations or prompts to train on; ``None`` counts them in the data.
        row_tokens: mean tokens of a row, prompt and answer together; ``None`` takes the longest possible row.
        answer_tokens: mean tokens of an answer; ``None`` takes the longest possible one.
        base: the base model, where the stage that is started from has not run yet.
        scorer: the reward model's base, where it is not trained yet.
        max_length: tokens of prompt and answer, where the earlier stage's prompt settings do not exist yet.
        max_answer: tokens of an answer, likewise.
        trained_per_second: tokens that one device trains on in a second; ``None`` leaves the hours unknown.
        sampled_per_second: tokens that one device samples in a second, likewise.
        device_memory: of one device, in GB; of which vLLM takes its share.
    """

    devices: int = Field(default=8, ge=1)
    rows: int | None = Field(default=None, ge=1)
    row_tokens: float | None = Field(default=None, gt=0)
    answer_tokens: float | None = Field(default=None, gt=0)
    base: str | None = None
    scorer: str | None = None
    max_length: int = Field(default=4096, ge=16)
    max_answer: int = Field(default=256, ge=1)
    trained_per_second: float | None = Field(default=None, gt=0)
    sampled_per_second: float | None = Field(default=None, gt=0)
    device_memory: float = Field(default=80.0, gt=0)
