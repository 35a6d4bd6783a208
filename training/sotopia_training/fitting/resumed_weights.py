"""Check that a resumed run has the weights of its checkpoint.

transformers loads them, but before 5.23 it loads only the adapters in subfolders of a checkpoint, e.g. TRL's frozen
copy ``ref``, and silently leaves the trained adapter in its initial state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.foundation.errors import InvalidValueError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)


def load_missing_weights(model: PreTrainedModel, checkpoint: Path) -> None:
    """Loads the adapters of a checkpoint that were not loaded, and checks that the model has all its weights.

    Args:
        model: the resumed model, all of whose weights are in this process.
        checkpoint: the checkpoint of the trainer; adapters other than ``default`` are in subfolders of their names.

    Raises:
        InvalidValueError: a weight of the model differs from that of the checkpoint; names the first one.
    """
    from peft import PeftModel, set_peft_model_state_dict

    for name in model.peft_config if isinstance(model, PeftModel) else ():
        folder = _folder(checkpoint, name)
        if _difference(_adapter(model, name), folder) is not None:
            logger.info("%s: its adapter %r was not loaded; loading it", checkpoint, name)
            set_peft_model_state_dict(model, dict(_stored(folder)), adapter_name=name)
        _check(_adapter(model, name), folder)
    if not isinstance(model, PeftModel):
        _check(model.state_dict(), checkpoint)


def _folder(checkpoint: Path, adapter: str) -> Path:
    return checkpoint if adapter == "default" else checkpoint / adapter


def _adapter(model: PreTrainedModel, name: str) -> Mapping[str, torch.Tensor]:
    from peft import get_peft_model_state_dict

    return get_peft_model_state_dict(model, adapter_name=name)


def _check(weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    name = _difference(weights, folder)
    if name is not None:
        raise InvalidValueError(
            "the weight differs from the checkpoint after loading",
            field=name,
            hint="remove this checkpoint to continue from the one before, or choose another output",
            where=folder,
        )


def _difference(weights: Mapping[str, torch.Tensor], folder: Path) -> str | None:
    """Returns the name of the first weight that differs from the folder's files; ``None`` if all are equal."""
    import torch

    # Tied weights have one address and are stored once, under one of their names; so the rest is compared by address.
    loaded = set()
    for name, value in _stored(folder):
        weight = weights.get(name)
        if weight is None or not torch.equal(weight, value.to(weight.device, weight.dtype)):
            return name
        loaded.add(weight.data_ptr())
    return next((name for name, weight in weights.items() if weight.data_ptr() not in loaded), None)


def _stored(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the weights in a folder one at a time: those of a full model may fill the memory."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (it is not a mapping)
                yield name, weights.get_tensor(name)
