"""Checks of the optimisation settings, before data are prepared and weights are loaded.

Names of schedules and optimisers are those of transformers. The usual ones are listed here, so that reading settings
imports nothing heavy; others are looked up there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from training.models.loading import check_bitsandbytes, located
from training.stage.settings import ModelSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SCHEDULERS = ("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup")
OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "sgd")
_OF_BITSANDBYTES = re.compile(r"adamw_8bit|.*bnb|paged_|lion_|ademamix")


def check_scheduler(name: str) -> str:
    """Returns the name of a schedule.

    Raises:
        UnknownNameError: transformers has no such schedule.
        InvalidValueError: it needs arguments, for which there is no setting.
    """
    if name in SCHEDULERS:
        return name
    import torch
    from transformers import get_scheduler
    from transformers.trainer_utils import SchedulerType

    names = [kind.value for kind in SchedulerType]
    if name not in names:
        raise UnknownNameError(name_hint(name, names))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    try:
        get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=2)
    except (TypeError, ValueError):
        raise InvalidValueError(f"expected a schedule that needs no arguments of its own, got {name!r}") from None
    return name


def check_optimizer(name: str) -> str:
    """Returns the name of an optimiser.

    Raises:
        UnknownNameError: transformers has no such optimiser.
    """
    if name not in OPTIMIZERS:
        from transformers.training_args import OptimizerNames

        names = [kind.value for kind in OptimizerNames]
        if name not in names:
            raise UnknownNameError(name_hint(name, names))
    return name


def check_installed(optimizer: str, report_to: str) -> None:
    """Checks that the packages of the optimiser and of the reports are installed.

    Raises:
        UnknownNameError: transformers cannot report to a package of this name.
        InvalidValueError: bitsandbytes or the reporting package is missing.
    """
    if _OF_BITSANDBYTES.match(optimizer):
        check_bitsandbytes(f"fit.optimizer: {optimizer!r}", "choose another, such as adamw_torch")
    if report_to in ("none", "all"):
        return
    from transformers.integrations import integration_utils

    if report_to not in integration_utils.INTEGRATION_TO_CALLBACK:
        names = ["none", "all", *integration_utils.INTEGRATION_TO_CALLBACK]
        raise UnknownNameError(f"fit.report_to: {name_hint(report_to, names)}")
    if report_to not in integration_utils.get_available_reporting_integrations():
        raise InvalidValueError(
            f"fit.report_to: {report_to!r} is not installed; install it, or set fit.report_to: none"
        )


def check_target_modules(model: ModelSettings) -> None:
    """Checks that a new adapter's layers exist, from the base's configuration.

    PEFT reports missing layers only when the weights are loaded, and only if all names are missing.

    Raises:
        UnknownNameError: the base has no layer of a name.
        InvalidValueError: a pattern matches no layer's whole name.
    """
    targets = None if model.lora is None or model.adapter is not None else model.lora.target_modules
    if targets is None or targets == "all-linear":
        return
    names = _layers(model.base)
    if not names:
        return  # errors of the base are raised where it is loaded
    if isinstance(targets, str):
        if not any(re.fullmatch(targets, name) for name in names):
            raise InvalidValueError(
                "model.lora.target_modules: expected all-linear, a list of layers' names, or a pattern of whole names "
                f"such as {names[-1]!r}, got {targets!r}"
            )
        return
    for target in targets:
        if not any(f".{name}".endswith(f".{target}") for name in names):
            layers = sorted({name.rpartition(".")[2] for name in names})
            raise UnknownNameError(f"model.lora.target_modules: {name_hint(target, layers)}")


def _layers(base: str) -> list[str]:
    """Full names of the layers that can be adapted; none if the configuration cannot be read."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.pytorch_utils import Conv1D

    try:
        with torch.device("meta"):  # allocates no weights
            empty: PreTrainedModel = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(located(base)))
    except (OSError, ValueError):
        return []
    kinds = (torch.nn.Linear, torch.nn.Embedding, Conv1D)
    return [name for name, layer in empty.named_modules() if isinstance(layer, kinds)]
