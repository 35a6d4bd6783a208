"""Samplers of the policy in training: our batches, or TRL for vLLM and sharded weights.

TRL's generation with transformers computes all rows of a batch until the longest answer ends, and each prompt once per
answer of its group. Both modes of GRPO therefore pass their sampler to TRL as part of a ``rollout_func``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_training.fitting.loop import has_sharded_weights
from sotopia_training.grpo.token_episodes import LogProbs, Sample, Schemas
from sotopia_training.models.generation import BatchedGenerator, Sampling
from sotopia_training.models.key_values import Prefixes

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import GRPOTrainer

MAX_BATCH = 128
"""Maximum number of answers that one process samples at once."""


def trainer_sample(trainer: GRPOTrainer, reuse: bool = True) -> Sample:
    """Returns a sampler of the policy in training: through TRL for vLLM and sharded weights, else in batches.

    If every process holds all weights, answers come from :class:`~sotopia_training.models.generation.BatchedGenerator`,
    which computes equal prompts once, removes finished rows, and after the first turn of an episode reads only the new
    tokens. vLLM and sharded weights (FSDP, ZeRO-3) use TRL's private ``_generate_single_turn``, which is not called
    elsewhere.

    Args:
        trainer: the trainer, during training.
        reuse: whether to store keys and values for prompts that continue earlier ones.
    """
    return through_trl(trainer) if samples_through_trl(trainer) else _in_batches(trainer, reuse)


def samples_through_trl(trainer: GRPOTrainer) -> bool:
    """Whether answers are sampled by vLLM or with sharded weights."""
    return bool(trainer.use_vllm) or has_sharded_weights(trainer)


def through_trl(trainer: GRPOTrainer, temperature: float | None = None) -> Sample:
    """Returns TRL's own sampler, at the temperature of training or another one; sampling is a collective operation."""

    def sample(prompts: list[list[int]], schemas: Schemas | None = None) -> tuple[list[list[int]], LogProbs | None]:
        if schemas is not None:
            raise InvalidValueError(field="constrained", expected="false with vLLM and with sharded weights", got=True)
        model = trainer.accelerator.unwrap_model(trainer.model)
        training = model.training
        model.eval()
        try:
            with _at_temperature(trainer, temperature):
                answers, logprobs = trainer._generate_single_turn(prompts, None, {}, 1)
        finally:
            model.train(training)
        return [list(ids) for ids in answers], logprobs

    return sample


@contextmanager
def _at_temperature(trainer: GRPOTrainer, temperature: float | None) -> Iterator[None]:
    engine = trainer.vllm_generation if trainer.use_vllm else trainer.generation_config
    previous = engine.temperature
    engine.temperature = previous if temperature is None else temperature
    try:
        yield
    finally:
        engine.temperature = previous


def _in_batches(trainer: GRPOTrainer, reuse: bool) -> Sample:
    sampling = Sampling(trainer.max_completion_length, trainer.temperature, trainer.top_p, max_batch=MAX_BATCH)
    model = trainer.accelerator.unwrap_model(trainer.model)
    # A new store for each sampler, because the weights change between two of them.
    prefixes = Prefixes(sampling.max_tokens) if reuse else None
    generator = BatchedGenerator(model, trainer.processing_class, sampling, prefixes=prefixes)

    def sample(prompts: list[list[int]], schemas: Schemas | None = None) -> tuple[list[list[int]], None]:
        import torch

        # From the global state, which the trainer saves in checkpoints and which differs between processes.
        seeds = torch.randint(1 << 62, (len(prompts),)).tolist()
        return [list(answer.ids) for answer in generator.generate(prompts, seeds, schemas)], None

    return sample


def largest_count(count: int, trainer: GRPOTrainer) -> int:
    """Returns the largest of the processes' counts."""
    if trainer.accelerator.num_processes == 1:
        return count
    import torch

    counts = trainer.accelerator.gather(torch.tensor([count], device=trainer.accelerator.device))  # (processes,)
    return int(counts.max())
