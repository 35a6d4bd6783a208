"""Checks of the sampling arguments, with or without vLLM (TRL's ``vllm_*``), before the policy is loaded."""

from __future__ import annotations

from dataclasses import fields
from importlib.util import find_spec
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.extras import install_command
from sotopia_training.fitting.loop import is_first_process
from sotopia_training.grpo.settings import GRPOSettings, world_size
from sotopia_training.stage.settings import PromptSettings

_ELSEWHERE = {"chat_template_kwargs": "set prompt.chat_template_kwargs instead"}
_VLLM_ALONE = (
    "top_k",
    "min_p",
    "repetition_penalty",
    "generation_kwargs",
    "cache_implementation",
    "use_transformers_continuous_batching",
)
"""Sampling arguments of TRL that :mod:`sotopia_training.grpo.sampling` does not support."""
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
