"""The probe of a training stage: measures optimiser steps of its trainer on rows of full length, on this device.

Nothing is estimated: model, optimiser, batch and loss are those of the stage, and only the rows are artificial.
"""

from __future__ import annotations

import math
import random
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import JsonValue

from sotopia_training.fitting.arguments import FitSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer

_Fit = TypeVar("_Fit", bound=FitSettings)


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The measurement of an optimiser step.

    Attributes:
        device: the name of the device.
        length: the number of tokens of every row.
        memory: the peak memory in bytes: reserved by PyTorch on a GPU, or used by this process on a CPU.
        seconds: the time of one optimiser step, including the sampling that it needs.
    """

    device: str
    length: int
    memory: int
    seconds: float

    def text(self, steps: int) -> str:
        """Returns the measurement in one line, with the hours of ``steps`` such steps."""
        return (
            f"measured on {self.device}, every row of {self.length:,} tokens: {self.memory / 1e9:.2f} GB at the peak, "
            f"{self.seconds:.2f} s a step; {steps:,} such steps: {self.seconds * steps / 3600:.2f} hours"
        )


@contextmanager
def probing(settings: _Fit) -> Iterator[_Fit]:
    """Yields the settings of a probe: the stage's settings without saving, validation and reports."""
    silent: dict[str, JsonValue] = {
        "report_to": "none",
        "save_strategy": "no",
        "eval_strategy": "no",
        "push_to_hub": False,
    }
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        trainer = {**settings.trainer, **silent, "logging_strategy": "no", "disable_tqdm": True}
        yield settings.model_copy(update={"output": folder, "keep": "last", "trainer": trainer})


def full_rows(tokenizer: PreTrainedTokenizerBase, count: int, length: int) -> list[list[int]]:
    """Returns ``count`` different rows of ``length`` arbitrary tokens, none of them special."""
    special = {*tokenizer.all_special_ids}
    words = [token for token in range(len(tokenizer)) if token not in special]
    generator = random.Random(0)
    return [generator.choices(words, k=length) for _ in range(count)]


def row_count(arguments: Any) -> int:
    """Returns the number of rows, or prompts, that the steps of a probe need."""
    batch = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    return int(2 * _steps_per_generation(arguments) * batch)


def _steps_per_generation(arguments: Any) -> int:
    """Returns the number of optimiser steps per sampling of answers; 1 for stages without sampling."""
    passes = getattr(arguments, "steps_per_generation", 1) * getattr(arguments, "num_iterations", 1)
    return math.ceil(passes / arguments.gradient_accumulation_steps)


def measure(trainer: Trainer, length: int) -> MeasuredStep:
    """Trains for two samplings of answers, and returns the mean of the second one's steps.

    The first step allocates the optimiser's moments, so the peak memory is that of a later step.

    Args:
        trainer: a trainer on rows of ``length`` tokens.
        length: the length of the longest row that the stage can have.
    """
    import torch
    from transformers import PrinterCallback, TrainerCallback

    moments: list[float] = []
    on_gpu = trainer.args.device.type == "cuda"

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if on_gpu:
                torch.cuda.synchronize()  # kernels run asynchronously
            moments.append(time.perf_counter())

    steps = _steps_per_generation(trainer.args)
    trainer.args.max_steps = 2 * steps
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Clock())
    trainer.train()
    return MeasuredStep(
        device=torch.cuda.get_device_name() if on_gpu else "the CPU",
        length=length,
        memory=torch.cuda.max_memory_reserved() if on_gpu else _peak_memory(),
        seconds=(moments[-1] - moments[steps - 1]) / steps,
    )


def _peak_memory() -> int:
    """Returns the peak resident memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kibibytes
