"""The training loop of behaviour cloning, reward model and GRPO: optimisation, checkpoints, resuming, saving.

Warm-up counts optimiser steps. Every checkpoint has a validation loss if there is validation data. A killed stage
continues from its last complete checkpoint, with the losses of an uninterrupted run.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from sotopia_env.errors import InvalidValueError
from sotopia_env.json_text import read_json
from training.fitting.checks import check_installed, check_optimizer, check_scheduler, check_target_modules
from training.models.loading import (
    adapter_base,
    check_adapter,
    check_quantization,
    find_model,
    load_causal_lm,
    lora_config,
    quiet_bars,
    read_prompt_settings,
    write_prompt_settings,
)
from training.models.loading import start_from as start_settings
from training.stage.directory import StageDirectory
from training.stage.settings import ModelSettings, PromptSettings, Settings

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, Trainer, TrainerCallback

logger = logging.getLogger(__name__)


class FitSettings(Settings):
    """Optimisation of one stage; the defaults are SOTOPIA-π's (arXiv 2403.08715, B.5).

    Attributes:
        learning_rate: maximum.
        scheduler: transformers' name of the schedule after the warm-up.
        warmup_ratio: share of all optimiser steps in which the learning rate rises.
        epochs: passes over the training rows; the schedule covers all of them.
        max_steps: optimiser steps instead of epochs.
        batch_size: rows per device and forward pass.
        gradient_accumulation_steps: forward passes per optimiser step.
        weight_decay: of AdamW.
        max_grad_norm: gradients are clipped to this norm; 0 does not clip.
        adam_beta2: of AdamW; 0.99 suits runs of a few hundred steps.
        optimizer: transformers' name, e.g. ``adamw_torch`` or ``paged_adamw_8bit``.
        seed: of data order, dropout and new weights.
        precision: of the computation; ``auto`` is bfloat16 on a GPU that supports it, else float32.
        gradient_checkpointing: computes activations twice, to save memory.
        save_steps: optimiser steps between checkpoints, each with a validation loss; ``None`` for every epoch.
        checkpoints: number of checkpoints on disk.
        logging_steps: optimiser steps between log lines.
        report_to: further reporting of transformers, e.g. ``tensorboard``.
        keep: the model that the stage saves: the ``last``, the ``best`` on the validation loss, or the one after an
            epoch (B.6: the last of 20 for behaviour cloning, the one after epoch 5 for self-reinforcement), after which
            training ends.
    """

    learning_rate: float = Field(default=5e-5, gt=0)
    scheduler: str = "cosine"
    warmup_ratio: float = Field(default=0.03, ge=0, lt=1)
    epochs: float = Field(default=20, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=4, ge=1)
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, ge=0)
    adam_beta2: float = Field(default=0.999, gt=0, lt=1)
    optimizer: str = "adamw_torch"
    seed: int = Field(default=0, ge=0)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    gradient_checkpointing: bool = False
    save_steps: int | None = Field(default=None, ge=1)
    checkpoints: int = Field(default=2, ge=1)
    logging_steps: int = Field(default=10, ge=1)
    report_to: str = "none"
    keep: Literal["last", "best"] | int = "last"

    _check_scheduler = field_validator("scheduler")(check_scheduler)
    _check_optimizer = field_validator("optimizer")(check_optimizer)

    @model_validator(mode="after")
    def _check_keep(self) -> FitSettings:
        if isinstance(self.keep, int) and (self.max_steps is not None or not 1 <= self.keep <= self.epochs):
            raise ValueError(f"keep: expected last, best or an epoch from 1 to {self.epochs:g} (and no max_steps)")
        return self


def check_keep(fit: FitSettings, validation: float) -> None:
    """Raises :class:`ValueError`, for pydantic, if ``keep: best`` is set without validation data."""
    if fit.keep == "best" and not validation:
        raise ValueError("fit.keep: 'best' needs a validation loss; set validation above 0")


# --- arguments ----------------------------------------------------------------------------------------------------


def training_arguments(fit: FitSettings, stage: StageDirectory, validated: bool, kind: type[Any], **more: Any) -> Any:
    """Returns the trainer's arguments.

    Args:
        fit: optimisation and checkpoints.
        stage: directory of the checkpoints.
        validated: whether there is validation data.
        kind: ``transformers.TrainingArguments`` or a subclass.
        more: arguments of ``kind`` beyond the common ones.
    """
    import torch

    gpu = torch.cuda.is_available()
    half = fit.precision == "bfloat16" or (fit.precision == "auto" and gpu and torch.cuda.is_bf16_supported())
    moments = "epoch" if fit.save_steps is None else "steps"
    interval: float = 500 if fit.save_steps is None else fit.save_steps
    return kind(
        output_dir=str(stage.checkpoints),
        learning_rate=fit.learning_rate,
        lr_scheduler_type=fit.scheduler,
        warmup_steps=fit.warmup_ratio,  # below 1 it is a share of the optimiser steps
        num_train_epochs=fit.epochs,
        max_steps=-1 if fit.max_steps is None else fit.max_steps,
        per_device_train_batch_size=fit.batch_size,
        per_device_eval_batch_size=fit.batch_size,
        gradient_accumulation_steps=fit.gradient_accumulation_steps,
        weight_decay=fit.weight_decay,
        max_grad_norm=fit.max_grad_norm,
        adam_beta2=fit.adam_beta2,
        optim=fit.optimizer,
        seed=fit.seed,
        bf16=half,
        gradient_checkpointing=fit.gradient_checkpointing,
        save_strategy=moments,
        save_steps=interval,
        save_total_limit=fit.checkpoints,
        eval_strategy=moments if validated else "no",
        eval_steps=interval if validated else None,
        load_best_model_at_end=fit.keep == "best",
        metric_for_best_model="eval_loss" if validated else None,
        greater_is_better=False if validated else None,
        logging_steps=fit.logging_steps,
        logging_first_step=True,
        report_to=fit.report_to,
        disable_tqdm=not sys.stderr.isatty(),
        use_cpu=not gpu,
        dataloader_pin_memory=gpu,
        ddp_find_unused_parameters=False,
        **more,
    )


def is_first_process() -> bool:
    """Whether this is the first process of a distributed run, or the only one; works before torch is imported."""
    return os.environ.get("RANK", "0") == "0"


def quiet() -> None:
    """Silences progress bars if stderr is no terminal, and the libraries' messages about every load."""
    import warnings

    import datasets

    warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated.*", category=FutureWarning)
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # about an optional CPU kernel
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    quiet_bars()


# --- models -------------------------------------------------------------------------------------------------------


def begin_from(model: ModelSettings, earlier: str | None, prompt: PromptSettings) -> ModelSettings:
    """Returns the model settings of a stage that starts from an earlier stage's model, or from ``model`` itself.

    Raises:
        InvalidValueError: the earlier stage has no model, its adapter or prompts differ from the settings, or the
            weights cannot be trained.
    """
    if earlier is not None:
        note = read_prompt_settings(find_model(earlier))
        if note.format != prompt.format:
            raise InvalidValueError(
                f"prompt.format: {earlier} was trained on {note.format!r}, got {prompt.format!r}; use the same"
            )
        if model.base and adapter_base(find_model(earlier)) is not None and model.base != earlier:
            check_adapter(find_model(earlier), model.base)
        model = start_settings(earlier, model)
    if model.lora is None and model.quantization != "none":
        raise InvalidValueError("model.quantization: 4-bit weights cannot be trained themselves; set model.lora")
    if model.adapter is not None:
        _check_same_adapter(model)
    return model


def _check_same_adapter(model: ModelSettings) -> None:
    assert model.adapter is not None
    check_adapter(model.adapter, model.base)
    if model.lora is None:
        raise InvalidValueError(f"model.lora: {model.adapter} is an adapter; all weights cannot be trained from one")
    config = read_json(Path(model.adapter) / "adapter_config.json", finite=False)
    current, new = (config["r"], config["lora_alpha"]), (model.lora.rank, model.lora.alpha)
    if current != new:
        raise InvalidValueError(
            f"model.lora: {model.adapter} has rank and alpha {current}, got {new}; an adapter is trained on as it is"
        )
    layers, targets = config.get("target_modules"), model.lora.target_modules
    same = layers == targets if isinstance(targets, str) else isinstance(layers, list) and set(layers) == set(targets)
    if targets != "all-linear" and not same:
        raise InvalidValueError(
            f"model.lora.target_modules: {model.adapter} adapts {layers}, got {targets}; it is trained on as it is"
        )


def load_for_training(
    settings: ModelSettings, gradient_checkpointing: bool
) -> tuple[PreTrainedModel, LoraConfig | None]:
    """Loads a causal model for training, and returns it with the configuration of the new adapter, if it needs one.

    A quantised base is prepared for training before it gets an adapter, and is the model that is trained (sotopia-rl
    loaded it and then trained another). An existing adapter is trained further.

    Raises:
        InvalidValueError: see :func:`training.models.loading.load_causal_lm`.
    """
    model = load_causal_lm(settings.model_copy(update={"adapter": None}))
    model.config.use_cache = False
    if settings.quantization != "none":
        model = prepare_quantised(model, gradient_checkpointing)
    if settings.adapter is None:
        return model, None if settings.lora is None else lora_config(settings.lora)
    from peft import PeftConfig, PeftModel

    config = PeftConfig.from_pretrained(settings.adapter)
    if settings.lora is not None:
        config.lora_dropout = settings.lora.dropout  # rank, alpha and layers are the adapter's own
    return PeftModel.from_pretrained(model, settings.adapter, is_trainable=True, config=config), None


def prepare_quantised(model: PreTrainedModel, gradient_checkpointing: bool) -> PreTrainedModel:
    """Returns a 4-bit model ready for adapters: frozen, and with its norms and output layer in float32."""
    from peft import prepare_model_for_kbit_training

    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=gradient_checkpointing)


def check_trained_model(model: PreTrainedModel, settings: ModelSettings) -> None:
    """Checks that the model to be trained has the quantisation of the settings.

    With 4 bit, the base of every adapted layer is 4-bit and only adapters (and a score head) train; their weights are
    converted to float32, because an update of AdamW is often below the resolution of bfloat16.

    Raises:
        InvalidValueError: it has not; names a layer.
    """
    import torch

    if settings.quantization == "none":
        return
    layers = [(n, m.get_base_layer()) for n, m in model.named_modules() if hasattr(m, "lora_A")]
    wrong = [name for name, layer in layers if type(layer).__name__ != "Linear4bit"]
    if wrong or not layers:
        raise InvalidValueError(f"model.quantization: nf4 was asked for, but {(wrong or ['no layer'])[0]} is not 4-bit")
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if "lora_" not in name and "modules_to_save" not in name:
            raise InvalidValueError(f"model.quantization: nf4 was asked for, but the base's {name} would be trained")
        parameter.data = parameter.data.to(torch.float32)


# --- running ------------------------------------------------------------------------------------------------------


def open_stage(stage: StageDirectory, model: ModelSettings) -> dict[str, Any] | None:
    """Opens a stage, logs its base model, and returns its figures if it is complete.

    Raises:
        InvalidValueError: the directory holds another stage, a package is missing, or layers to adapt do not exist.
    """
    if stage.figures is None:  # before anything is written, read or loaded
        check_quantization(model)
        fit: FitSettings | None = getattr(stage.settings, "fit", None)
        if fit is not None:
            check_installed(fit.optimizer, fit.report_to)
        check_target_modules(model)
    stage.open()
    logger.info("%s: begins from %s", stage.path, model.adapter or model.base)
    if stage.figures is not None:
        logger.info("%s is complete: nothing to do", stage.path)
    return stage.figures


def finish_stage(trainer: Trainer, stage: StageDirectory, prompt: PromptSettings, figures: dict[str, Any]) -> None:
    """Writes the prompt settings beside the model, and the figures of the stage; called by every process."""
    if trainer.is_world_process_zero():
        write_prompt_settings(stage.model, prompt)
        stage.finish(figures)
    trainer.accelerator.wait_for_everyone()


def fit_model(trainer: Trainer, stage: StageDirectory, fit: FitSettings) -> dict[str, Any]:
    """Trains to the end, from the last complete checkpoint if there is one, and returns the figures.

    ``stage.model`` exists when this returns; it is never incomplete.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    for callback in _callbacks(fit):
        trainer.add_callback(callback)
    checkpoint = _resumable(stage, fit)
    if checkpoint is not None:
        logger.info("continuing from %s", checkpoint)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    save_model(trainer, stage)
    return _figures(trainer)


def _resumable(stage: StageDirectory, fit: FitSettings) -> Path | None:
    """The newest complete checkpoint that is not the end of training.

    From a checkpoint at the very end the trainer would take one more step. A run that was killed between its last
    checkpoint and its model goes back by one checkpoint.
    """
    checkpoints = [
        path
        for path, state in stage.complete_checkpoints()
        if (fit.max_steps is None or state["global_step"] < fit.max_steps)
        and (not isinstance(fit.keep, int) or not _reached(state["epoch"], fit.keep))
    ]
    return checkpoints[-1] if checkpoints else None


def _reached(epoch: float, keep: int) -> bool:
    return epoch > keep - 1e-6


def save_model(trainer: Trainer, stage: StageDirectory) -> None:
    """Saves model and tokenizer as ``stage.model``; called by every process of a distributed run."""
    unfinished = stage.path / "model.unfinished"
    if trainer.is_world_process_zero():
        shutil.rmtree(unfinished, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(unfinished))
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        shutil.rmtree(stage.model, ignore_errors=True)
        os.replace(unfinished, stage.model)
    trainer.accelerator.wait_for_everyone()


def _callbacks(fit: FitSettings) -> list[TrainerCallback]:
    from transformers import TrainerCallback

    class Lines(TrainerCallback):
        """One log line for each report of the trainer, from the first process."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            if state.is_world_process_zero and logs:
                line = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in logs.items())
                logger.info("step %d of %d: %s", state.global_step, state.max_steps, line)

    class StopAfter(TrainerCallback):
        """Ends training after the epoch whose model is saved."""

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if isinstance(fit.keep, int) and _reached(state.epoch, fit.keep):
                control.should_training_stop = True

    return [Lines(), StopAfter()]


def _figures(trainer: Trainer) -> dict[str, Any]:
    history = trainer.state.log_history
    losses = [entry["loss"] for entry in history if "loss" in entry]
    validation = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
    return {
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "world_size": trainer.args.world_size,
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "validation_losses": validation,
        "log": [entry for entry in history if "loss" in entry or "eval_loss" in entry],
    }
