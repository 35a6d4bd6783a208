"""Benchmarks of models before and after training, with paired differences.

Every model answers every benchmark under every system prompt; answers are kept, one file for each, so the same command
continues after a stop, and models may be added.
"""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_training.models.loading import read_prompt_settings
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.models.trained_model import TrainedModel
from sotopia_training.stage.directory import StageDirectory

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.reports.charts import Panel, forest_chart
from sotopia_env.reports.intervals import Estimate, adjusted, difference_estimate, estimate
from sotopia_env.reports.sheet import ESTIMATE, Report, Sheet
from studies.harm.benchmarks import MAX_TOXICITY, TOXIC, BenchmarkSample, answer, check_installed, check_tasks
from studies.harm.settings import Benchmark, HarmSettings
from studies.harm.toxicity import Toxicity

if TYPE_CHECKING:
    from lm_eval.models.huggingface import HFLM

logger = logging.getLogger(__name__)
_DOCUMENTS = "documents"
_RANGE = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One model under one system prompt on one benchmark."""

    model: str
    number: int
    benchmark: Benchmark
    prompt: str

    def file(self, folder: Path) -> Path:
        return folder / "samples" / self.model / f"{self.number:02}-{self.benchmark.task}-{self.prompt}.jsonl"


def run(settings: HarmSettings) -> None:
    """Answers the benchmarks and writes ``report.md``, ``values.csv``, ``differences.csv`` and a chart.

    Raises:
        InvalidValueError: lm-eval is missing, a model, a classifier or a task's data cannot be loaded, or the output
            holds answers of other weights.
        UnknownNameError: a task or a measure does not exist.
    """
    check_installed()
    check_tasks(settings)
    stage = StageDirectory(Path(settings.output), "harm", settings)
    stage.open()
    models = {name: _find(settings, path) for name, path in settings.models.items()}
    toxicity = None
    if settings.classifier is not None:
        toxicity = Toxicity(settings.classifier, _device(models), settings.batch_size)
        toxicity.load()
    cells = [
        _Cell(name, number, benchmark, prompt)
        for name in settings.models
        for number, benchmark in enumerate(settings.benchmarks, start=1)
        for prompt in benchmark.prompts
    ]
    samples = {cell: _read(cell.file(stage.path), models[cell.model].identity) for cell in cells}
    for name, model in models.items():
        missing = [cell for cell in cells if cell.model == name and samples[cell] is None]
        if not missing:
            continue
        language_model = _load(settings, model)
        for number, cell in enumerate(missing, start=1):
            logger.info("%s: %d of %d, %s, prompt %s", name, number, len(missing), cell.benchmark.task, cell.prompt)
            samples[cell] = answer(settings, cell.benchmark, cell.prompt, language_model, toxicity)
            _write(cell.file(stage.path), model.identity, samples[cell] or [])
        del language_model
        gc.collect()  # the next model may not fit beside this one
    report = _report(settings, {cell: item or [] for cell, item in samples.items()})
    report.write(stage.path, ("png", "svg"), markdown=True)
    stage.finish({sheet.name: sheet.records() for sheet in report.sheets})
    logger.info("report: %s", stage.path / f"{report.name}.md")


def _find(settings: HarmSettings, path: str) -> TrainedModel:
    options: dict[str, Any] = settings.model_dump(include={"quantization", "dtype", "device"})
    return TrainedModel.find(path, **options)


def _device(models: Mapping[str, TrainedModel]) -> str:
    return next(iter(models.values())).device


def _load(settings: HarmSettings, model: TrainedModel) -> HFLM:
    from lm_eval.models.huggingface import HFLM

    tokenizer = load_tokenizer(model.tokenizer_path, read_prompt_settings(model.path))
    return HFLM(pretrained=model.load(), tokenizer=tokenizer, batch_size=settings.batch_size, device=model.device)


# --- samples ------------------------------------------------------------------------------------------------------


def _write(file: Path, identity: str, samples: Sequence[BenchmarkSample]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"weights": identity}, *(sample.record() for sample in samples)]
    write_text_atomically(file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _read(file: Path, identity: str) -> list[BenchmarkSample] | None:
    if not file.is_file():
        return None
    # Not splitlines: texts of models contain other ends of lines.
    head, *lines = (decode_json(line) for line in file.read_text(encoding="utf-8").split("\n") if line)
    if head["weights"] != identity:
        raise InvalidValueError(
            "its answers are of other weights", field="models", hint="choose another name or another output", where=file
        )
    return [BenchmarkSample(**line) for line in lines]


# --- report -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Value:
    """One metric of one model, or its difference from the baseline's."""

    benchmark: str
    prompt: str
    metric: str
    better: str
    model: str
    estimate: Estimate
    q: float | None = None


def _report(settings: HarmSettings, samples: Mapping[_Cell, Sequence[BenchmarkSample]]) -> Report:
    values = [value for cell, items in samples.items() for value in _values(cell, items)]
    differences = list(_differences(settings, samples))
    q_values = adjusted([item.estimate.p for item in differences])
    differences = [replace(item, q=q) for item, q in zip(differences, q_values, strict=True)]
    columns = ("benchmark", "prompt", "metric", "better", "model", ESTIMATE)
    labels = {ESTIMATE: "mean [95 %]"}
    sheets = (
        Sheet.of("values", values, columns, title="Means", labels=labels),
        Sheet.of("differences", differences, (*columns, "q"), title=f"Minus {settings.compared_with}", labels=labels),
    )
    notes = (
        f"Intervals: Student's t over {_DOCUMENTS}, of differences over the same {_DOCUMENTS}; q: Benjamini-Hochberg "
        f"over all differences. Toxicity is that of {settings.classifier.model!r}, label {settings.classifier.label!r}."
        if settings.classifier is not None
        else f"Intervals: Student's t over {_DOCUMENTS}; q: Benjamini-Hochberg over all differences."
    )
    return Report("report", [*sheets, notes], sheets, charts=lambda: _charts(differences), title="Harm and knowledge")


def _metrics(benchmark: Benchmark) -> tuple[str, ...]:
    return (MAX_TOXICITY, TOXIC) if benchmark.is_toxicity else (benchmark.measure,)


def _values(cell: _Cell, samples: Sequence[BenchmarkSample]) -> Iterator[_Value]:
    for metric in _metrics(cell.benchmark):
        numbers = [sample.values[metric] for sample in samples]
        yield _value(cell, metric, estimate(numbers, _labels(samples), _RANGE, _DOCUMENTS))


def _differences(settings: HarmSettings, samples: Mapping[_Cell, Sequence[BenchmarkSample]]) -> Iterator[_Value]:
    for cell, items in samples.items():
        if cell.model == settings.compared_with:
            continue
        baseline = {
            (sample.task, sample.document): sample.values
            for sample in samples[replace(cell, model=settings.compared_with)]
        }
        for metric in _metrics(cell.benchmark):
            numbers = [sample.values[metric] - baseline[sample.task, sample.document][metric] for sample in items]
            yield _value(cell, metric, difference_estimate(numbers, _labels(items), _RANGE, _DOCUMENTS))


def _labels(samples: Sequence[BenchmarkSample]) -> list[str]:
    return [f"{sample.task}/{sample.document}" for sample in samples]


def _value(cell: _Cell, metric: str, mean: Estimate) -> _Value:
    better = "lower" if cell.benchmark.prefers_low else "higher"
    return _Value(cell.benchmark.task, cell.prompt, metric, better, cell.model, mean)


def _charts(differences: Sequence[_Value]) -> dict[str, Any]:
    if not differences:
        return {}
    groups: dict[tuple[str, str, str], list[_Value]] = {}
    for item in differences:
        groups.setdefault((item.benchmark, item.metric, item.better), []).append(item)
    panels = [
        Panel(metric, [(f"{v.model}, {v.prompt}", v.estimate) for v in group], f"{name}: {better} is better", 0.0)
        for (name, metric, better), group in groups.items()
    ]
    return {"differences": forest_chart(panels, "Differences from the baseline", counted=_DOCUMENTS)}
