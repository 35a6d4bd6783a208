"""4-bit loading (QLoRA): whether it is supported here, and its configuration."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from sotopia_env.errors import InvalidValueError, first_line
from training.stage.settings import ModelSettings

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig


def check_quantization(settings: ModelSettings) -> None:
    """Checks that 4 bit is supported if the settings ask for it; loads nothing.

    Raises:
        InvalidValueError: bitsandbytes is needed and is not installed, or cannot be imported.
    """
    if settings.quantization != "none":
        check_bitsandbytes("quantization: 'nf4'", "set quantization: none")


def check_bitsandbytes(feature: str, otherwise: str) -> None:
    """Raises :class:`InvalidValueError` if bitsandbytes cannot be used, naming ``feature`` and the alternative."""
    if importlib.util.find_spec("bitsandbytes") is None:
        raise InvalidValueError(f"{feature} needs bitsandbytes; install it, or {otherwise}")
    try:
        importlib.import_module("bitsandbytes")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # all of them occur with a wrong CUDA version
        raise InvalidValueError(
            f"{feature} needs bitsandbytes, which cannot be imported ({first_line(error)}); mend it, or {otherwise}"
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
