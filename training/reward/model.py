"""The reward model: the value of an utterance, learnt by regression (SOTOPIA-RL, arXiv 2508.03905, §4 and §5).

A sequence classifier with one output and mean squared error, trained with transformers' Trainer; TRL's reward trainer
learns from pairs only. Rows are held out by scenario. The figures compare it with the best constant on the training
rows.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from sotopia_env.errors import InvalidValueError
from sotopia_env.files import write_text_atomically
from sotopia_env.json_text import read_json
from training.data.held_out import evaluation_scenarios
from training.data.samples import split_scenarios, stream_dataset
from training.fitting.loop import (
    FitSettings,
    begin_from,
    check_keep,
    check_trained_model,
    finish_stage,
    fit_model,
    is_first_process,
    open_stage,
    prepare_quantised,
    quiet,
    training_arguments,
)
from training.models.loading import load_tokenizer, lora_config
from training.reward.scorer import load_classifier, write_note
from training.reward.text import fitting_ids, read_rows
from training.stage.directory import StageDirectory
from training.stage.settings import ModelSettings, PromptSettings, Settings

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

logger = logging.getLogger(__name__)
FACTS = "facts.json"
"""File beside the prepared rows, written last: numbers of rows and of left out rows."""


class RewardModelSettings(Settings):
    """The reward model's stage.

    Attributes:
        model: the model to train; a base, or a fully trained model.
        start_from: output directory of an earlier stage that trained all weights; it replaces ``model.base``.
        prompt: ``format`` as in the rows, ``max_length`` of prompt and answer together.
        rows: JSON Lines with prompt, completion, value and scenario, or stage directories that hold ``rows.jsonl``.
        evaluation_tasks: a task file, ``starter`` or ``everyday``; the rows must not contain its scenarios.
        validation: share of the scenarios that is held out, unless the rows name their own part.
        output: the stage's directory.
        fit: optimisation and checkpoints.
    """

    model: ModelSettings
    start_from: str | None = None
    prompt: PromptSettings = PromptSettings()
    rows: tuple[str, ...] = Field(min_length=1)
    evaluation_tasks: str | None = None
    validation: float = Field(default=0.1, ge=0, lt=1)
    output: str
    fit: FitSettings = FitSettings(epochs=1)

    @model_validator(mode="after")
    def _check_keep(self) -> RewardModelSettings:
        check_keep(self.fit, self.validation)
        return self


# --- data ---------------------------------------------------------------------------------------------------------


def prepare(settings: RewardModelSettings, folder: Path, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Reads, splits and tokenises the rows into ``folder`` unless they are there; returns their numbers.

    Raises:
        InvalidValueError: there are no rows with values, one is of a scenario reserved for evaluation, or only some
            name their part.
        DamagedRecordError: a line is no row.
    """
    facts = folder / FACTS
    if facts.is_file():
        record: dict[str, Any] = read_json(facts)
        return record
    counts = {"rows": 0, "without_value": 0, "too_long": 0}
    try:
        whole = stream_dataset(_records(settings, tokenizer, counts), _features(), folder / "building")
        sizes = {}
        for name, indices in _split(whole, settings).items():
            if indices:
                whole.select(indices).select_columns(["input_ids", "labels"]).save_to_disk(str(folder / name))
            sizes[name] = {"rows": len(indices), "scenarios": len({whole[index]["scenario"] for index in indices})}
        del whole
    finally:
        shutil.rmtree(folder / "building", ignore_errors=True)  # else corrected settings would reuse refused rows
    record = {"data": sizes, "counts": counts}
    write_text_atomically(facts, json.dumps(record, indent=2) + "\n")
    return record


def _records(
    settings: RewardModelSettings, tokenizer: PreTrainedTokenizerBase, counts: dict[str, int]
) -> Iterator[Mapping[str, Any]]:
    reserved = evaluation_scenarios(settings.evaluation_tasks)
    for path in settings.rows:
        for row in read_rows(path):
            if row.scenario in reserved:
                raise InvalidValueError(
                    f"{path}: a row's scenario is kept for evaluation (task {reserved[row.scenario]!r})"
                )
            if row.format not in (None, settings.prompt.format):
                raise InvalidValueError(
                    f"prompt.format: the rows of {path} have prompts of {row.format!r}, got {settings.prompt.format!r}"
                )
            ids = fitting_ids(tokenizer, row.messages, row.completion, settings.prompt.max_length)
            if row.value is None or ids is None:
                counts["without_value" if row.value is None else "too_long"] += 1
                continue
            counts["rows"] += 1
            yield {"input_ids": ids, "labels": row.value, "scenario": row.scenario, "split": row.split or ""}
    if not counts["rows"]:
        raise InvalidValueError(
            f"rows: none can be used; {counts['without_value']} have no value, {counts['too_long']} are too long"
        )


def _features() -> Any:
    from datasets import Features, Value

    text = Value("string")
    return Features({"input_ids": [Value("int32")], "labels": Value("float32"), "scenario": text, "split": text})


def _split(whole: Dataset, settings: RewardModelSettings) -> dict[str, list[int]]:
    labels, scenarios = list(whole["split"]), list(whole["scenario"])
    if any(labels):
        if not all(labels):
            raise InvalidValueError("rows: some say whether they are for training or validation, and some do not")
        both = {key for key, part in zip(scenarios, labels, strict=True) if part == "train"} & {
            key for key, part in zip(scenarios, labels, strict=True) if part == "validation"
        }
        if both:
            raise InvalidValueError(f"rows: scenario {min(both)!r} is in training and in validation")
        parts = labels
    else:
        split = split_scenarios(scenarios, settings.validation, settings.fit.seed)
        parts = ["train" if key in split.train else "validation" for key in scenarios]
    return {name: [i for i, part in enumerate(parts) if part == name] for name in ("train", "validation")}


def collate(rows: Sequence[Mapping[str, Any]], padding: int) -> dict[str, Any]:
    """Returns a batch, padded on the right: ``input_ids`` and ``attention_mask`` (rows, tokens), ``labels`` (rows,)."""
    import torch

    width = max(len(row["input_ids"]) for row in rows)
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    ids = [[*row["input_ids"], *[padding] * (width - len(row["input_ids"]))] for row in rows]
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": (torch.arange(width)[None] < lengths[:, None]).long(),
        "labels": torch.tensor([row["labels"] for row in rows], dtype=torch.float32),
    }


def padding_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Returns a token that no row ends with: the model reads its score at the last token that is not padding."""
    candidates = (tokenizer.pad_token_id, tokenizer.unk_token_id, *range(len(tokenizer)))
    end = {tokenizer.eos_token_id, *tokenizer("\n", add_special_tokens=False)["input_ids"]}
    return int(next(token for token in candidates if token is not None and token not in end))


# --- model --------------------------------------------------------------------------------------------------------


def _load(settings: ModelSettings, padding: int, gradient_checkpointing: bool) -> PreTrainedModel:
    model = load_classifier(settings.base, settings, problem_type="regression", pad_token_id=padding)
    model.score.weight.data.zero_()  # every value starts at 0 instead of the output of a random head
    model.config.use_cache = False
    if settings.quantization != "none":
        model = prepare_quantised(model, gradient_checkpointing)
    if settings.lora is None:
        return model
    from peft import get_peft_model

    peft_model = get_peft_model(model, lora_config(settings.lora, "SEQ_CLS"))
    if gradient_checkpointing:
        peft_model.enable_input_require_grads()
    return peft_model


def regression_figures(predicted: Sequence[float], true: Sequence[float], constant: float) -> dict[str, float | None]:
    """Returns mean squared error, correlations, and the error of predicting ``constant``.

    A correlation is ``None`` if one side does not vary.
    """
    import numpy as np
    from scipy import stats

    x, y = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    varies = len(x) > 1 and x.std() > 0 and y.std() > 0
    return {
        "mse": float(np.mean((x - y) ** 2)),
        "constant_mse": float(np.mean((constant - y) ** 2)),
        "pearson": float(stats.pearsonr(x, y).statistic) if varies else None,
        "spearman": float(stats.spearmanr(x, y).statistic) if varies else None,
    }


# --- the stage ----------------------------------------------------------------------------------------------------


def run(settings: RewardModelSettings) -> dict[str, Any]:
    """Trains or continues; does nothing if the stage is complete.

    Returns:
        The figures, as in ``done.json``.

    Raises:
        InvalidValueError: the settings or the data are invalid; mostly before any model is loaded.
    """
    stage = StageDirectory(Path(settings.output), "reward_model", settings)
    model_settings = begin_from(settings.model, settings.start_from, settings.prompt)
    if model_settings.adapter is not None:
        raise InvalidValueError(
            f"{model_settings.adapter}: an adapter of a language model; a reward model begins with a base or full model"
        )
    complete = open_stage(stage, model_settings)
    if complete is not None:
        return complete
    tokenizer = load_tokenizer(model_settings.base, settings.prompt.format)
    quiet()
    folder = stage.path / "rows"
    if is_first_process():
        facts = prepare(settings, folder, tokenizer)
        logger.info("rows: %s; %s", facts["data"], facts["counts"])
    return _fit(settings, model_settings, stage, tokenizer, folder)


def _fit(
    settings: RewardModelSettings,
    model_settings: ModelSettings,
    stage: StageDirectory,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> dict[str, Any]:
    from datasets import load_from_disk
    from transformers import Trainer, TrainingArguments, set_seed

    held_out = _holds_out(settings, folder)
    if settings.fit.keep == "best" and not held_out:
        raise InvalidValueError("fit.keep: 'best' needs a validation loss, and the rows hold nothing out")
    arguments = training_arguments(settings.fit, stage, held_out, TrainingArguments, label_names=["labels"])
    with arguments.main_process_first(desc="rows"):
        facts = prepare(settings, folder, tokenizer)
    rows = load_from_disk(str(folder / "train"))
    validation = load_from_disk(str(folder / "validation")) if (folder / "validation").is_dir() else None
    set_seed(settings.fit.seed)  # before the score head and the adapter are initialised
    padding = padding_id(tokenizer)
    model = _load(model_settings, padding, settings.fit.gradient_checkpointing)
    check_trained_model(model, model_settings)
    constant = sum(rows["labels"]) / len(rows)

    def measure(prediction: Any) -> dict[str, float]:
        figures = regression_figures(
            prediction.predictions.reshape(-1).tolist(), prediction.label_ids.tolist(), constant
        )
        return {name: value for name, value in figures.items() if value is not None}

    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        eval_dataset=validation,
        processing_class=tokenizer,
        data_collator=lambda batch: collate(batch, padding),
        compute_metrics=measure,
    )
    figures = {**facts, "constant": constant, **fit_model(trainer, stage, settings.fit)}
    if validation is not None:
        figures["held_out"] = _held_out(trainer, settings.fit.keep)
        logger.info("held out: %s", figures["held_out"])
    if trainer.is_world_process_zero():
        write_note(stage.model, model_settings, settings.prompt)
    finish_stage(trainer, stage, settings.prompt, figures)
    return figures


def _holds_out(settings: RewardModelSettings, folder: Path) -> bool:
    """Whether rows are held out; the same in every process, independent of which one prepares the rows."""
    if (folder / FACTS).is_file():
        return (folder / "validation").is_dir()
    parts = {row.split for path in settings.rows for row in read_rows(path)}
    return "validation" in parts or (parts == {None} and settings.validation > 0)


def _held_out(trainer: Trainer, keep: str | int) -> dict[str, float]:
    """The figures of the saved model: those of its last validation, or else measured now."""
    history = trainer.state.log_history
    last = next((entry for entry in reversed(history) if "eval_mse" in entry), None)
    if last is None or keep == "best" or last["step"] != trainer.state.global_step:
        last = trainer.evaluate()
    names = ("mse", "constant_mse", "pearson", "spearman")
    return {name: last[f"eval_{name}"] for name in names if f"eval_{name}" in last}
