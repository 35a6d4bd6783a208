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
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, JsonValue, model_validator

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.extras import extra
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import read_json
from sotopia_env.reports.agreement import pearson, spearman
from sotopia_training.data.held_out import check_not_reserved, evaluation_scenarios
from sotopia_training.data.samples import split_scenarios, stream_dataset
from sotopia_training.fitting.arguments import PAPER, FitSettings, check_keep, training_arguments
from sotopia_training.fitting.forecast import TrainingForecast, supervised_forecast
from sotopia_training.fitting.loop import TrainingRun, begin, begin_from, completed, prepare_quantised
from sotopia_training.fitting.probe import MeasuredStep, full_rows, measure, probing, row_count
from sotopia_training.models.loading import lora_config
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.reward.scorer import load_classifier, write_note
from sotopia_training.reward.text import fitting_ids, read_rows
from sotopia_training.stage.directory import StageDirectory
from sotopia_training.stage.settings import ModelSettings, PromptSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

logger = logging.getLogger(__name__)
FACTS = "facts.json"
"""File beside the prepared rows, written last: numbers of rows and of left out rows."""


class RewardModelSettings(FitSettings):
    """The reward model's stage; ``trainer`` is transformers' ``TrainingArguments``.

    Attributes:
        model: the model to train.
        start_from: the output directory of an earlier stage; its adapter, or its full model, replaces the one in
            ``model``. An adapter is trained further, with a new score head.
        prompt: the prompt settings: ``format`` must be that of the rows, ``max_length`` limits prompt and answer
            together.
        rows: JSON Lines with prompt, completion, value and scenario, or stage directories that hold ``rows.jsonl``.
        evaluation_tasks: a task file, ``starter`` or ``everyday``; the rows must not contain its scenarios.
        validation: the share of the scenarios that is held out, unless the rows name their own part.
        output: the directory of the stage.
    """

    defaults: ClassVar[Mapping[str, JsonValue]] = {**PAPER, "num_train_epochs": 1}
    model: ModelSettings
    start_from: str | None = None
    prompt: PromptSettings = PromptSettings()
    rows: tuple[str, ...] = Field(min_length=1)
    evaluation_tasks: str | None = None
    validation: float = Field(default=0.1, ge=0, lt=1)
    output: str

    @model_validator(mode="after")
    def _check_keep(self) -> RewardModelSettings:
        check_keep(self, self.validation)
        return self


# --- data ---------------------------------------------------------------------------------------------------------


def prepare(settings: RewardModelSettings, folder: Path, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Reads, splits and tokenises the rows into ``folder``, unless that is done already, and returns their numbers.

    Raises:
        InvalidValueError: no row has a value, a row's scenario is reserved for evaluation, or only some rows name their
            part.
        DamagedRecordError: a line is not a row.
    """
    facts = folder / FACTS
    if facts.is_file():
        record: dict[str, Any] = read_json(facts)
        return record
    counts = {"rows": 0, "without_value": 0, "too_long": 0}
    try:
        whole = stream_dataset(_records(settings, tokenizer, counts), _features(), folder / "building")
        sizes = {}
        # Tokenised once into one data set and split after it, so that the rows are not all in memory.
        for name, indices in _split(whole["split"], whole["scenario"], settings).items():
            if indices:
                whole.select(indices).select_columns(["input_ids", "labels"]).save_to_disk(str(folder / name))
            sizes[name] = {"rows": len(indices), "scenarios": len({whole[index]["scenario"] for index in indices})}
        del whole  # it maps files of the folder that is removed below
    finally:
        # Also after an error: other settings must not reuse refused rows.
        shutil.rmtree(folder / "building", ignore_errors=True)
    record = {"data": sizes, "counts": counts}
    write_text_atomically(facts, json.dumps(record, indent=2) + "\n")
    logger.info("rows: %s; %s", sizes, counts)
    if counts["too_long"]:
        logger.warning(
            "rows: %d of %d have more than %d tokens and are left out; raise prompt.max_length to keep them",
            *(counts["too_long"], sum(counts.values()), settings.prompt.max_length),
        )
    return record


def _records(
    settings: RewardModelSettings, tokenizer: PreTrainedTokenizerBase, counts: dict[str, int]
) -> Iterator[Mapping[str, Any]]:
    reserved = evaluation_scenarios(settings.evaluation_tasks)
    for path in settings.rows:
        for row in read_rows(path):
            check_not_reserved(row.scenario, reserved, file=path)
            if row.format not in (None, settings.prompt.format):
                raise InvalidValueError(
                    field="prompt.format",
                    expected=f"{row.format!r}, as the rows have it",
                    got=settings.prompt.format,
                    where=path,
                )
            ids = fitting_ids(tokenizer, row.messages, row.completion, settings.prompt.max_length)
            if row.value is None or ids is None:
                counts["without_value" if row.value is None else "too_long"] += 1
                continue
            counts["rows"] += 1
            yield {"input_ids": ids, "labels": row.value, "scenario": row.scenario, "split": row.split or ""}
    if not counts["rows"]:
        raise InvalidValueError(
            "no row can be used",
            field="rows",
            hint=f"{counts['without_value']} have no value, {counts['too_long']} are too long",
        )


def _features() -> Any:
    from datasets import Features, Value

    text = Value("string")
    return Features({"input_ids": [Value("int32")], "labels": Value("float32"), "scenario": text, "split": text})


def _split(labels: Sequence[str], scenarios: Sequence[str], settings: RewardModelSettings) -> dict[str, list[int]]:
    if any(labels):
        if not all(labels):
            raise InvalidValueError("some rows name their part (train or validation), and others do not", field="split")
        both = {key for key, part in zip(scenarios, labels, strict=True) if part == "train"} & {
            key for key, part in zip(scenarios, labels, strict=True) if part == "validation"
        }
        if both:
            raise InvalidValueError("in training and in validation", field="scenario", got=min(both))
        parts = labels
    else:
        split = split_scenarios(list(scenarios), settings.validation, settings.seed)
        parts = ["train" if key in split.train else "validation" for key in scenarios]
    return {name: [i for i, part in enumerate(parts) if part == name] for name in ("train", "validation")}


def collate(rows: Sequence[Mapping[str, Any]], padding: int) -> dict[str, Any]:
    """Returns a batch, padded on the right: ``input_ids`` and ``attention_mask`` (rows, tokens), ``labels`` (rows,)."""
    import torch

    width = max(len(row["input_ids"]) for row in rows)
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])  # (rows,)
    ids = [[*row["input_ids"], *[padding] * (width - len(row["input_ids"]))] for row in rows]
    return {
        "input_ids": torch.tensor(ids),  # (rows, tokens)
        "attention_mask": (torch.arange(width)[None] < lengths[:, None]).long(),  # (rows, tokens)
        "labels": torch.tensor([row["labels"] for row in rows], dtype=torch.float32),
    }


def padding_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Returns a token that is not the last token of any row."""
    # The model reads its score at the last token that is not padding, so a row that ended with the padding token would
    # be read too early. Templates end rows with the end token or a line break.
    candidates = (tokenizer.pad_token_id, tokenizer.unk_token_id, *range(len(tokenizer)))
    end = {tokenizer.eos_token_id, *tokenizer("\n", add_special_tokens=False)["input_ids"]}
    return int(next(token for token in candidates if token is not None and token not in end))


# --- model --------------------------------------------------------------------------------------------------------


def _load(settings: ModelSettings, padding: int, gradient_checkpointing: bool) -> PreTrainedModel:
    model = load_classifier(settings.base, settings, problem_type="regression", pad_token_id=padding)
    # All predictions start at 0 instead of at the output of a random head.
    model.score.weight.data.zero_()
    model.config.use_cache = False
    if settings.quantization != "none":
        model = prepare_quantised(model, gradient_checkpointing)
    if settings.lora is None:
        return model
    peft_model = _adapted(model, settings)
    # The base is frozen: without this, checkpointed layers get inputs without gradients and train nothing.
    if gradient_checkpointing:
        peft_model.enable_input_require_grads()
    return peft_model


def _adapted(model: PreTrainedModel, settings: ModelSettings) -> PreTrainedModel:
    """Returns the classifier with an adapter: a new one, or a language model's, trained further with a new head."""
    from peft import (
        PeftConfig,
        get_peft_model,
        get_peft_model_state_dict,
        load_peft_weights,
        set_peft_model_state_dict,
    )

    assert settings.lora is not None
    new = lora_config(settings.lora, "SEQ_CLS")  # trains and saves the score head, too
    if settings.adapter is None:
        return get_peft_model(model, new)
    config = PeftConfig.from_pretrained(settings.adapter)  # rank, alpha and layers are the adapter's own
    config.inference_mode, config.task_type, config.lora_dropout = False, new.task_type, new.lora_dropout
    config.modules_to_save = sorted({*(config.modules_to_save or ()), *new.modules_to_save})
    peft_model = get_peft_model(model, config)
    # The language model's adapter has no score head, so the new one is kept.
    weights = {**get_peft_model_state_dict(peft_model), **load_peft_weights(settings.adapter)}
    strange = set_peft_model_state_dict(peft_model, weights).unexpected_keys
    if strange:
        raise InvalidValueError(
            f"adapts {strange[0]}, which a reward model does not have",
            where=settings.adapter,
            hint="start from another adapter, or without one",
        )
    return peft_model


def regression_figures(predicted: Sequence[float], true: Sequence[float], constant: float) -> dict[str, float | None]:
    """Returns mean squared error, correlations, and the error of predicting ``constant``.

    A correlation is ``None`` if one side does not vary.
    """
    import numpy as np

    x, y = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    correlations = {"pearson": pearson(x.tolist(), y.tolist()), "spearman": spearman(x.tolist(), y.tolist())}
    return {
        "mse": float(np.mean((x - y) ** 2)),
        "constant_mse": float(np.mean((constant - y) ** 2)),
        **{name: None if item is None else item.value for name, item in correlations.items()},
    }


# --- the stage ----------------------------------------------------------------------------------------------------


def run(settings: RewardModelSettings) -> dict[str, Any]:
    """Trains, or continues training; does nothing if the stage is complete.

    Returns:
        The figures, as in ``done.json``.

    Raises:
        InvalidValueError: the settings or the data are invalid; mostly before any model is loaded.
    """
    complete = completed(_directory(settings))
    if complete is not None:
        return complete
    frame = _begin(settings)
    folder = frame.stage.path / "rows"
    facts = frame.rows(lambda: prepare(settings, folder, frame.tokenizer))
    if settings.keep == "best" and not facts["data"]["validation"]["rows"]:
        raise InvalidValueError("'best' needs validation rows", field="keep")
    return _fit(settings, frame, folder, facts)


def _directory(settings: RewardModelSettings) -> StageDirectory:
    return StageDirectory(Path(settings.output), "reward_model", settings)


def _begin(settings: RewardModelSettings) -> TrainingRun:
    model = begin_from(settings.model, settings.start_from, settings.prompt)
    return begin(_directory(settings), settings, model, settings.prompt, lambda: trainer_arguments(settings))


def trainer_arguments(settings: RewardModelSettings, validated: bool | None = None) -> Any:
    """Returns the trainer's arguments.

    Args:
        settings: the settings of the stage.
        validated: whether there are validation rows; ``None`` before the rows are read.
    """
    with extra("train"):
        from transformers import TrainingArguments

    output = StageDirectory(Path(settings.output), "", settings).checkpoints
    validated = settings.validation > 0 if validated is None else validated
    return training_arguments(settings, str(output), validated, TrainingArguments, label_names=["labels"])


def forecast(settings: RewardModelSettings, rows: int | None, devices: int) -> TrainingForecast:
    """Returns the forecast of the stage; see :func:`~sotopia_training.fitting.forecast.supervised_forecast`.

    Raises:
        InvalidValueError: the settings contradict each other, or the data do not exist.
    """
    from datasets import load_from_disk

    def train(folder: Path) -> Dataset:
        model = begin_from(settings.model, settings.start_from, settings.prompt)
        prepare(settings, folder, load_tokenizer(model.base, settings.prompt))
        return load_from_disk(str(folder / "train"))

    return supervised_forecast(settings, trainer_arguments(settings), rows, devices, train)


def probe(settings: RewardModelSettings) -> MeasuredStep:
    """Measures a step on rows of full length.

    Raises:
        InvalidValueError: as :func:`run`, except for errors of the data.
    """
    from datasets import Dataset

    length = settings.prompt.max_length
    with probing(settings) as shortened:
        frame = _begin(shortened)
        ids = full_rows(frame.tokenizer, row_count(frame.arguments), length)
        rows = Dataset.from_dict({"input_ids": ids, "labels": [float(number % 2) for number in range(len(ids))]})
        return measure(_trainer(frame, frame.arguments, rows), length)


def _fit(settings: RewardModelSettings, frame: TrainingRun, folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    from datasets import load_from_disk
    from transformers import set_seed

    rows = load_from_disk(str(folder / "train"))
    validation = load_from_disk(str(folder / "validation")) if (folder / "validation").is_dir() else None
    arguments = trainer_arguments(settings, validation is not None)  # the rows may name their part themselves
    set_seed(settings.seed)  # before the score head and the adapter are initialised
    trainer = _trainer(frame, arguments, rows, validation)
    figures = frame.fit_to_end(trainer, {**facts, "constant": sum(rows["labels"]) / len(rows)})
    if validation is not None and arguments.eval_strategy != "no":
        figures["held_out"] = _held_out(trainer, settings.keep)
        logger.info("held out: %s", figures["held_out"])
    if trainer.is_world_process_zero():
        write_note(frame.stage.model, frame.model.model_copy(update={"adapter": None}), settings.prompt)
    return frame.finish(trainer, figures)


def _trainer(frame: TrainingRun, arguments: Any, rows: Dataset, validation: Dataset | None = None) -> Trainer:
    from transformers import Trainer

    padding = padding_id(frame.tokenizer)
    constant = sum(rows["labels"]) / len(rows)

    def measures(prediction: Any) -> dict[str, float]:
        figures = regression_figures(
            prediction.predictions.reshape(-1).tolist(), prediction.label_ids.tolist(), constant
        )
        return {name: value for name, value in figures.items() if value is not None}

    return Trainer(
        model=_load(frame.model, padding, arguments.gradient_checkpointing),
        args=arguments,
        train_dataset=rows,
        eval_dataset=validation,
        processing_class=frame.tokenizer,
        data_collator=lambda batch: collate(batch, padding),
        compute_metrics=measures,
    )


def _held_out(trainer: Trainer, keep: str | int) -> dict[str, float]:
    """The figures of the saved model, from its last validation; without one, they are measured now."""
    history = trainer.state.log_history
    last = next((entry for entry in reversed(history) if "eval_mse" in entry), None)
    if last is None or keep == "best" or last["step"] != trainer.state.global_step:
        last = trainer.evaluate()
    names = ("mse", "constant_mse", "pearson", "spearman")
    return {name: last[f"eval_{name}"] for name in names if f"eval_{name}" in last}
