"""Arguments of the trainer: the ``trainer`` part of a stage's settings, and a few arguments that the stage sets.

Any field of transformers' ``TrainingArguments`` or TRL's ``SFTConfig`` and ``GRPOConfig`` can be set in ``trainer`` and
is passed to that class unchanged: schedule, reporting (``report_to``, ``run_name``), ``push_to_hub``,
``deepspeed``, ``fsdp``, ``vllm_mode``. Names and types are checked against the class before a model is loaded.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field, JsonValue, TypeAdapter, ValidationError, field_validator, model_validator

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import Settings
from sotopia_env.foundation.validation import invalid_part

PAPER: Mapping[str, JsonValue] = {
    "learning_rate": 5e-5,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.03,  # below 1, a share of the optimiser steps
    "num_train_epochs": 20,
    "per_device_train_batch_size": 4,
    "optim": "adamw_torch",
    "seed": 0,
    "gradient_checkpointing": False,
    "save_total_limit": 2,
    "logging_steps": 10,
    "report_to": "none",
}
"""Defaults: SOTOPIA-π's optimisation (arXiv 2403.08715, B.5), and our choices where the paper gives none."""
_Positive, _NotNegative, _Count = Annotated[float, Gt(0)], Annotated[float, Ge(0)], Annotated[int, Ge(1)]
_BOUNDS: Mapping[str, Any] = {
    "learning_rate": _Positive,
    "temperature": Annotated[float, Gt(0), Le(10)],
    "top_p": Annotated[float, Gt(0), Le(1)],
    "num_train_epochs": _Positive,
    "warmup_steps": _NotNegative,
    "weight_decay": _NotNegative,
    "max_grad_norm": _NotNegative,
    "beta": _NotNegative,
    "adam_beta1": Annotated[float, Gt(0), Lt(1)],
    "adam_beta2": Annotated[float, Gt(0), Lt(1)],
    "per_device_train_batch_size": _Count,
    "gradient_accumulation_steps": _Count,
    "num_generations": Annotated[int, Ge(2)],
    "steps_per_generation": _Count,
    "generation_batch_size": _Count,
    "num_iterations": _Count,
    "seed": Annotated[int, Ge(0), Lt(2**32)],
    "report_to": str | list[str] | None,
    "importance_sampling_level": Literal["token", "sequence"],
    "accelerator_config": str | dict[str, JsonValue] | None,
    "loss_type": Literal["grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"],
    "scale_rewards": Literal["group", "batch", "none"],
    "vllm_mode": Literal["colocate", "server"],
    "vllm_tensor_parallel_size": _Count,
    "vllm_gpu_memory_utilization": Annotated[float, Gt(0), Lt(1)],
}
"""Bounds of values that the configuration classes do not check, and that would fail late or silently."""
_DECIDED = {
    "output_dir": "output",
    "load_best_model_at_end": "keep",
    "metric_for_best_model": "keep",
    "greater_is_better": "keep",
    "max_length": "prompt.max_length",
    "max_completion_length": "max_answer",
    "packing": "rows",
    "save_only_model": "the resumption of a killed stage",
}
"""Arguments that the stage sets, each with the setting or reason that determines it."""


class FitSettings(Settings):
    """Settings of training, a part of the settings of every stage that trains a model.

    Attributes:
        defaults: the arguments that a stage sets if the settings do not.
        trainer: the arguments of the trainer, by their names in its configuration class.
        keep: the model that the stage saves: the ``last``, the ``best`` on the validation loss (GRPO: by the dev
            episodes' reward), or the one after an epoch (SOTOPIA-π, B.6: the last of 20 for behaviour cloning, the one
            after epoch 5 for self-reinforcement), after which training ends.
    """

    defaults: ClassVar[Mapping[str, JsonValue]] = PAPER
    trainer: dict[str, JsonValue] = Field(default={}, validate_default=True)
    keep: Literal["last", "best"] | int = "last"

    @field_validator("trainer", mode="before")
    @classmethod
    def _complete(cls, values: Any) -> Any:
        return {**cls.defaults, **values} if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _check_epoch(self) -> FitSettings:
        epochs = self.trainer["num_train_epochs"]
        if not isinstance(self.keep, int) or not isinstance(epochs, int | float):
            return self
        if self.steps is not None or not 1 <= self.keep <= epochs:
            raise InvalidValueError(
                field="keep", expected=f"last, best or an epoch from 1 to {epochs:g} (and no max_steps)"
            )
        return self

    @property
    def seed(self) -> int:
        """The trainer's seed, which also splits the rows."""
        seed = self.trainer["seed"]
        if not isinstance(seed, int):
            raise InvalidValueError(field="trainer.seed", expected="a whole number", got=seed)
        return seed

    @property
    def steps(self) -> int | None:
        """Optimiser steps, if they are set instead of epochs."""
        steps = self.trainer.get("max_steps", -1)
        return steps if isinstance(steps, int) and steps > 0 else None

    def adjusted(self, **values: JsonValue) -> dict[str, JsonValue]:
        """Returns the trainer's arguments with some values replaced."""
        return {**self.trainer, **values}


def check_keep(fit: FitSettings, validation: float) -> None:
    """Raises :class:`ValueError`, for pydantic, if ``keep: best`` is set without validation data."""
    if fit.keep == "best" and not validation:
        raise ValueError("keep: 'best' needs a validation loss; set validation above 0")


def training_arguments(fit: FitSettings, output: str, validated: bool, kind: type[Any], **decided: Any) -> Any:
    """Returns the trainer's arguments.

    Args:
        fit: the settings, whose ``trainer`` is passed to ``kind`` unchanged.
        output: the directory of the checkpoints.
        validated: whether there is validation data.
        kind: ``transformers.TrainingArguments`` or a subclass.
        decided: the arguments that the stage sets.

    Raises:
        UnknownNameError: ``kind`` has no such field, or the field does not accept the value; names the nearest one.
        InvalidValueError: a value has another type or is out of its bounds, is set by the stage, or contradicts another
            one.
    """
    decided = {"output_dir": output, "save_only_model": False, **decided, **_selection(fit, validated)}
    values = _checked_values(fit, kind, decided)
    for name in ("gradient_checkpointing", "gradient_checkpointing_kwargs"):
        newer = name.replace("gradient", "activation")  # versions with the new name warn of the old one
        if newer in get_type_hints(kind) and name in values:
            values.setdefault(newer, values.pop(name))
    # It would warn of choices that were made here on purpose.
    logging.getLogger("transformers.training_args").setLevel(logging.ERROR)
    try:
        arguments = kind(**{**_machine(values, validated), **values, **decided})
    except (ValueError, TypeError, ImportError) as error:
        from transformers.integrations.deepspeed import unset_hf_deepspeed_config

        # A refused configuration stays registered in the process and would affect the next model.
        unset_hf_deepspeed_config()
        raise InvalidValueError(" ".join(str(error).split()), field="trainer") from None
    if not validated and arguments.eval_strategy != "no":
        raise InvalidValueError(
            field="trainer.eval_strategy",
            expected="no: there are no validation rows (set validation or dev)",
            got=fit.trainer["eval_strategy"],
        )
    return arguments


def _selection(fit: FitSettings, validated: bool) -> dict[str, Any]:
    """Returns the arguments that select the checkpoint with the lowest validation loss."""
    best = {"load_best_model_at_end": validated and fit.keep == "best"}
    return {**best, "metric_for_best_model": "eval_loss", "greater_is_better": False} if validated else best


def _machine(values: Mapping[str, Any], validated: bool) -> dict[str, Any]:
    """Returns arguments that depend on this machine or on other arguments; ``trainer`` overrides them."""
    import torch

    gpu = torch.cuda.is_available()
    # Validated whenever it saves, because the best checkpoint needs a validation loss.
    moments = values.get("save_strategy", "steps" if "save_steps" in values else "epoch")
    return {
        "per_device_eval_batch_size": values["per_device_train_batch_size"],
        "bf16": gpu and torch.cuda.is_bf16_supported() and not values.get("fp16"),
        "save_strategy": moments,
        "eval_strategy": moments if validated else "no",
        "eval_steps": values.get("save_steps") if validated else None,
        "logging_first_step": True,
        "disable_tqdm": not sys.stderr.isatty(),
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
        "ddp_find_unused_parameters": False,
    }


def _checked_values(fit: FitSettings, kind: type[Any], decided: Mapping[str, Any]) -> dict[str, Any]:
    names = [field.name for field in fields(kind) if field.init]
    hints = get_type_hints(kind)
    for name in fit.trainer:
        if name not in names:
            problem = f"unknown argument of {kind.__name__}"
            raise UnknownNameError(problem, field=f"trainer.{name}", got=name, valid=names)
        if name in decided and name not in type(fit).defaults:
            owner = _DECIDED.get(name)
            raise InvalidValueError(
                field=f"trainer.{name}",
                expected=f"no value, because the stage sets it{(f' (by {owner})' if owner else '')}",
                got=fit.trainer[name],
            )
    # Some classes declare their choices in the metadata of a field and check them only on a command line.
    choices = {field.name: tuple(field.metadata["choices"]) for field in fields(kind) if field.metadata.get("choices")}
    return {name: _checked(name, value, hints[name], choices.get(name)) for name, value in fit.trainer.items()}


def _checked(name: str, value: Any, hint: Any, choices: tuple[str, ...] | None) -> Any:
    """Returns a value, checked if its field is a number, a truth value or an enumeration.

    Numbers that YAML reads as text, such as 5e-6, become numbers, and its unquoted ``no`` becomes the name again if the
    field has it. The type hints of other fields are narrower than the values that the classes accept (``fsdp: true``),
    so these are left to the classes.
    """
    members = [member for member in get_args(hint) or (hint,) if member is not type(None)]
    for member in members:
        if isinstance(member, type) and issubclass(member, Enum):
            names = [str(item.value) for item in member]
            if value is False and "no" in names:
                return "no"
            if isinstance(value, str) and value not in names:
                raise UnknownNameError(field=f"trainer.{name}", got=value, valid=names)
    # The choices of the class take precedence: cloning and GRPO have different values of `loss_type`.
    bounds: Any = Literal[choices] if choices and value is not None else _BOUNDS.get(name)
    if bounds is None and not set(members) <= {int, float, bool}:
        return value
    try:
        return TypeAdapter(bounds or hint).validate_python(value)
    except ValidationError as error:
        raise InvalidValueError.of(invalid_part(error.errors()[0]), within=f"trainer.{name}") from None
