"""Settings of the attribution stage."""

from __future__ import annotations

from pydantic import Field

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.foundation.settings import Settings
from sotopia_training.attribution.by_model import Scale
from sotopia_training.attribution.methods import Method, Sign, dimension_name

LLM = "llm:"
"""Prefix of the names of attributors that are language models."""
COUNTERFACTUAL = "counterfactual"
"""Name of the attributor that measures values of states; see :mod:`sotopia_training.attribution.counterfactual`."""


class QuestionSettings(Settings):
    """The manner of asking language models; see :class:`sotopia_training.attribution.by_model.LLMAttributor`."""

    scale: Scale = "three"
    temperature: float = Field(default=0.0, ge=0, le=2)
    reasks: int = Field(default=2, ge=0)


class CounterfactualSettings(Settings):
    """Measurement of the values of states; see :mod:`sotopia_training.attribution.counterfactual`.

    Attributes:
        samples: the number of continuations of every state, at least 1.
        seed: the seed of the policies' random draws in continuations.
        evaluator: the name of the evaluator that scores the continuations.
        policies: specifications of policies that cannot be recreated from their record (such as a trained model's
            directory), by their name in the record.
        concurrency: the number of states that are measured at once, each with all its continuations.
    """

    samples: int = Field(default=8, ge=1)
    seed: int = Field(default=0, ge=0)
    evaluator: str = "verified"
    policies: dict[str, str] = Field(default_factory=dict)
    concurrency: int = Field(default=16, ge=1)


class AttributionSettings(Settings):
    """The attribution stage.

    Attributes:
        runs: run directories or ``.jsonl`` files of evaluated episodes.
        seats: agent ids (``agent_0``) or policies (``policy:NAME``) whose turns are attributed to; ``None`` takes all.
        evaluator: name of the evaluation whose scores are attributed; the latest of each episode by default.
        dimensions: the dimensions whose scores are attributed: any of the seven, by name or abbreviation, or custom
            ones.
        attributors: ``llm:PROVIDER/MODEL``, ``prospect``, ``acts``, ``standing``, ``silence`` or
            ``silence:EVALUATOR``, ``counterfactual``.
        methods: ``uniform``, ``singular``, ``scaled``, ``direct``, ``turn_reward``.
        sign: ``signed`` or ``shifted``; see :mod:`sotopia_training.attribution.methods`.
        question: the manner of asking language models.
        counterfactual: the measurement of the values of states.
        models: the access to language models and their budget; may differ when a stage is continued.
        output: the directory of the stage.
    """

    runs: tuple[str, ...] = Field(min_length=1)
    seats: tuple[str, ...] | None = None
    evaluator: str | None = None
    dimensions: tuple[str, ...] = Field(default=("goal", "relationship", "knowledge"), min_length=1)
    attributors: tuple[str, ...] = ()
    methods: tuple[Method, ...] = Field(default=("direct",), min_length=1)
    sign: Sign = "signed"
    question: QuestionSettings = QuestionSettings()
    counterfactual: CounterfactualSettings = CounterfactualSettings()
    models: ModelOptions | None = None
    output: str

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions by their full names."""
        return tuple(dict.fromkeys(map(dimension_name, self.dimensions)))

    @property
    def model_names(self) -> tuple[str, ...]:
        """The attributors that are language models, as ``PROVIDER/MODEL``."""
        return tuple(name.removeprefix(LLM) for name in self.attributors if name.startswith(LLM))
