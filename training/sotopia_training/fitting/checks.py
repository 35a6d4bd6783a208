"""Checks of the optimisation settings, which run before data are prepared and weights are loaded."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Verbatim, first_line
from sotopia_training.models.loading import check_bitsandbytes, located
from sotopia_training.stage.settings import ModelSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_OF_BITSANDBYTES = re.compile(r"adamw_8bit|.*bnb|paged_|lion_|ademamix")


def check_launch() -> None:
    """Raises :class:`InvalidValueError` if ``accelerate launch`` started one process instead of several.

    Without GPUs (``--cpu``, ``MULTI_CPU``) it starts the script once, with the address of a group that has no other
    members.
    """
    # Ranks are missing although there is an address, and the second variable shows that accelerate set it.
    alone = "WORLD_SIZE" not in os.environ and "MASTER_ADDR" in os.environ
    if alone and "ACCELERATE_DYNAMO_MODE" in os.environ:
        raise InvalidValueError(
            "accelerate should have started several processes and started only this one",
            field="launch",
            hint="on a CPU launch with torchrun --standalone --nproc_per_node 2, or with accelerate and "
            "configs/accelerate/cpu.yaml (for one process: --num_processes 1, and no MASTER_ADDR in the environment)",
        )


def check_schedule(arguments: Any) -> None:
    """Raises :class:`InvalidValueError` if ``lr_scheduler_kwargs`` lacks an argument that the schedule requires."""
    import torch
    from transformers import get_scheduler

    name, kwargs = arguments.lr_scheduler_type, arguments.lr_scheduler_kwargs
    # The trainer creates the schedule only after the data are prepared; a dummy optimiser finds the error now.
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    try:
        get_scheduler(name, optimizer, num_warmup_steps=1, num_training_steps=2, scheduler_specific_kwargs=kwargs)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(
            field="trainer.lr_scheduler_kwargs",
            expected=f"the arguments of the schedule {name.value!r}",
            got=Verbatim(f"{kwargs} ({first_line(error)})"),
        ) from None


def check_installed(arguments: Any) -> None:
    """Raises :class:`InvalidValueError` if the optimiser needs bitsandbytes, and it cannot be used."""
    optimizer = arguments.optim.value
    if _OF_BITSANDBYTES.match(optimizer):
        check_bitsandbytes("trainer.optim", optimizer, "choose another, such as adamw_torch")


def check_trackers(arguments: Any) -> None:
    """Checks that the packages that training reports to are installed.

    Raises:
        UnknownNameError: transformers cannot report to a package of this name.
        InvalidValueError: the package is missing.
    """
    from transformers.integrations import integration_utils

    for package in arguments.report_to:
        if package not in integration_utils.INTEGRATION_TO_CALLBACK:
            names = ["none", "all", *integration_utils.INTEGRATION_TO_CALLBACK]
            raise UnknownNameError(field="trainer.report_to", got=package, valid=names)
        if package not in integration_utils.get_available_reporting_integrations():
            raise InvalidValueError(
                f"{package!r} is not installed",
                field="trainer.report_to",
                hint="install it, or set trainer.report_to: none",
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
        return  # loading the base will raise a better error
    if isinstance(targets, str):
        if not any(re.fullmatch(targets, name) for name in names):
            raise InvalidValueError(
                field="model.lora.target_modules",
                expected=f"all-linear, a list of layers' names, or a pattern of whole names such as {names[-1]!r}",
                got=targets,
            )
        return
    for target in targets:
        # PEFT matches whole components at the end of a name: ``v_proj`` is in ``layers.0.self_attn.v_proj``.
        if not any(f".{name}".endswith(f".{target}") for name in names):
            layers = sorted({name.rpartition(".")[2] for name in names})
            raise UnknownNameError(field="model.lora.target_modules", got=target, valid=layers)


def _layers(base: str) -> list[str]:
    """Returns the full names of the layers that can be adapted; empty if the configuration cannot be read."""
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
