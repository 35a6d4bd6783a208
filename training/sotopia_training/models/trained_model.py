"""Trained adapters and models on disk: their detection, their identity, and weights that are loaded on first use."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from sotopia_env.foundation.errors import InvalidValueError, ModelRefusedError, first_line
from sotopia_env.foundation.json_text import read_json
from sotopia_training.models.batching import Batcher
from sotopia_training.models.generation import BatchedGenerator, Sampling
from sotopia_training.models.gguf_files import gguf_file
from sotopia_training.models.key_values import Prefixes, token_bytes
from sotopia_training.models.loading import (
    LOADING,
    adapter_base,
    check_adapter,
    check_installed,
    find_model,
    is_model_directory,
    keep_freed_memory,
    load_causal_lm,
    quantization_config,
    start_from,
)
from sotopia_training.stage.settings import DtypeName, ModelSettings, Quantization, fast_dtype

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Device = Literal["auto", "cpu", "cuda"]

_DEFINING = (
    "adapter_config.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
_PATHS = ("base_model_name_or_path", "_name_or_path", "transformers_version", "revision")
_WHOLE = 64 << 20  # bytes; of larger files, only samples are hashed
_SAMPLES, _SAMPLE = 64, 1 << 20


def holds_causal_lm(path: str | Path) -> bool:
    """Whether a directory, or ``model/`` in it, contains a causal language model or an adapter of one.

    It reads two small files and needs no slow imports. A reward model has a score head and is not a causal language
    model.
    """
    try:
        if not is_model_directory(path):
            return gguf_file(Path(path)) is not None  # without converting it
        directory = find_model(path)
        adapter, config = (_json(directory / name) for name in ("adapter_config.json", "config.json"))
    except (InvalidValueError, OSError, ValueError):
        return False
    if adapter:
        return adapter.get("task_type") in ("CAUSAL_LM", None)
    return any(str(name).endswith("ForCausalLM") for name in config.get("architectures") or ())


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    content = read_json(file, finite=False)
    return content if isinstance(content, dict) else {}


def identity(directory: str | Path) -> str:
    """Returns 16 hex digits of a model directory's content, independent of its path: weights, configuration, tokenizer.

    Weight files above 64 MiB are represented by their size and 64 blocks of 1 MiB spread over them: training changes
    every block, and a run need not read 15 GB to check that it can be resumed.
    """
    directory = Path(directory)
    digest = hashlib.sha256()
    for file in sorted(directory.iterdir()):
        if file.suffix in (".safetensors", ".bin", ".pt"):
            digest.update(f"{file.name}:{file.stat().st_size}:".encode())
            for block in _blocks(file):
                digest.update(block)
        elif file.name in _DEFINING:
            digest.update(f"{file.name}:".encode())
            digest.update(_without_paths(file))
    return digest.hexdigest()[:16]


def _blocks(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    whole = size <= _WHOLE
    with file.open("rb") as stream:
        for number in range(-(-size // _SAMPLE) if whole else _SAMPLES):
            # The samples are spread evenly, from the first to the last megabyte.
            stream.seek(number * _SAMPLE if whole else number * (size - _SAMPLE) // (_SAMPLES - 1))
            yield stream.read(_SAMPLE)


def _without_paths(file: Path) -> bytes:
    if file.suffix != ".json" or file.name == "tokenizer.json":
        return file.read_bytes()
    # The same weights saved by another version or from another path are the same model.
    settings = {key: value for key, value in _json(file).items() if key not in _PATHS}
    return json.dumps(settings, sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model on disk with its loading options.

    Attributes:
        path: the directory of the adapter or the model.
        settings: the base, adapter, precision and quantisation.
        device: the device of the loaded weights.
        identity: the identity of the directory's content.
        base: the identity of an adapter's base if it is a directory, else its hub name; ``None`` for a whole model.
    """

    path: Path
    settings: ModelSettings
    device: str
    identity: str = field(init=False)
    base: str | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", identity(self.path))
        base = None if self.settings.adapter is None else self.settings.base
        object.__setattr__(self, "base", identity(base) if base is not None and Path(base).is_dir() else base)

    @classmethod
    def find(
        cls,
        path: str | Path,
        *,
        quantization: Quantization = "none",
        dtype: DtypeName = "auto",
        device: Device = "auto",
    ) -> TrainedModel:
        """Returns the model in a stage's output or in the directory itself; no weights are loaded.

        Args:
            path: the directory of the model, or one that contains ``model/``.
            quantization: the quantisation; see :class:`~sotopia_training.stage.settings.ModelSettings`.
            dtype: the data type of the weights; ``auto`` is the fast one of the device: bfloat16 or float32.
            device: the device; ``auto`` is a GPU if one is available.

        Raises:
            InvalidValueError: the model or the adapter's base does not exist, 4 bit is not supported, or an option has
                an invalid value.
        """
        for name, value, values in (
            ("quantization", quantization, get_args(Quantization)),
            ("dtype", dtype, get_args(DtypeName)),
            ("device", device, get_args(Device)),
        ):
            if value not in values:
                raise InvalidValueError(field=name, got=value, valid=values)
        check_installed()
        directory = find_model(path)
        base = adapter_base(directory)
        if base is not None:
            check_adapter(directory, base)
        target = _device(device)
        precision = fast_dtype(target) if dtype == "auto" else dtype
        settings = start_from(directory, ModelSettings(base="", lora=None, quantization=quantization, dtype=precision))
        quantization_config(settings)
        return cls(directory, settings, target)

    @property
    def parameters(self) -> dict[str, Any]:
        """The model's identity in records, as JSON, without paths."""
        return {
            "weights": self.identity,
            "base": self.base,
            "quantization": self.settings.quantization,
            "dtype": self.settings.dtype,
        }

    @property
    def tokenizer_path(self) -> str:
        """Directory or hub name of the tokenizer: the one beside the weights, or the base's."""
        beside = any((self.path / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
        return str(self.path) if beside else self.settings.base

    def context(self) -> int | None:
        """Returns the longest input in tokens that the model's configuration allows; ``None`` without a limit."""
        from transformers import AutoConfig

        try:
            config = AutoConfig.from_pretrained(self.settings.base)
        except (OSError, ValueError) as error:
            raise InvalidValueError(
                f"no model could be loaded ({first_line(error)})", where=self.settings.base
            ) from None
        longest = getattr(config.get_text_config(), "max_position_embeddings", None)
        return int(longest) if longest else None

    def load(self) -> PreTrainedModel:
        """Loads base and adapter onto the device, for inference.

        An adapter is merged into float32 weights only: lower precision would round its update away, and 4-bit weights
        cannot store it.
        """
        with LOADING:
            model: Any = load_causal_lm(self.settings)
            if self.settings.quantization == "none":
                model = model.to(self.device)
                if self.settings.adapter is not None and self.settings.dtype == "float32":
                    model = model.merge_and_unload()
        loaded: PreTrainedModel = model.eval()
        return loaded


def _device(name: str) -> str:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidValueError("'cuda' needs a usable GPU", field="device", hint="choose cpu or auto")
    return name if name != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")


def storable_tokens(model: PreTrainedModel) -> int:
    """Returns the number of tokens whose keys and values fit in an eighth of the memory of the model's device."""
    import psutil
    import torch

    on_gpu = model.device.type == "cuda"
    memory = torch.cuda.get_device_properties(model.device).total_memory if on_gpu else psutil.virtual_memory().total
    return int(memory // 8 // token_bytes(model))


class SharedWeights:
    """The weights of one model in this process, loaded on first use, and the only thread that computes with them.

    Keys and values of prompts and answers are stored between turns, in up to an eighth of the device's memory.
    """

    def __init__(self, model: TrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Creates the thread; loads no weights."""
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"model-{model.identity[:8]}")
        self._model = model
        self._tokenizer = tokenizer
        self._loaded: PreTrainedModel | None = None
        self._prefixes = Prefixes(0)

    def generator(self, sampling: Sampling) -> BatchedGenerator:
        """Returns a generator over the weights; for :attr:`thread` only.

        Raises:
            ModelRefusedError: the weights cannot be loaded, so every prompt would fail.
        """
        if self._loaded is None:
            keep_freed_memory()
            try:
                self._loaded = self._model.load()
            except (InvalidValueError, OSError, ValueError, RuntimeError) as error:  # out of memory is a RuntimeError
                raise ModelRefusedError(first_line(error), kind="bad_request") from error
            self._prefixes = Prefixes(storable_tokens(self._loaded))
        return BatchedGenerator(self._loaded, self._tokenizer, sampling, prefixes=self._prefixes)


# Weak: the batchers own the weights, so that they are freed with the last batcher.
_WEIGHTS: weakref.WeakValueDictionary[Sequence[Any], SharedWeights] = weakref.WeakValueDictionary()


def shared_batcher(model: TrainedModel, tokenizer: PreTrainedTokenizerBase, sampling: Sampling) -> Batcher:
    """Returns a batcher for the model; policies that use the same model at the same time share its weights.

    The weights are freed with the last batcher.
    """
    key = (model.identity, model.base, model.settings.quantization, model.settings.dtype, model.device)
    weights = _WEIGHTS.get(key)
    if weights is None:
        weights = _WEIGHTS[key] = SharedWeights(model, tokenizer)
    return Batcher(lambda: weights.generator(sampling), sampling, weights.thread)
