"""Samplers of the policy in training, our batches or TRL for vLLM and sharded weights, and checks of their arguments.

TRL's generation with transformers computes all rows of a batch until the longest answer ends, and each prompt once per
answer of its group. Both modes of GRPO therefore pass their sampler to TRL as part of a ``rollout_func``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.extras import install_command
from sotopia_training.fitting.loop import has_sharded_weights, is_first_process
from sotopia_training.grpo.settings import GRPOSettings, world_size
from sotopia_training.grpo.token_episodes import LogProbs, Sample, Schemas
from sotopia_training.models.generation import BatchedGenerator, Sampling
from sotopia_training.models.key_values import Prefixes
from sotopia_training.stage.settings import PromptSettings

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
        # Answers are sampled without dropout, which the loss may use.
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
    # TRL has no argument for it: one engine serves training and dev episodes.
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

    # A collective operation: every process must call it equally often.
    counts = trainer.accelerator.gather(torch.tensor([count], device=trainer.accelerator.device))  # (processes,)
    return int(counts.max())


# --- checks before the policy is loaded ---

_ELSEWHERE = {"chat_template_kwargs": "set prompt.chat_template_kwargs instead"}
_VLLM_ALONE = (
    "top_k",
    "min_p",
    "repetition_penalty",
    "generation_kwargs",
    "cache_implementation",
    "use_transformers_continuous_batching",
)
"""Sampling arguments of TRL that our batches do not support."""
_TIMEOUT = 10.0  # seconds for the answer of a server on the same machine or network


def check_sampling(settings: GRPOSettings, arguments: Any, prompt: PromptSettings) -> None:
    """Checks that the sampler supports the sampling arguments, and that a vLLM server answers.

    Raises:
        InvalidValueError: arguments are unsupported or contradictory, vLLM is not installed, or its server does not
            answer.
    """
    for name, hint in _ELSEWHERE.items():
        if getattr(arguments, name) is not None:
            raise InvalidValueError("has no effect", field=f"trainer.{name}", hint=hint)
    named = [name for name in settings.trainer if name.startswith("vllm_")]
    if not arguments.use_vllm:
        if named:
            raise InvalidValueError(
                field="trainer.use_vllm", expected=f"true, because {named[0]} is set", hint="set both or neither"
            )
        _check_batches(arguments)
        return
    if settings.constrained:
        raise InvalidValueError(field="constrained", expected="false with trainer.use_vllm", got=True)
    _check_weights(settings)
    _check_lengths(arguments, prompt)
    if find_spec("vllm") is None:
        raise InvalidValueError(
            "needs the package vllm",
            field="trainer.use_vllm",
            hint=f"{install_command('vllm')} -c constraints-vllm.txt, or set use_vllm: false",
        )
    if arguments.vllm_mode == "server":
        _check_server(arguments)


def _check_batches(arguments: Any) -> None:
    # A value equal to TRL's default has no effect, so only other values are refused.
    defaults = {field.name: field.default for field in fields(arguments)}
    for name in _VLLM_ALONE:
        if getattr(arguments, name) != defaults[name]:
            raise InvalidValueError(
                "needs vLLM",
                field=f"trainer.{name}",
                hint="without vLLM, only temperature and top_p are supported; remove it, or set use_vllm: true",
            )


def _check_weights(settings: GRPOSettings) -> None:
    if settings.quantization != "none":
        raise InvalidValueError(
            field="quantization",
            expected="none with trainer.use_vllm",
            got=Verbatim(
                f"{settings.quantization!r}: the adapter is merged into the weights for vLLM, which is not possible "
                "with 4-bit weights"
            ),
            hint="set quantization: none and dtype: bfloat16",
        )


def _check_lengths(arguments: Any, prompt: PromptSettings) -> None:
    parallel, processes = arguments.vllm_tensor_parallel_size, world_size()
    if arguments.vllm_mode == "colocate" and processes % parallel:
        raise InvalidValueError(
            field="trainer.vllm_tensor_parallel_size", expected=f"a divisor of the {processes} processes", got=parallel
        )
    length = arguments.vllm_max_model_length
    if length is not None and length < prompt.max_length:
        raise InvalidValueError(
            field="trainer.vllm_max_model_length",
            expected=f"at least the {prompt.max_length} tokens of prompt.max_length",
            got=length,
        )


def _check_server(arguments: Any) -> None:
    if not is_first_process():
        return  # the server need not be reachable from the others
    url = arguments.vllm_server_base_url or f"http://{arguments.vllm_server_host}:{arguments.vllm_server_port}"
    try:
        with urlopen(f"{url}/health", timeout=_TIMEOUT):
            return
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise InvalidValueError(
            f"no vLLM server answers at {url} ({reason})",
            field="trainer.vllm_server_base_url",
            hint="start it, or set vllm_mode: colocate",
        ) from None
