"""Forecast of a training stage: optimiser steps and tokens, counted from its settings and its data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a stage computes, on all devices together.

    Attributes:
        devices: number of devices.
        rows: rows, prompts or situations of the data.
        steps: optimiser steps.
        trained: tokens that pass forward and backward, those of prompts included; an upper bound where the length of
            rows is not known. ``None`` where the earlier stage's prompt settings do not exist yet.
        sampled: the most tokens that are sampled, likewise.
    """

    devices: int
    rows: int
    steps: int
    trained: int | None
    sampled: int | None = 0

    def __str__(self) -> str:
        """The forecast in one line."""
        counts = f"{self.devices} device(s): {self.rows:,} rows, {self.steps:,} optimiser steps"
        return f"{counts}, {_millions(self.trained)} trained, {_millions(self.sampled)} sampled"


def _millions(tokens: int | None) -> str:
    return "unknown tokens" if tokens is None else f"{tokens / 1e6:,.1f} M tokens"


def supervised_forecast(
    settings: Any, arguments: Any, rows: int | None, devices: int, prepare: Callable[[Path], Dataset]
) -> Forecast:
    """Returns the forecast of a stage that samples nothing.

    Args:
        settings: of the stage; after its epoch ``keep`` training ends before the schedule does.
        arguments: of the trainer.
        rows: of training data that do not exist yet, each taken to be as long as may be; ``None`` prepares the data.
        devices: number of devices.
        prepare: returns the training rows, made in a folder.
    """
    tokens: float = settings.prompt.max_length
    if rows is None:
        with TemporaryDirectory() as folder:
            lengths = [len(row) for row in prepare(Path(folder))["input_ids"]]
            rows, tokens = len(lengths), sum(lengths) / len(lengths)
    batch = arguments.per_device_train_batch_size * devices
    epochs = settings.keep if isinstance(settings.keep, int) else arguments.num_train_epochs
    steps = _steps(arguments, math.ceil(rows / batch), epochs)
    by_steps = steps * arguments.gradient_accumulation_steps * batch
    passed = by_steps if arguments.max_steps > 0 else math.ceil(rows * epochs)
    return Forecast(devices, rows, steps, round(passed * tokens))


def group_forecast(
    arguments: Any, rows: int, row_tokens: float | None, answer_tokens: float | None, devices: int
) -> Forecast:
    """Returns the forecast of GRPO over ``rows`` prompts; only whole generation batches are played, as in TRL.

    Args:
        arguments: of the trainer.
        rows: prompts or situations.
        row_tokens: mean tokens of a prompt with its answer, or of an episode.
        answer_tokens: of these, the most that are sampled.
        devices: number of devices.
    """
    batch = arguments.per_device_train_batch_size * arguments.steps_per_generation * devices
    repeats = arguments.steps_per_generation * arguments.num_iterations
    batches = rows // (batch // arguments.num_generations)
    steps = _steps(arguments, batches * repeats, arguments.num_train_epochs)
    answers = math.ceil(steps * arguments.gradient_accumulation_steps / repeats) * batch
    return Forecast(
        devices,
        rows,
        steps,
        trained=None if row_tokens is None else round(answers * arguments.num_iterations * row_tokens),
        sampled=None if answer_tokens is None else round(answers * answer_tokens),
    )


def _steps(arguments: Any, batches: int, epochs: float) -> int:
    """Optimiser steps, as the trainer counts them, for the forward passes of an epoch."""
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    return math.ceil(epochs * max(1, math.ceil(batches / arguments.gradient_accumulation_steps)))
