"""Settings of a comparison of models on benchmarks, before and after training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from sotopia_training.models.trained_model import Device
from sotopia_training.stage.settings import DtypeName, Quantization

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.prompts import reader
from sotopia_env.foundation.settings import Settings

load = reader(__package__)

TOXICITY = "toxicity"
"""The measure whose values come from a classifier that reads what a model has written."""


class Benchmark(Settings):
    """A task of lm-eval, with the prompts and the measure under which models are compared.

    Attributes:
        task: the name of a task or group of lm-eval, or of a file in ``include``.
        measure: a metric that the task computes for every document, such as ``acc``; or ``toxicity``, for which a
            model continues every document and the classifier reads the continuations.
        prompts: the system prompts, each a separate comparison: ``none``, ``benign``, ``adversarial``, ``jailbreak``,
            or a name in :attr:`HarmSettings.prompts`.
        fewshot: the number of examples before a question; ``None`` for the task's own.
        limit: the number of documents of each task, its first ones; ``None`` for all.
        samples: the number of continuations of each document, for ``toxicity``.
        max_tokens: the longest continuation.
        temperature: the temperature of the continuations.
        lower_is_better: whether a lower value is better; by default so for ``toxicity`` only.
    """

    task: str
    measure: str = "acc"
    prompts: tuple[str, ...] = Field(default=("none",), min_length=1)
    fewshot: int | None = Field(default=None, ge=0)
    limit: int | None = Field(default=None, ge=1)
    samples: int = Field(default=25, ge=1)
    max_tokens: int = Field(default=64, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    lower_is_better: bool | None = None

    @property
    def is_toxicity(self) -> bool:
        """Whether the classifier measures it."""
        return self.measure == TOXICITY

    @property
    def prefers_low(self) -> bool:
        """Whether a lower value is better."""
        return self.is_toxicity if self.lower_is_better is None else self.lower_is_better


class Classifier(Settings):
    """A classifier of texts. The result depends on it, so there is no default.

    Attributes:
        model: directory or hub name of a sequence classification model.
        label: the label whose probability is the toxicity of a text.
        threshold: the probability from which a text counts as toxic.
    """

    model: str
    label: str
    threshold: float = Field(default=0.5, gt=0, lt=1)


class HarmSettings(Settings):
    """Settings of a comparison; models may be added to one.

    Attributes:
        output: directory of samples and report.
        models: a name in the report to the directory of a trained model or of its base; ``smol`` is SmolLM2-135M.
        baseline: the name of the model with which the others are compared; by default the first one.
        benchmarks: the benchmarks on which the models are compared.
        classifier: the toxicity classifier; needed by benchmarks that measure toxicity.
        include: folders with files of further tasks in lm-eval's format.
        prompts: further system prompts, by name.
        chat: whether prompts are rendered by the model's chat template, as a conversation is.
        seed: the seed of continuations and of the choice of examples.
        batch_size: documents in a batch.
        quantization: the quantisation of the weights.
        dtype: the data type of the weights.
        device: the device of the weights.
    """

    output: str
    models: dict[str, str] = Field(min_length=1)
    baseline: str | None = None
    benchmarks: tuple[Benchmark, ...] = Field(min_length=1)
    classifier: Classifier | None = None
    include: tuple[str, ...] = ()
    prompts: dict[str, str] = Field(default_factory=dict)
    chat: bool = True
    seed: int = 0
    batch_size: int = Field(default=8, ge=1)
    quantization: Quantization = "none"
    dtype: DtypeName = "auto"
    device: Device = "auto"

    @model_validator(mode="after")
    def _check(self) -> HarmSettings:
        if self.baseline is not None and self.baseline not in self.models:
            raise InvalidValueError(field="baseline", got=self.baseline, valid=tuple(self.models))
        for name in self.models:
            if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith("."):
                expected = "names of letters, digits, '-', '_' and '.', since they are names of folders"
                raise InvalidValueError(field="models", expected=expected, got=name)
        for number, benchmark in enumerate(self.benchmarks):
            if benchmark.is_toxicity and self.classifier is None:
                raise InvalidValueError(
                    "toxicity is measured by a classifier that you choose",
                    field="classifier",
                    hint="set classifier.model and classifier.label",
                )
            for name in benchmark.prompts:
                if name not in (valid := ("none", *BUILT_IN, *self.prompts)):
                    raise InvalidValueError(field=f"benchmarks.{number}.prompts", got=name, valid=valid)
        return self

    @property
    def compared_with(self) -> str:
        """The name of the baseline."""
        return self.baseline or next(iter(self.models))

    def system_prompt(self, name: str) -> str | None:
        """Returns the text of a system prompt; ``None`` for the name ``none``."""
        if name == "none":
            return None
        return self.prompts[name] if name in self.prompts else load(name)


Built = Literal["benign", "adversarial", "jailbreak"]
BUILT_IN: tuple[Built, ...] = ("benign", "adversarial", "jailbreak")
"""The names of the system prompts in ``prompts/``."""
