"""The frame that behaviour cloning, reward model and GRPO share: settings, rows, training, model and figures.

Every checkpoint has a validation loss if there is validation data. A killed stage continues from its last complete
checkpoint, with the same losses as an uninterrupted run.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.json_text import read_json
from sotopia_training.fitting.arguments import FitSettings
from sotopia_training.fitting.checks import (
    check_installed,
    check_launch,
    check_schedule,
    check_target_modules,
    check_trackers,
)
from sotopia_training.fitting.resumed_weights import load_missing_weights
from sotopia_training.models.gguf_files import quiet_bars
from sotopia_training.models.loading import (
    adapter_base,
    check_adapter,
    check_quantization,
    find_model,
    keep_freed_memory,
    load_causal_lm,
    located,
    lora_config,
    prompts_identity,
    read_prompt_settings,
    write_prompt_settings,
)
from sotopia_training.models.loading import start_from as start_settings
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.models.trained_model import identity
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import ModelSettings, PromptSettings

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback

logger = logging.getLogger(__name__)
_Rows = TypeVar("_Rows")


def is_first_process() -> bool:
    """Whether this is the first or only process of a distributed run; does not need torch."""
    return os.environ.get("RANK", "0") == "0"


def quiet() -> None:
    """Silences progress bars if stderr is not a terminal."""
    import datasets

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
    if model.base and model.base != earlier:
        model = model.model_copy(update={"base": located(model.base)})
    if earlier is not None:
        note = read_prompt_settings(find_model(earlier))
        for name in ("format", "chat_template", "chat_template_kwargs"):
            expected, value = getattr(note, name), getattr(prompt, name)
            if expected != value:
                raise InvalidValueError(field=f"prompt.{name}", expected=f"{expected!r}, as in {earlier}", got=value)
        if model.base and adapter_base(find_model(earlier)) is not None and model.base != earlier:
            check_adapter(find_model(earlier), model.base)
        model = start_settings(earlier, model)
    if model.lora is None and model.quantization != "none":
        raise InvalidValueError(
            "4-bit weights cannot be trained", field="model.quantization", hint="set model.lora to train an adapter"
        )
    if model.adapter is not None:
        _check_same_adapter(model)
    return model


def _check_same_adapter(model: ModelSettings) -> None:
    assert model.adapter is not None
    check_adapter(model.adapter, model.base)
    if model.lora is None:
        raise InvalidValueError(
            field="model.lora", expected=f"settings of the adapter {model.adapter}, which is trained further", got=None
        )
    config = read_json(Path(model.adapter) / "adapter_config.json", finite=False)
    current, new = (config["r"], config["lora_alpha"]), (model.lora.rank, model.lora.alpha)
    if current != new:
        raise InvalidValueError(
            field="model.lora",
            expected=f"rank and alpha {current}, as in the adapter {model.adapter}",
            got=Verbatim(new),
        )
    layers, targets = config.get("target_modules"), model.lora.target_modules
    same = layers == targets if isinstance(targets, str) else isinstance(layers, list) and set(layers) == set(targets)
    if targets != "all-linear" and not same:
        raise InvalidValueError(
            field="model.lora.target_modules",
            expected=f"{layers}, as in the adapter {model.adapter}",
            got=Verbatim(targets),
        )


def load_for_training(
    settings: ModelSettings, gradient_checkpointing: bool
) -> tuple[PreTrainedModel, LoraConfig | None]:
    """Loads a causal model for training; returns it with the configuration of a new adapter, ``None`` for no new one.

    A quantised base is prepared for training before the adapter is added, and it is the model that is trained
    (sotopia-rl loaded one and trained another). An existing adapter is trained further.

    Raises:
        InvalidValueError: as :func:`sotopia_training.models.loading.load_causal_lm`.
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
        config.lora_dropout = settings.lora.dropout  # rank, alpha and layers cannot change
    return PeftModel.from_pretrained(model, settings.adapter, is_trainable=True, config=config), None


def prepare_quantised(model: PreTrainedModel, gradient_checkpointing: bool) -> PreTrainedModel:
    """Returns a 4-bit model ready for adapters: frozen, and with its norms and output layer in float32."""
    from bitsandbytes.nn.modules import Linear4bit
    from peft import prepare_model_for_kbit_training

    for layer in model.modules():
        if isinstance(layer, Linear4bit):
            # On a CPU with AVX512-BF16, bitsandbytes packs the weights when a layer is first used without gradients (to
            # sample, or for a validation loss) and then multiplies without a backward pass, also in later steps:
            # adapters below would get only a part of their gradients, with a warning of torch and no error.
            layer.support_avx512bf16_for_cpu = False
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=gradient_checkpointing)


def check_trained_model(model: PreTrainedModel, settings: ModelSettings) -> None:
    """Checks that the model to be trained has the quantisation of the settings.

    With 4 bit, the base of every adapted layer is 4-bit and only adapters (and a score head) train; their weights are
    converted to float32, because an update of AdamW is often below the resolution of bfloat16.

    Raises:
        InvalidValueError: its quantisation differs; names a layer.
    """
    import torch

    if settings.quantization == "none":
        return
    layers = [(n, m.get_base_layer()) for n, m in model.named_modules() if hasattr(m, "lora_A")]
    wrong = [name for name, layer in layers if type(layer).__name__ != "Linear4bit"]
    if wrong or not layers:
        raise InvalidValueError(
            field="model.quantization",
            expected="a 4-bit base below every adapter",
            got=Verbatim((wrong or ["no adapter"])[0]),
        )
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if "lora_" not in name and "modules_to_save" not in name:
            raise InvalidValueError(field="model.quantization", expected="only adapters that train", got=Verbatim(name))
        parameter.data = parameter.data.to(torch.float32)


# --- running ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingRun:
    """A training stage in progress.

    Attributes:
        stage: the directory of the stage.
        fit: the settings of training.
        model: the settings of the model to load.
        prompt: the model's prompt settings, which are saved beside it.
        tokenizer: the tokenizer of the model.
        arguments: the arguments of the trainer.
    """

    stage: StageDirectory
    fit: FitSettings
    model: ModelSettings
    prompt: PromptSettings
    tokenizer: PreTrainedTokenizerBase
    arguments: Any

    def rows(self, prepare: Callable[[], _Rows]) -> _Rows:
        """Returns the rows; the first process prepares them in the stage's directory, and the others read them."""
        # local=False: all nodes share the disk, so the first process of each node would write into the same folder.
        with self.arguments.main_process_first(local=False, desc="rows"):
            return prepare()

    def fit_to_end(self, trainer: Trainer, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Trains to the end and returns the figures, including those of the rows (``facts``)."""
        check_trained_model(trainer.model, self.model)
        return {**facts, **fit_model(trainer, self.stage, self.fit)}

    def finish(self, trainer: Trainer, figures: dict[str, Any]) -> dict[str, Any]:
        """Writes prompt settings and figures; the stage is then complete. Called by every process."""
        if trainer.is_world_process_zero():
            write_prompt_settings(self.stage.model, self.prompt)
            self.stage.finish(figures)
        trainer.accelerator.wait_for_everyone()
        return figures


def completed(stage: StageDirectory) -> dict[str, Any] | None:
    """Returns the figures of a complete stage; ``None`` while it is not complete.

    Raises:
        InvalidValueError: the directory holds another stage, or the same with other settings.
    """
    return stage.figures if stage.is_complete() else None


def begin(
    stage: StageDirectory,
    fit: FitSettings,
    model: ModelSettings,
    prompt: PromptSettings,
    arguments: Callable[[], Any],
    reward_model: Path | None = None,
) -> TrainingRun:
    """Opens a stage after its settings were checked; loads only the tokenizer.

    Args:
        stage: the directory of the stage.
        fit: the settings of optimisation and of the saved model.
        model: the result of :func:`begin_from`.
        prompt: the model's prompt settings.
        arguments: returns the trainer's arguments; see :func:`~sotopia_training.fitting.arguments.training_arguments`.
        reward_model: the directory of the model that scores answers, if there is one.

    Raises:
        InvalidValueError: the directory holds another stage, or one that started from other weights or prompts; a
            package is missing, an argument or a layer to adapt does not exist, the tokenizer cannot be used in
            training, or accelerate did not start all processes.
    """
    check_launch()
    keep_freed_memory()
    check_quantization(model)
    values = arguments()
    check_installed(values)
    check_trackers(values)
    check_schedule(values)
    check_target_modules(model)
    # Names on the hub have no identity here; a name and a path are settings already, but not what lies there.
    starts = {"base": model.base, "adapter": model.adapter, "reward_model": reward_model}
    weights = {name: identity(path) for name, path in starts.items() if path is not None and Path(path).is_dir()}
    # What is trained on has the prompts of one version, by which the trained model is named.
    stage.open({**weights, "prompts": prompts_identity(prompt)})
    logger.info("%s: starts from %s", stage.path, model.adapter or model.base)
    tokenizer = load_tokenizer(model.base, prompt)
    quiet()
    return TrainingRun(stage, fit, model, prompt, tokenizer, values)


def fit_model(trainer: Trainer, stage: StageDirectory, fit: FitSettings) -> dict[str, Any]:
    """Trains to the end, from the last complete checkpoint if there is one, and returns the figures.

    ``stage.model`` exists when this returns, and is never incomplete.

    Raises:
        InvalidValueError: the checkpoint's weights could not be loaded.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    for callback in _callbacks(fit):
        trainer.add_callback(callback)
    checkpoint = _resumable(stage, fit)
    if checkpoint is not None:
        logger.info("continuing from %s", checkpoint)
        trainer.add_callback(_after_loading(trainer, checkpoint))
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    save_model(trainer, stage)
    return _figures(trainer)


def _resumable(stage: StageDirectory, fit: FitSettings) -> Path | None:
    """Returns the newest complete checkpoint before the end of training."""
    # From a checkpoint at the very end, the trainer would take one more step. So a run that was killed between its last
    # checkpoint and the saving of its model resumes from the checkpoint before.
    checkpoints = [
        path
        for path, state in stage.complete_checkpoints()
        if (fit.steps is None or state["global_step"] < fit.steps)
        and (not isinstance(fit.keep, int) or not _reached(state["epoch"], fit.keep))
    ]
    return checkpoints[-1] if checkpoints else None


def _reached(epoch: float, keep: int) -> bool:
    # The trainer counts epochs as a float, a sum of fractions.
    return epoch > keep - 1e-6


def save_model(trainer: Trainer, stage: StageDirectory) -> None:
    """Saves model and tokenizer as ``stage.model``; called by every process of a distributed run."""
    # Saved under another name and renamed when complete: a killed run leaves no incomplete model.
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


def has_sharded_weights(trainer: Trainer) -> bool:
    """Whether each process holds only a part of the weights (FSDP, ZeRO-3)."""
    from accelerate.utils import DistributedType

    return trainer.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED)


def _after_loading(trainer: Trainer, checkpoint: Path) -> TrainerCallback:
    from transformers import TrainerCallback

    class AfterLoading(TrainerCallback):
        """Ensures that training continues with the checkpoint's weights; sharded weights are not checked here."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if not has_sharded_weights(trainer):
                load_missing_weights(trainer.model, checkpoint)

    return AfterLoading()


def _callbacks(fit: FitSettings) -> list[TrainerCallback]:
    from transformers import TrainerCallback

    class Lines(TrainerCallback):
        """Logs one line for each report of the trainer, in the first process."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            if state.is_world_process_zero and logs:
                line = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in logs.items())
                logger.info("step %d of %d: %s", state.global_step, state.max_steps, line)

    class ReportFirst(TrainerCallback):
        """Reports before every checkpoint, because the sums since the last report are not saved.

        Otherwise the first report of a resumed run would be a mean over its own steps only.
        """

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            # Also before a validation, because a checkpoint may depend on it (``save_strategy: best``).
            control.should_log = control.should_log or control.should_save or control.should_evaluate

        on_epoch_end = on_step_end

    class StopAfter(TrainerCallback):
        """Ends training after the epoch whose model is saved."""

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if isinstance(fit.keep, int) and _reached(state.epoch, fit.keep):
                control.should_training_stop = True

    class FirstStep(TrainerCallback):
        """Warms up from the first step on: transformers begins at a learning rate of 0, and so wastes one step.

        In a run of few steps, or of GRPO, in which a step takes minutes, that is a large part.
        """

        def on_train_begin(
            self, args: Any, state: Any, control: Any, lr_scheduler: Any = None, optimizer: Any = None, **_: Any
        ) -> None:
            schedule = getattr(lr_scheduler, "scheduler", lr_scheduler)  # in accelerate's wrapper
            warmup = args.get_warmup_steps(state.max_steps)
            if not warmup or not hasattr(schedule, "lr_lambdas"):
                return
            schedule.lr_lambdas = [_from_first_step(factor, warmup) for factor in schedule.lr_lambdas]
            rates = [
                rate * factor(schedule.last_epoch)
                for rate, factor in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)
            ]
            for group, rate in zip(schedule.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            schedule.load_state_dict({**schedule.state_dict(), "_last_lr": rates})  # which reports name

    return [Lines(), ReportFirst(), StopAfter(), FirstStep()]


def _from_first_step(factor: Callable[[int], float], warmup: int) -> Callable[[int], float]:
    """Returns a schedule's factor with its warm-up one step earlier: 1 / warmup, …, 1 instead of 0, …."""
    return lambda step: factor(step + 1 if step < warmup else step)


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
        "log": [entry for entry in history if entry.keys() & {"loss", "eval_loss", "agreement/kind"}],
    }
