"""Prompts of judges: the dimensions, the instructions and the form of the answer, separate from the data.

The content of the instructions follows SOTOPIA (arXiv 2310.11667), appendix D, and that of the bands appendix G.2; the
wording is our own, in ``prompts/judge_*.txt``. The only part of the episode in the instructions is agent ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sotopia_env.evaluators.judge.document import Document
from sotopia_env.evaluators.judge.verdict import Axis
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape, quote
from sotopia_env.world.observation import ChatMessage
from sotopia_env.world.reward import DIMENSIONS, RANGES, CustomDimension, Dimension, dimension

judge_text = reader(__package__)
"""Returns a prompt text of the judge by the name of its file."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question about a document.

    Attributes:
        system: the instructions, which contain nothing from the episode except agent ids.
        document: the data.
        closing: the text after the data.
        schema: the JSON schema of the answer.
    """

    system: str
    document: Document
    closing: str
    schema: Mapping[str, Any]

    def messages(self, complaint: str = "") -> tuple[ChatMessage, ...]:
        """Returns the conversation.

        Args:
            complaint: why an earlier answer was refused. It may repeat the model's words, so it is shown as a JSON
                string. The earlier answer is not shown, because data that it quotes would come back unquoted.
        """
        closing = self.closing
        if complaint:
            closing = f"{closing}\n\n{fill(judge_text('judge_reask'), complaint=quote(complaint))}"
        text = fill(judge_text("judge_data"), mark=self.document.mark, data=self.document.text, closing=closing)
        return ({"role": "system", "content": self.system}, {"role": "user", "content": text})


@dataclass(frozen=True, slots=True)
class Rubric:
    """The dimensions of a judge.

    Attributes:
        dimensions: the dimensions of the seven that are judged.
        custom: custom dimensions.
        bands: whether the prompt describes the bands of each of the seven ranges (SOTOPIA, appendix G.2).
    """

    dimensions: tuple[Dimension, ...] = DIMENSIONS
    custom: tuple[CustomDimension, ...] = ()
    bands: bool = False

    @classmethod
    def of(cls, dimensions: Sequence[Dimension | str], custom: Sequence[CustomDimension], bands: bool) -> Rubric:
        """Returns the rubric of dimensions by name.

        Raises:
            UnknownNameError: a name in ``dimensions`` is not one of the seven.
            InvalidValueError: a dimension is given twice, or there are none.
        """
        # A string is a sequence of names to Python, each a letter.
        if isinstance(dimensions, str):
            raise InvalidValueError(field="dimensions", expected="several names", got=dimensions)
        standard = tuple(dimension(name) for name in dimensions)
        for item in custom:
            if not isinstance(item, CustomDimension):
                raise InvalidValueError(field="custom", expected="CustomDimension records", got=item)
        names = [*(d.value for d in standard), *(d.name for d in custom)]
        if not names or len(set(names)) != len(names):
            raise InvalidValueError(field="dimensions", expected="at least one, each once", got=names)
        if not isinstance(bands, bool):
            raise InvalidValueError(field="bands", expected="True or False", got=bands)
        return cls(standard, tuple(custom), bands)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """One axis per dimension: the standard ones in the given order, then the custom ones."""
        standard = [Axis(d.value, *RANGES[d], self._instruction(d)) for d in self.dimensions]
        return (*standard, *(Axis(c.name, c.low, c.high, escape(c.instruction.strip())) for c in self.custom))

    def _instruction(self, dimension: Dimension) -> str:
        text = judge_text(f"judge_{dimension.value}")
        return f"{text}\n{judge_text(f'judge_bands_{dimension.value}')}" if self.bands else text

    def system(self, agents: Sequence[str]) -> str:
        """Returns the instructions for judging ``agents``."""
        axes = self.axes
        return fill(
            judge_text("judge"),
            agents=", ".join(agents),
            dimensions="\n\n".join(_describe(axis) for axis in axes),
            form=_form(agents, axes),
        )

    def schema(self, agents: Sequence[str]) -> dict[str, Any]:
        """Returns the JSON schema of a verdict on ``agents``."""
        entries = {axis.name: _entry_schema(axis) for axis in self.axes}
        return closed_object({"verdicts": closed_object({agent: closed_object(entries) for agent in agents})})

    def prompt(self, document: Document, agents: Sequence[str]) -> Prompt:
        """Returns the question for a verdict on ``agents``."""
        system, closing, schema = _instructions(self, tuple(agents))
        return Prompt(system, document, closing, schema)

    @property
    def fingerprint(self) -> str:
        """A hash of the whole prompt except the episode (16 hex digits)."""
        return fingerprint(self.system(("agent",)), *map(judge_text, ("judge_data", "judge_closing", "judge_reask")))


@lru_cache(maxsize=256)
def _instructions(rubric: Rubric, agents: tuple[str, ...]) -> tuple[str, str, Mapping[str, Any]]:
    """The system message, the closing text and the schema, which are the same for all episodes with these agents."""
    closing = fill(judge_text("judge_closing"), agents=", ".join(agents))
    return rubric.system(agents), closing, rubric.schema(agents)


def fingerprint(*texts: str) -> str:
    """Returns a hash of the texts that a prompt is made of (16 hex digits)."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _describe(axis: Axis) -> str:
    text = fill(
        judge_text("judge_dimension"),
        name=axis.name,
        low=str(axis.low),
        high=str(axis.high),
        instruction=axis.instruction,
    )
    # Indented, so that no line of an instruction looks like the heading of another dimension.
    return text.replace("\n", "\n  ")


def _form(agents: Sequence[str], axes: Sequence[Axis]) -> str:
    entries = ", ".join(f'"{axis.name}": {{"reasoning": "…", "score": <{axis.low} to {axis.high}>}}' for axis in axes)
    return '{"verdicts": {' + ", ".join(f'"{agent}": {{{entries}}}' for agent in agents) + "}}"


def _entry_schema(axis: Axis) -> dict[str, Any]:
    score = {"type": "integer", "minimum": axis.low, "maximum": axis.high}
    return closed_object({"reasoning": {"type": "string"}, "score": score})


def closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
