"""Replications as data: the design of a published experiment, its figures on people, and how well these are supported.

Each YAML file in this folder is a :class:`Replication`. A figure is the mean of a number over choices, seats and
episodes; the file says how the number follows from what was chosen, so that a further experiment needs no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import Settings, read_settings
from sotopia_env.people.studies.settings import PERSON, PlayStudy

_FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))
"""The names of the replications."""
Read = Literal["abstract", "data", "reference", "second-hand"]
"""What a figure was read in: the abstract, the authors' data, a text on the experiment, or a work that cites it."""


class Publication(Settings):
    """A publication.

    Attributes:
        text: authors, year, and where it appeared.
        read: what the figures were read in.
        note: which text or file that was, and at which version.
    """

    text: str
    read: Read
    note: str = ""


class People(Settings):
    """What people did.

    Attributes:
        source: the name of a source of the file.
        mean: the published mean or share; ``None`` if only a range was published.
        low: the lower end of what was published with it.
        high: the upper end.
        interval: what the two ends are.
        count: a number of cases among how many, in place of a mean.
        sample: who and how many they were.
    """

    source: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    interval: str = ""
    count: tuple[int, int] | None = None
    sample: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mean is None and self.count is None and (self.low is None or self.high is None):
            raise InvalidValueError(field="mean", expected="a mean, a count, or both ends of a range")
        if (self.low is None) != (self.high is None) or (self.low is not None and not self.interval):
            raise InvalidValueError(field="interval", expected="both ends, and what they are", got=self.interval)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InvalidValueError(field="low", expected=f"at most high ({self.high:g})", got=self.low)
        if self.count is not None and not 0 <= self.count[0] <= self.count[1] != 0:
            raise InvalidValueError(field="count", expected="[cases, of how many]", got=list(self.count))
        return self


class ChoiceOf(Settings):
    """A condition on a round: the choice of a seat is one of the options with these indices."""

    seat: int = Field(ge=0)
    options: tuple[int, ...]


class Figure(Settings):
    """A mean, and what people did.

    Attributes:
        label: what it is, with its unit.
        people: the published figure; ``None`` if none is supported.
        at: the number of each option of the seat, by its index: ``[0, 1]`` is the share of its second option.
        share: whether the number is the amount chosen as a share of the highest one.
        lone: whether the number is the payoff of the one seat whose worth no other has (the mafioso).
        seats: the seats that count; empty for all.
        roles: the names of the roles of the seats that count; empty for all.
        rounds: the rounds that count.
        where: the range of parameters of the task for which the figure is.
        only: rounds that count.
    """

    label: str
    people: People | None = None
    at: tuple[float, ...] = ()
    share: bool = False
    lone: bool = False
    seats: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    rounds: Literal["all", "first", "last"] = "all"
    where: dict[str, tuple[float, float]] = Field(default_factory=dict)
    only: ChoiceOf | None = None

    @property
    def measured(self) -> bool:
        """Whether episodes have this figure; if not, it is published alone."""
        return bool(self.at) or self.share or self.lone


class PlayedDesign(Settings):
    """The episodes.

    Attributes:
        tasks: a source of tasks.
        level: their level.
        n: their number.
        repeats: how often each is played.
        policies: the policies that play unless others are named; each plays in all seats.
        mixed: whether policies also meet each other.
    """

    tasks: str
    level: str = "hard"
    n: int = Field(ge=1)
    repeats: int = Field(default=1, ge=1)
    policies: tuple[str, ...]
    mixed: bool = False


class Replication(Settings):
    """A published experiment as data.

    Attributes:
        title: what is played.
        design: the episodes.
        figures: by name.
        sources: by name.
        differs: what differs from the experiment: stakes, wording, repetition, people.
        instructions: what participants of a study read.
        seats: the number of conversations of a participant of a study.
    """

    title: str
    design: PlayedDesign
    figures: dict[str, Figure]
    sources: dict[str, Publication]
    differs: Annotated[tuple[str, ...], Field(min_length=1)]
    instructions: str
    per_person: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, figure in self.figures.items():
            if figure.people is not None and figure.people.source not in self.sources:
                field = f"figures.{name}.people.source"
                raise InvalidValueError(field=field, got=figure.people.source, valid=tuple(self.sources))
            if [bool(figure.at), figure.share, figure.lone].count(True) > 1:
                raise InvalidValueError(field=f"figures.{name}", expected="one of 'at', 'share' and 'lone'")
        return self

    def study(self, name: str, partner: str = PERSON) -> PlayStudy:
        """Returns the same design as a study, in which people take the seats.

        Args:
            name: the name of the study.
            partner: who takes the other seats; other participants by default.
        """
        return PlayStudy(
            name=name,
            title=self.title,
            instructions=self.instructions,
            tasks=self.design.tasks,
            level=self.design.level,
            n=self.design.n,
            repeats=self.design.repeats,
            partner=partner,
            per_person=self.per_person,
        )


def read_replication(name: str) -> Replication:
    """Returns a replication by its name, one of :data:`NAMES`, or from a YAML file of one's own.

    Raises:
        UnknownNameError: there is no such replication or file.
        InvalidValueError: the file does not describe one.
    """
    path = _FOLDER / f"{name}.yaml" if name in NAMES else Path(name)
    if name not in NAMES and path.suffix not in (".yaml", ".yml"):
        raise UnknownNameError(field="name", got=name, valid=NAMES, hint="or a YAML file of your own")
    return read_settings(path, Replication)


def citation(sources: Sequence[tuple[str, Publication]]) -> str:
    """Returns a line for each source: what it is, and what its figures were read in."""
    lines = (f"{name}: {one.text}; read in: {one.read}{f' ({one.note})' if one.note else ''}" for name, one in sources)
    return "\n".join(lines)
