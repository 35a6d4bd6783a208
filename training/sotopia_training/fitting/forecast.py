"""Forecast of a training stage: its optimiser steps and tokens, counted from its settings and data."""

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
class TrainingForecast:
    """The amount of computation of a stage, on all devices together.

    Attributes:
        devices: the number of devices.
        rows: the number of rows, prompts or situations of the data.
        steps: the number of optimiser steps.
        trained: the number of tokens in forward and backward passes, including those of prompts; an upper bound if the
            length of rows is unknown. ``None`` if the earlier stage's prompt settings do not exist yet.
        sampled: the maximum number of sampled tokens; ``None`` if it is unknown for the same reason.
    """

    devices: int
    rows: int
    steps: int
    trained: int | None
    sampled: int | None = 0

    def __str__(self) -> str:
        """Returns the forecast in one line."""
        counts = f"{self.devices} device(s): {self.rows:,} rows, {self.steps:,} optimiser steps"
        return f"{counts}, {_millions(self.trained)} trained, {_millions(self.sampled)} sampled"


def _millions(tokens: int | None) -> str:
    return "unknown tokens" if tokens is None else f"{tokens / 1e6:,.1f} M tokens"


def supervised_forecast(
    settings: Any, arguments: Any, rows: int | None, devices: int, prepare: Callable[[Path], Dataset]
) -> TrainingForecast:
    """Returns the forecast of a supervised stage.

    Args:
        settings: the settings of the stage.
        arguments: the arguments of the trainer.
        rows: the number of rows of training data that do not exist yet, which are assumed to have the maximum length;
            ``None`` prepares the data and counts them.
        devices: the number of devices.
        prepare: prepares the training rows in a folder and returns them.
    """
    tokens: float = settings.prompt.max_length
    if rows is None:
        with TemporaryDirectory() as folder:
            lengths = [len(row) for row in prepare(Path(folder))["input_ids"]]
            rows, tokens = len(lengths), sum(lengths) / len(lengths)
    batch = arguments.per_device_train_batch_size * devices
    # With an epoch to keep, training ends after it, although the schedule is longer.
    epochs = settings.keep if isinstance(settings.keep, int) else arguments.num_train_epochs
    steps = _steps(arguments, math.ceil(rows / batch), epochs)
    # Steps that are set repeat whole batches; in epochs, the last batch of each may be smaller.
    by_steps = steps * arguments.gradient_accumulation_steps * batch
    passed = by_steps if arguments.max_steps > 0 else math.ceil(rows * epochs)
    return TrainingForecast(devices, rows, steps, round(passed * tokens))


def group_forecast(
    arguments: Any, rows: int, row_tokens: float | None, answer_tokens: float | None, devices: int
) -> TrainingForecast:
    """Returns the forecast of GRPO over ``rows`` prompts; as in TRL, incomplete generation batches are dropped.

    Args:
        arguments: the arguments of the trainer.
        rows: the number of prompts or situations.
        row_tokens: the mean number of tokens of a prompt with its answer, or of an episode.
        answer_tokens: the maximum number of these tokens that are sampled.
        devices: the number of devices.
    """
    # A generation batch of answers is cut into ``steps_per_generation`` batches, and trained on ``num_iterations``
    # times.
    batch = arguments.per_device_train_batch_size * arguments.steps_per_generation * devices
    repeats = arguments.steps_per_generation * arguments.num_iterations
    batches = rows // (batch // arguments.num_generations)
    steps = _steps(arguments, batches * repeats, arguments.num_train_epochs)
    answers = math.ceil(steps * arguments.gradient_accumulation_steps / repeats) * batch
    return TrainingForecast(
        devices,
        rows,
        steps,
        trained=None if row_tokens is None else round(answers * arguments.num_iterations * row_tokens),
        sampled=None if answer_tokens is None else round(answers * answer_tokens),
    )


def _steps(arguments: Any, batches: int, epochs: float) -> int:
    """Returns the number of optimiser steps, as the trainer counts them, for ``batches`` forward passes per epoch."""
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    return math.ceil(epochs * max(1, math.ceil(batches / arguments.gradient_accumulation_steps)))
