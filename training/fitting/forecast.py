"""Forecast of a stage: steps, tokens, memory and hours, from settings and a model's configuration alone.

Memory counts weights, gradients, the optimiser's moments, the key-value cache while sampling, the activations of one
pass, a tile of the logits, a reward model, and what vLLM takes of the device. Weights, gradients, moments and vLLM's
share are counted; the rest is estimated from peaks of small runs on a CPU (docs/training.md). Partners that are models
on the same device are not included.

Every device holds all weights (DDP): with FSDP or ZeRO-3 a device needs less than is said here.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from typing import Any

from sotopia_env.errors import InvalidValueError
from training.stage.settings import Assumptions, ModelSettings

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_GB = 1e9
_TILE = (4096, 32_768)
"""Tokens and words whose logits TRL's loss holds at once."""


# --- memory -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one device, by part.

    Attributes:
        weights: of the model, of its adapter and of a second copy for the KL penalty.
        training: gradients and the optimiser's moments.
        cache: keys and values of all answers sampled at once.
        activations: of one forward and backward pass.
        logits: of one tile of that pass, in float32, with all that the loss makes of them.
        scorer: weights of the reward model.
        vllm: vLLM's share of the device: a copy of the weights, and its cache.
    """

    weights: int
    training: int
    cache: int
    activations: int
    logits: int
    scorer: int = 0
    vllm: int = 0

    @property
    def total(self) -> int:
        """Bytes at the peak: sampling and learning alternate."""
        return self.certain + max(self.cache, self.activations + self.logits)

    @property
    def certain(self) -> int:
        """Bytes that are counted, not estimated: a run with less free memory cannot train."""
        return self.weights + self.scorer + self.vllm + self.training

    def text(self) -> str:
        """Returns the estimate in GB."""
        sizes = ", ".join(f"{part.name} {getattr(self, part.name) / _GB:.1f}" for part in fields(self))
        return f"{self.total / _GB:.1f} GB ({sizes})"


@dataclass(frozen=True, slots=True)
class Batch:
    """What is in a device's memory at once.

    Attributes:
        length: tokens of the longest row.
        logit_tokens: tokens of a row with logits; 0 for a classifier.
        sampled: rows that are sampled at once in this process; 0 if nothing is, or vLLM does it.
    """

    length: int
    logit_tokens: int
    sampled: int = 0


def memory(config: Any, model: ModelSettings, arguments: Any, batch: Batch, scorer: int = 0, vllm: int = 0) -> Memory:
    """Returns the estimate for a transformers configuration of a decoder.

    Args:
        config: with ``hidden_size``, ``num_hidden_layers``, ``num_attention_heads``, ``intermediate_size`` and
            ``vocab_size``.
        model: adapter and quantisation.
        arguments: of the trainer.
        batch: lengths and numbers of rows.
        scorer: bytes of a reward model; see :func:`weights`.
        vllm: bytes that vLLM takes.
    """
    width, layers, count = config.hidden_size, config.num_hidden_layers, arguments.per_device_train_batch_size
    size, reference = _BYTES[model.dtype], getattr(arguments, "beta", 0.0) > 0
    # In 4 bit, embeddings, head and norms are put into float32 for training.
    own = weights(config, model, outer_bytes=4)
    if model.lora is None:
        trained = sum(_parameters(config))
        own *= 2 if reference else 1
    else:
        trained = layers * model.lora.rank * 2 * (4 * width + 3 * (width + config.intermediate_size) // 2)
        own += trained * 4 * (2 if reference else 1)
    layer = _layer_activations(config, model)
    kept = layer + int(1.4 * layers * width * size) if arguments.gradient_checkpointing else layers * layer
    tile = min(count * batch.logit_tokens, _TILE[0]) * min(config.vocab_size, _TILE[1]) * 4
    return Memory(
        weights=own,
        training=trained * _training_bytes(arguments.optim.value, 4 if model.lora else size),
        cache=batch.sampled * batch.length * layers * 2 * _key_value(config) * size,
        activations=count * batch.length * kept,
        logits=int(8.6 * tile),
        scorer=scorer,
        vllm=vllm,
    )


def _layer_activations(config: Any, model: ModelSettings) -> int:
    """Bytes that one token leaves in one layer for the backward pass, and what that pass makes of them at its peak."""
    width, inner = config.hidden_size, config.intermediate_size
    if model.lora is None:
        numbers = 10 * width + 4 * inner
    else:  # adapters copy the inputs of their layers, and dropout the copies
        numbers = 23 * width + 8 * inner if model.lora.dropout else 13 * width + int(6.5 * inner)
        if model.dtype != "float32" and model.quantization == "none":
            numbers = int(1.65 * numbers)  # adapters are float32, and so are these copies
    return numbers * _BYTES[model.dtype]


def _training_bytes(optimizer: str, size: int) -> int:
    """Bytes of gradient and moments for each trained weight; moments of other optimisers than AdamW are not counted."""
    if not optimizer.startswith("adamw") or optimizer.startswith("adamw_apex"):
        return size
    return size + (2 if "8bit" in optimizer or "4bit" in optimizer else 2 * size)


def weights(config: Any, model: ModelSettings, outer_bytes: int | None = None) -> int:
    """Returns the bytes of a decoder's weights; in 4 bit its embeddings and head have ``outer_bytes`` each."""
    inner, outer = _parameters(config)
    size = _BYTES[model.dtype]
    return int(inner * 0.56) + outer * (outer_bytes or size) if model.quantization == "nf4" else (inner + outer) * size


def _parameters(config: Any) -> tuple[int, int]:
    """The numbers of weights in the layers, and in embeddings and output layer."""
    width = config.hidden_size
    per_layer = 2 * width * width + 2 * width * _key_value(config) + 3 * width * config.intermediate_size
    tied = 1 if getattr(config, "tie_word_embeddings", False) else 2
    return config.num_hidden_layers * per_layer, tied * config.vocab_size * width


def _key_value(config: Any) -> int:
    heads = config.num_attention_heads
    return int(config.hidden_size // heads * (getattr(config, "num_key_value_heads", None) or heads))


def available_memory() -> int:
    """Returns the free bytes on the GPU of this process, or in main memory if there is no GPU."""
    import psutil
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info(int(os.environ.get("LOCAL_RANK", "0")))[0])
    return int(psutil.virtual_memory().available)


# --- work ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """What a stage computes, on all devices together.

    Attributes:
        devices: number of devices.
        rows: rows, prompts or situations of the data.
        steps: optimiser steps.
        sampled: tokens that are sampled.
        trained: tokens that pass forward and backward, those of prompts included.
    """

    devices: int
    rows: int
    steps: int
    sampled: int
    trained: int

    def hours(self, assumed: Assumptions) -> float | None:
        """Returns the hours at the assumed tokens per second; ``None`` where one that is needed is not stated."""
        seconds = 0.0
        for tokens, rate in ((self.sampled, assumed.sampled_per_second), (self.trained, assumed.trained_per_second)):
            if tokens and rate is None:
                return None
            seconds += tokens / rate / self.devices if tokens and rate else 0.0
        return seconds / 3600


def supervised_work(arguments: Any, rows: int, row_tokens: float, devices: int, epochs: float | None = None) -> Work:
    """Returns the work of a stage that samples nothing; ``epochs`` is where it ends before its schedule does."""
    batch, epochs = arguments.per_device_train_batch_size * devices, epochs or arguments.num_train_epochs
    steps = _steps(arguments, math.ceil(rows / batch), epochs)
    passes = steps * arguments.gradient_accumulation_steps * batch
    whole = math.ceil(rows * epochs)
    return Work(devices, rows, steps, 0, round((passes if arguments.max_steps > 0 else whole) * row_tokens))


def group_work(arguments: Any, rows: int, row_tokens: float, answer_tokens: float, devices: int) -> Work:
    """Returns the work of GRPO over ``rows`` prompts; only whole generation batches are played, as in TRL."""
    batch = arguments.per_device_train_batch_size * arguments.steps_per_generation * devices
    repeats = arguments.steps_per_generation * arguments.num_iterations
    batches = rows // (batch // arguments.num_generations)
    steps = _steps(arguments, batches * repeats, arguments.num_train_epochs)
    answers = math.ceil(steps * arguments.gradient_accumulation_steps / repeats) * batch
    trained = answers * arguments.num_iterations * row_tokens
    return Work(devices, rows, steps, round(answers * answer_tokens), round(trained))


def _steps(arguments: Any, batches: int, epochs: float) -> int:
    """Optimiser steps, as the trainer counts them, for the forward passes of an epoch."""
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    return math.ceil(epochs * max(1, math.ceil(batches / arguments.gradient_accumulation_steps)))


# --- the forecast -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forecast:
    """Work and memory of a stage.

    Attributes:
        memory: of each device.
        one: the work on one device.
        many: the work on the assumed number of devices.
        assumed: what was taken for granted.
    """

    memory: Memory
    one: Work
    many: Work
    assumed: Assumptions

    def rows(self) -> list[list[str]]:
        """Returns the cells by device count: devices, rows, steps, sampled and trained tokens, memory and hours."""
        return [self._cells(work) for work in (self.one, self.many)]

    def _cells(self, work: Work) -> list[str]:
        hours = work.hours(self.assumed)
        return [
            str(work.devices),
            f"{work.rows:,}",
            f"{work.steps:,}",
            _millions(work.sampled),
            _millions(work.trained),
            f"{self.memory.total / _GB:.1f}",
            "unknown" if hours is None else f"{hours:.1f}",
        ]

    def __str__(self) -> str:
        """The forecast as a table, with memory by part and the assumptions."""
        stated = {name: value for name, value in self.assumed.model_dump().items() if value is not None}
        lines = [" | ".join(HEADER), *(" | ".join(cells) for cells in self.rows())]
        assumed = ", ".join(f"{name} {value}" for name, value in stated.items())
        return "\n".join([*lines, f"memory of one device: {self.memory.text()}", f"assumed: {assumed}"]) + "\n"


HEADER = ("devices", "rows", "steps", "sampled (M tokens)", "trained (M tokens)", "GB a device", "hours")


def supervised_forecast(
    arguments: Any, need: Memory, rows: int, row_tokens: float, assumed: Assumptions, keep: str | int
) -> Forecast:
    """Returns the forecast of a stage that samples nothing and ends after the epoch ``keep``, if it is one."""
    epochs = keep if isinstance(keep, int) else None
    works = [supervised_work(arguments, rows, row_tokens, devices, epochs) for devices in (1, assumed.devices)]
    return Forecast(need, works[0], works[1], assumed)


def _millions(tokens: int) -> str:
    return f"{tokens / 1e6:,.1f}"


def base_config(base: str | None, assumed: Assumptions) -> Any:
    """Returns the base model's configuration; loads no weights.

    Raises:
        InvalidValueError: it cannot be loaded.
    """
    from transformers import AutoConfig

    name = base or assumed.base
    if not name:
        raise InvalidValueError("the stage to start from has not run yet", field="base", hint="assume a base")
    try:
        return AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"no configuration of {name!r} could be loaded ({error})", field="base") from None
