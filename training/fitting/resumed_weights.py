"""The weights of a resumed run, compared with those in the checkpoint.

transformers loads them. Before 5.23 it loads only the adapters in subfolders of a checkpoint, e.g. TRL's frozen copy
``ref``, and leaves the trained adapter as the run began, without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.errors import InvalidValueError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)


def load_missing_weights(model: PreTrainedModel, checkpoint: Path) -> None:
    """Loads the adapters of a checkpoint that the model does not hold, and checks that it then holds all weights.

    Args:
        model: resumed; this process holds all its weights.
        checkpoint: of the trainer; adapters other than ``default`` are in subfolders of their names.

    Raises:
        InvalidValueError: the model's weights are not the checkpoint's; names the first that differs.
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


def _check(held: Mapping[str, torch.Tensor], folder: Path) -> None:
    name = _difference(held, folder)
    if name is not None:
        raise InvalidValueError(
            f"its weights could not be loaded, {name} differs",
            hint="remove this checkpoint to continue from the one before, or choose another output",
            where=folder,
        )


def _difference(held: Mapping[str, torch.Tensor], folder: Path) -> str | None:
    """The first weight that is not as in the folder's files; a tied weight is stored once, under one of its names."""
    import torch

    loaded = set()  # where the weights that equal the stored ones are in memory
    for name, value in _stored(folder):
        own = held.get(name)
        if own is None or not torch.equal(own, value.to(own.device, own.dtype)):
            return name
        loaded.add(own.data_ptr())
    return next((name for name, own in held.items() if own.data_ptr() not in loaded), None)


def _stored(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights in a folder, one at a time: a full model's may fill the memory."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (it is no mapping)
                yield name, weights.get_tensor(name)
