"""Weights in 4 bit (QLoRA): what they need, and how they are asked for."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from sotopia_env.errors import InvalidValueError
from training.settings import ModelSettings

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig


def check_quantization(settings: ModelSettings) -> None:
    """Finds out whether a model can be loaded in 4 bit where that is asked for; loads nothing.

    Raises:
        InvalidValueError: 4 bit is asked for, and bitsandbytes is not installed, or cannot be imported.
    """
    if settings.quantization != "none":
        check_bitsandbytes("quantization: 'nf4'", "set quantization: none")


def check_bitsandbytes(what: str, otherwise: str) -> None:
    """Raises :class:`InvalidValueError` where bitsandbytes cannot be used, with what needs it and what else to do."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise InvalidValueError(f"{what} needs bitsandbytes; install it, or {otherwise}")
    try:
        importlib.import_module("bitsandbytes")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # whatever a half-fitting CUDA leads to
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidValueError(
            f"{what} needs bitsandbytes, which cannot be imported ({why}); mend it, or {otherwise}"
        ) from None


def quantization_config(settings: ModelSettings) -> BitsAndBytesConfig | None:
    """Returns the 4-bit configuration (nf4 with double quantisation, as QLoRA), or ``None`` for ``none``.

    Raises:
        InvalidValueError: 4 bit is asked for, and bitsandbytes cannot be used.
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
