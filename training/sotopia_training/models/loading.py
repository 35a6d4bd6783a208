"""Loading of base models and adapters, also in 4 bit, with early checks, for example that an adapter fits its base."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError, first_line
from sotopia_env.foundation.extras import install_command
from sotopia_env.foundation.json_text import canonical_json, read_json
from sotopia_env.foundation.settings import settings_of
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_training.models.gguf_files import check_whole_model, converted, gguf_file, quiet_bars, smol_directory
from sotopia_training.stage.settings import LoraSettings, ModelSettings, PromptSettings

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig, PreTrainedModel

logger = logging.getLogger(__name__)
POLICY_FILE = "sotopia_policy.json"
"""The file beside the weights that contains the model's prompt settings; see :func:`read_prompt_settings`."""

LOADING = threading.RLock()
"""Acquired while weights are loaded: transformers patches torch's initialisation for all threads of the process."""
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Options of glibc's ``mallopt``, as in ``malloc.h``."""
_SMOL = "smol"  # also the name of the policy and the model on a command line


def lora_config(settings: LoraSettings, task: str = "CAUSAL_LM") -> LoraConfig:
    """Returns PEFT's configuration; for ``task="SEQ_CLS"`` the score head is trained and saved as well."""
    from peft import LoraConfig

    targets = settings.target_modules
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type=task,
        modules_to_save=["score"] if task == "SEQ_CLS" else None,
    )


def load_arguments(settings: ModelSettings) -> dict[str, Any]:
    """Returns ``from_pretrained``'s arguments for a base model: data type, quantisation, attention, device."""
    import torch

    arguments: dict[str, Any] = {"dtype": getattr(torch, settings.dtype)}
    quantization = quantization_config(settings)
    if quantization is not None:
        arguments["quantization_config"] = quantization
        arguments["device_map"] = {"": local_device()}  # "": the whole model
    if settings.attention is not None:
        arguments["attn_implementation"] = settings.attention
    return arguments


def local_device() -> str:
    """Returns the device of this process: its own GPU if there is one."""
    import torch

    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"


def load_causal_lm(settings: ModelSettings) -> PreTrainedModel:
    """Loads the base and, if there is one, the adapter; adds no new adapter.

    Raises:
        InvalidValueError: the base cannot be loaded, the adapter is of another base, or 4 bit is not supported.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    if settings.adapter is not None:
        check_adapter(settings.adapter, settings.base)
    quiet_bars()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            located(settings.base), output_loading_info=True, **load_arguments(settings)
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise InvalidValueError(f"no model could be loaded ({first_line(error)})", where=settings.base) from None
    check_whole_model(settings.base, report)
    if settings.adapter is None:
        return model
    from peft import PeftModel

    return PeftModel.from_pretrained(model, settings.adapter)


def located(base: str) -> str:
    """Returns a directory's absolute path, which an adapter can store as its base; hub names are returned unchanged.

    ``smol`` and a directory with a GGUF file become the directory of the converted model.

    Raises:
        InvalidValueError: a GGUF file cannot be converted, or the package of ``smol`` is missing.
    """
    if base == _SMOL or gguf_file(Path(base)) is not None:
        return str(find_model(base).resolve())
    return str(Path(base).resolve()) if Path(base).is_dir() else base


def check_adapter(adapter: str | Path, base: str) -> None:
    """Checks that an adapter belongs to a base model, before either is loaded.

    Raises:
        InvalidValueError: the directory has no adapter, or the adapter belongs to another base.
    """
    trained_base = adapter_base(adapter)
    if trained_base is None:
        raise InvalidValueError(where=adapter, expected="an adapter (adapter_config.json)")
    if not same_model(trained_base, base):
        raise InvalidValueError(expected=f"an adapter of {base!r}", got=trained_base, where=adapter)


def adapter_base(directory: str | Path) -> str | None:
    """Returns the base that an adapter directory names; ``None`` if the directory has no adapter.

    Raises:
        InvalidValueError: the adapter's configuration is damaged, or names no base.
    """
    file = Path(directory) / "adapter_config.json"
    if not file.is_file():
        return None
    try:
        base = read_json(file, finite=False)["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        base = None
    if not isinstance(base, str):
        raise InvalidValueError(
            expected="JSON with base_model_name_or_path",
            hint="it is damaged, or does not describe an adapter",
            where=file,
        )
    return base


def same_model(first: str, second: str) -> bool:
    """Whether two names are equal, or paths of the same directory."""
    return first == second or (
        Path(first).is_dir() and Path(second).is_dir() and Path(first).resolve() == Path(second).resolve()
    )


def check_installed() -> None:
    """Raises :class:`InvalidValueError` if the packages that read models are missing."""
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidValueError(f"models in this process need {' and '.join(missing)}", hint=install_command("train"))


def find_model(directory: str | Path) -> Path:
    """Returns the directory of the model in a stage's output: ``model/`` in it, or the directory itself.

    A GGUF file, or the only one in a directory, is converted first, and ``smol`` is SmolLM2-135M-Instruct
    (:mod:`sotopia_training.models.gguf_files`).

    Raises:
        InvalidValueError: neither contains an adapter or a model, or a GGUF file cannot be converted.
    """
    if str(directory) == _SMOL:
        directory = smol_directory()
    for path in (Path(directory) / "model", Path(directory)):
        if _has_config(path):
            return path
    file = gguf_file(Path(directory))
    if file is not None:
        return converted(file)
    raise InvalidValueError(
        expected="an adapter or a model (adapter_config.json, config.json or one .gguf file)",
        where=directory,
        hint="" if Path(directory).exists() else "there is no such file or directory",
    )


def is_model_directory(directory: str | Path) -> bool:
    """Whether a directory, or ``model/`` in it, has the configuration of an adapter or a model."""
    return any(_has_config(path) for path in (Path(directory) / "model", Path(directory)))


def _has_config(path: Path) -> bool:
    return any((path / name).is_file() for name in ("adapter_config.json", "config.json"))


def start_from(directory: str | Path, settings: ModelSettings) -> ModelSettings:
    """Returns ``settings`` that start from an earlier stage's output: its adapter, or its full model as the base."""
    path = find_model(directory)
    base = adapter_base(path)
    if base is None:
        return settings.model_copy(update={"base": str(path), "adapter": None})
    return settings.model_copy(update={"base": base, "adapter": str(path)})


def write_prompt_settings(directory: str | Path, prompt: PromptSettings) -> None:
    """Writes the prompt settings beside a model, and the hashes of the texts that prompts have in this version."""
    hashes = dict(AgentPrompt(prompt.format).trained_hashes)
    text = json.dumps({"prompt": prompt.model_dump(mode="json"), "texts": hashes}, indent=2)
    (Path(directory) / POLICY_FILE).write_text(text + "\n", encoding="utf-8")


def prompts_identity(prompt: PromptSettings) -> str:
    """Returns 16 hex digits that are others where this version's prompts have other texts in training."""
    texts = canonical_json(dict(AgentPrompt(prompt.format).trained_hashes))
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def read_prompt_settings(directory: str | Path) -> PromptSettings:
    """Returns the prompt settings of a trained model; the defaults for a base model.

    A model that was trained on other texts than this version's prompts have is named in a warning.
    """
    file = Path(directory) / POLICY_FILE
    if not file.is_file():
        return PromptSettings()
    content = read_json(file)
    if not isinstance(content, dict) or "prompt" not in content:
        raise InvalidValueError(field="prompt", expected="the prompt settings of a stage", got=None, where=file)
    prompt = settings_of(content["prompt"], PromptSettings, f"{file}: prompt")
    if isinstance(trained := content.get("texts"), dict):
        current = AgentPrompt(prompt.format).trained_hashes
        # Names that the file does not have are of a later version: what they were in training is unknown.
        changed = tuple(name for name in current if trained.get(name, current[name]) != current[name])
        _warn_of_prompts(file.absolute(), changed)
    return prompt


@cache  # settings are read several times in a process
def _warn_of_prompts(file: Path, changed: tuple[str, ...]) -> None:
    if changed:
        texts = ", ".join(changed)
        logger.warning("%s: trained on other prompts than today's (%s); consider training it again", file, texts)


def check_quantization(settings: ModelSettings) -> None:
    """Checks that 4 bit is supported if the settings use it, without loading anything.

    Raises:
        InvalidValueError: bitsandbytes is needed and is not installed, or cannot be imported.
    """
    if settings.quantization != "none":
        check_bitsandbytes("quantization", settings.quantization, "set quantization: none")


def check_bitsandbytes(field: str, value: str, alternative: str) -> None:
    """Raises :class:`InvalidValueError` if bitsandbytes, which a setting needs, cannot be used.

    Args:
        field: the setting.
        value: its value, which needs bitsandbytes.
        alternative: the other way to correct the error, besides an installation.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise InvalidValueError(f"{value!r} needs bitsandbytes", field=field, hint=f"install it, or {alternative}")
    try:
        importlib.import_module("bitsandbytes")
    # With a wrong CUDA version, it raises any of these.
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise InvalidValueError(
            f"{value!r} needs bitsandbytes, which cannot be imported ({first_line(error)})",
            field=field,
            hint=f"repair it, or {alternative}",
        ) from None


def quantization_config(settings: ModelSettings) -> BitsAndBytesConfig | None:
    """Returns the 4-bit configuration (nf4 with double quantisation, as QLoRA), or ``None`` for ``none``.

    Raises:
        InvalidValueError: bitsandbytes is needed and cannot be used.
    """
    if settings.quantization == "none":
        return None
    check_quantization(settings)
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, settings.dtype),
    )


def keep_freed_memory() -> None:
    """Makes this process keep the memory that it frees, on a CPU under glibc; has no effect elsewhere.

    By default glibc maps every large block separately and returns it to the kernel when it is freed. A step of training
    or decoding allocates the same activations and logits repeatedly, and the kernel must clear their pages each time.
    """
    import torch

    if torch.cuda.is_available() or not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return  # musl has no such options
    libc.malloc_trim(0)  # returns the memory that an earlier stage of this process has kept
    # No separately mapped blocks at all: M_MMAP_THRESHOLD is limited to 32 MiB, and logits are larger.
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, -1)  # the heap never shrinks
