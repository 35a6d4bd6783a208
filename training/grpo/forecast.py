"""Forecast of GRPO: memory, steps and tokens of both modes; and the refusal of what cannot fit."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from sotopia_env.errors import InvalidValueError
from training.attribution.settings import COUNTERFACTUAL
from training.fitting.forecast import (
    Batch,
    Forecast,
    Memory,
    available_memory,
    base_config,
    group_work,
    memory,
    weights,
)
from training.fitting.loop import TrainingRun, begin_from
from training.grpo.sampling import MAX_BATCH
from training.grpo.settings import GRPOSettings, check, check_rows, trainer_arguments
from training.grpo.single_turn import prompt_records
from training.grpo.situations import situation_count
from training.models.loading import adapter_base, find_model, read_prompt_settings
from training.models.tokenizers import load_tokenizer, prompt_ids
from training.reward.scorer import read_note
from training.stage.settings import Assumptions, ModelSettings, PromptSettings

logger = logging.getLogger(__name__)
_TURNS = 20  # of an episode without a limit of its own; shared by two seats


def forecast(settings: GRPOSettings, assumed: Assumptions) -> Forecast:
    """Returns the forecast of a GRPO stage.

    Raises:
        InvalidValueError: the settings contradict each other, or something neither exists nor is assumed.
    """
    check(settings)
    prompt, model = _origin(settings, assumed)
    arguments = trainer_arguments(settings, prompt)
    config = base_config(model.base, assumed)
    scorer = 0
    if settings.reward.model is not None:
        exists = Path(settings.reward.model).exists()
        scorer = _scorer_weights(settings.reward.model) if exists else _assumed_scorer_weights(assumed)
    need = stage_memory(settings, config, model, arguments, prompt, scorer, int(assumed.device_memory * 1e9))
    rows, row_tokens = _rows(settings, prompt, model, assumed)
    check_rows(rows, arguments)
    sampled = assumed.answer_tokens or prompt.max_answer
    if settings.mode == "multi-turn":
        turns = _own_turns(settings)
        sampled = min(turns * sampled, prompt.max_length)
        if settings.reward.credit == COUNTERFACTUAL:
            sampled *= 1 + settings.reward.samples * (turns + 1) / 2
    works = [group_work(arguments, rows, row_tokens, sampled, devices) for devices in (1, assumed.devices)]
    return Forecast(need, works[0], works[1], assumed)


def _own_turns(settings: GRPOSettings) -> int:
    """The most turns that a seat of two has in a whole episode."""
    assert settings.situations is not None
    return -(-(settings.situations.max_turns or _TURNS) // 2)


def _origin(settings: GRPOSettings, assumed: Assumptions) -> tuple[PromptSettings, ModelSettings]:
    """Prompt and model of the earlier stage, or the assumed ones while it has not run."""
    if Path(settings.start_from).exists():
        prompt = read_prompt_settings(find_model(settings.start_from))
        model = begin_from(settings.model, settings.start_from, prompt)
    else:
        prompt = PromptSettings(max_length=assumed.max_length, max_answer=assumed.max_answer)
        model = settings.model.model_copy(update={"base": assumed.base or ""})
    return prompt.model_copy(update={"max_answer": settings.max_answer or prompt.max_answer}), model


def _rows(
    settings: GRPOSettings, prompt: PromptSettings, model: ModelSettings, assumed: Assumptions
) -> tuple[int, float]:
    """Number of prompts or situations, and the mean tokens of a row with its answer."""
    longest = assumed.row_tokens or float(prompt.max_length)
    if settings.situations is not None:
        return situation_count(settings.situations), longest
    if assumed.rows is not None:
        return assumed.rows, longest
    tokenizer = load_tokenizer(model.base, prompt)
    lengths = [len(prompt_ids(tokenizer, row["prompt"])) for row in prompt_records(settings, prompt, tokenizer)]
    mean = sum(lengths) / len(lengths) + (assumed.answer_tokens or prompt.max_answer)
    return len(lengths), assumed.row_tokens or mean


def stage_memory(
    settings: GRPOSettings,
    config: Any,
    model: ModelSettings,
    arguments: Any,
    prompt: PromptSettings,
    scorer: int,
    device: int,
) -> Memory:
    """Returns the memory of a step; ``device`` is the memory of one device in bytes, of which vLLM takes its share."""
    sampled = arguments.per_device_train_batch_size * arguments.steps_per_generation
    shared = arguments.use_vllm and arguments.vllm_mode == "colocate"
    if settings.reward.credit == COUNTERFACTUAL:
        # The continuations of all states of the batch, as many of them at once as the sampler takes.
        sampled = max(sampled, min(MAX_BATCH, sampled * _own_turns(settings) * settings.reward.samples))
    batch = Batch(
        length=prompt.max_length,
        logit_tokens=prompt.max_length if settings.mode == "multi-turn" else prompt.max_answer,
        sampled=0 if arguments.use_vllm else sampled,
    )
    vllm = int(arguments.vllm_gpu_memory_utilization * device) if shared else 0
    return memory(config, model, arguments, batch, scorer, vllm)


def _scorer_weights(directory: str) -> int:
    """Bytes of a reward model's weights, from its note and its configuration, without its adapter."""
    path = find_model(directory)
    return weights(base_config(adapter_base(path) or str(path), Assumptions()), read_note(path).model)


def _assumed_scorer_weights(assumed: Assumptions) -> int:
    """Bytes of a 4-bit reward model of the assumed base, as the configurations for 7B models train it."""
    model = ModelSettings(base=assumed.scorer or assumed.base or "", quantization="nf4", dtype="bfloat16")
    return weights(base_config(model.base, assumed), model)


def check_memory(settings: GRPOSettings, frame: TrainingRun) -> Memory:
    """Returns the estimate, refuses a run that cannot fit and warns of one that may not; loads no weights.

    Raises:
        InvalidValueError: weights, gradients and moments alone exceed the free memory; names the parts.
    """
    available = available_memory()
    scorer = 0 if settings.reward.model is None else _scorer_weights(settings.reward.model)
    config = base_config(frame.model.base, Assumptions())
    need = stage_memory(settings, config, frame.model, frame.arguments, frame.prompt, scorer, available)
    advice = (
        f"in the {available / 1e9:.1f} GB that are free; lower trainer.per_device_train_batch_size or prompt length, "
        "set trainer.gradient_checkpointing or quantization: nf4"
    )
    if settings.check_memory and need.certain > available and not _in_shards(frame.arguments):
        raise InvalidValueError(
            f"weights, gradients and moments alone, {need.certain / 1e9:.1f} GB of an estimated "
            f"{need.text()}, do not fit {advice} (check_memory: false tries anyway)",
            field="memory",
        )
    if need.total > available:
        logger.warning("memory: an estimated %s may not fit %s", need.text(), advice)
    return need


def _in_shards(arguments: Any) -> bool:
    """Whether a device holds a part of the weights only, by the arguments or by accelerate's file."""
    launched = any(os.environ.get(f"ACCELERATE_USE_{kind}", "") == "true" for kind in ("FSDP", "DEEPSPEED"))
    return launched or bool(arguments.fsdp or arguments.deepspeed)
