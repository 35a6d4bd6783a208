"""Templates: scenarios whose seats are slots for drawn people (AgentSense §3; one profile per instance).

In every text of a template, ``{0}`` is the first name of the character in seat 0. A template is validated when it is
built, with markers in place of the names, so that no instance can fail. The shipped templates are read on first use.
"""

from __future__ import annotations

import importlib.resources
import itertools
import random
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from sotopia_env.foundation.errors import InvalidValueError, Verbatim, check_whole
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.records import JsonObject, Line, Name, Record
from sotopia_env.foundation.validation import invalid
from sotopia_env.tasks.forms import MARKER, RecordForm, with_markers
from sotopia_env.tasks.people import NameStock, draw_people
from sotopia_env.world.interview import Domain, GoalTest, GoalType, Question, Role, Text
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.scenario import ADULT, Relationship, RelationshipKind, Scenario, Task
from sotopia_env.world.taskset import FIELD_NAMES, TaskSet, casting_id

PROFILES = 5
"""Number of instances of each shipped template (AgentSense §3)."""
_FILES = ("everyday_templates_1.json", "everyday_templates_2.json")
_SLOT = re.compile(r"\{([^{}]*)\}|[{}]")
_RETIRED_FROM = 50  # authors may set a lower age than that of drawn people (``procedural.RETIRED_FROM``)

_SAME_FIELDS = {"id", "context", "max_turns", "private_messages", "tags", "source", "dimensions"}
"""Fields that a scenario takes from its template unchanged, apart from names."""

Bounds = tuple[int, int]
"""The lowest and the highest value."""


class SlotGoal(Record):
    """A goal of a slot, with its type."""

    text: Text
    type: GoalType


class TemplateSlot(Record):
    """One seat of a template: the rules for drawing its character, and the character's goals and information.

    Attributes:
        role: whether the seat's primary goal is to share something, or to receive it and react.
        ages: lowest and highest age of the character.
        occupations: the occupations to choose from; each must fit the situation and the ages.
        goals: the seat's goals, with their types.
        hints: hints, as in :class:`~sotopia_env.world.scenario.Seat`.
        private_info: information of this seat only; the questions are about it.
    """

    role: Role
    ages: tuple[Annotated[int, Field(ge=0, le=150)], Annotated[int, Field(ge=0, le=150)]]
    occupations: tuple[Text, ...] = Field(min_length=1)
    goals: tuple[SlotGoal, ...] = Field(min_length=1)
    hints: tuple[Line, ...] = ()
    private_info: Line = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.ages
        if low > high:
            raise InvalidValueError(field="ages", expected="[low, high] with low <= high", got=list(self.ages))
        retired = [occupation for occupation in self.occupations if occupation.casefold().startswith("retired")]
        if retired and low < _RETIRED_FROM:
            raise InvalidValueError(
                field="occupations",
                expected=f"ages from {_RETIRED_FROM} with {retired[0]!r}",
                got=Verbatim(f"from {low}"),
            )
        return self


class Tie(Relationship):
    """The relationship of two seats; ``age_gap`` bounds the age of the second seat minus the age of the first."""

    age_gap: Bounds | None = None


class Template(Record):
    """A scenario with slots for 3 or more people; :func:`instantiate` makes tasks from it.

    Attributes:
        id: id of the template, and of the scenario of every instance.
        domain: social domain of the situation.
        context: the situation in words.
        seats: the slots, in seat order.
        ties: the relationships, one for every pair of seats.
        questions: questions about private information.
        goal_tests: tests of goals that the outcome decides.
        outcome: an :class:`~sotopia_env.outcomes.OutcomeSpec` as JSON, which may contain names.
        max_turns: limit on the turns of an episode; ``None`` uses the environment's limit.
        private_messages: whether an action may be addressed to some of the other seats only.
        tags: tags of the scenario.
        source: source of the scenario.
        dimensions: what judges score beyond the seven dimensions.
    """

    id: Name
    domain: Domain
    context: str
    seats: tuple[TemplateSlot, ...] = Field(min_length=3)
    ties: tuple[Tie, ...]
    questions: tuple[Question, ...] = ()
    goal_tests: tuple[GoalTest, ...] = ()
    outcome: JsonObject | None = None
    max_turns: int | None = None
    private_messages: bool = False
    tags: tuple[Line, ...] = ()
    source: Line = ""
    dimensions: tuple[CustomDimension, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        pairs, expected = [tie.seats for tie in self.ties], list(itertools.combinations(range(len(self.seats)), 2))
        if sorted(pairs) != expected:
            raise InvalidValueError(field="ties", expected=f"one for each of {expected}", got=pairs)
        _check_names(self)
        _check_ages(self)
        # The scenario is validated once for all instances: any name is as valid as a marker.
        raw = with_markers(self._scenario_form())
        try:
            Scenario.model_validate(raw)
        except ValidationError as error:
            problem = invalid(error, FIELD_NAMES, raw)
            raise InvalidValueError.of(problem, field=problem.field.removeprefix("interview.")) from None
        return self

    @cached_property
    def form(self) -> RecordForm[Scenario]:
        """A factory of an instance's scenario from the first names of its characters."""
        return RecordForm(Scenario.model_validate(with_markers(self._scenario_form())))

    @cached_property
    def tie_forms(self) -> tuple[RecordForm[Relationship], ...]:
        """Factories of an instance's relationships from the first names of its characters."""
        ties = (with_markers(tie.model_dump(exclude={"age_gap"})) for tie in self.ties)
        return tuple(RecordForm(Relationship.model_validate(tie)) for tie in ties)

    def _scenario_form(self) -> dict[str, Any]:
        interview = self.model_dump(mode="json", include={"domain", "questions", "goal_tests"})
        return {
            **self.model_dump(mode="json", include=_SAME_FIELDS),
            "seats": [
                {"goals": [goal.text for goal in slot.goals], "hints": slot.hints, "private_info": slot.private_info}
                for slot in self.seats
            ],
            "constraints": {
                "ages": [slot.ages for slot in self.seats],
                "occupations": [slot.occupations for slot in self.seats],
            },
            "outcome": self.outcome,
            "interview": {
                **interview,
                "template": self.id,
                "roles": [slot.role for slot in self.seats],
                "goal_types": [[goal.type for goal in slot.goals] for slot in self.seats],
            },
        }

    @cached_property
    def names(self) -> NameStock:
        """The available names for its characters: all that are not a word of its texts."""
        return NameStock.without(word for _, text in _texts(self) for word in re.findall(r"\w+", text))

    @cached_property
    def age_limits(self) -> list[list[int]]:
        """The maximum of seat ``j``'s age minus seat ``i``'s at ``[i][j]``; the last index is a person of age 0."""
        seats = len(self.seats)
        limits = [[0 if i == j else 150 for j in range(seats + 1)] for i in range(seats + 1)]
        for seat, slot in enumerate(self.seats):
            limits[seat][seats], limits[seats][seat] = -slot.ages[0], slot.ages[1]
        for tie in self.ties:
            if tie.age_gap is not None:
                first, second = tie.seats
                limits[second][first], limits[first][second] = -tie.age_gap[0], tie.age_gap[1]
        # Shortest paths (Floyd-Warshall) make the difference constraints complete: seats that are drawn one by one
        # within them never reach a dead end. A negative entry on the diagonal means that they contradict each other.
        for via, i, j in itertools.product(range(seats + 1), repeat=3):
            limits[i][j] = min(limits[i][j], limits[i][via] + limits[via][j])
        return limits


def _texts(template: Template) -> Iterator[tuple[str, str]]:
    """Every text with its path in the template."""
    return _texts_in(template.model_dump(), "")


def _texts_in(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text in ``value`` with its path; a key of an object has the path of the object."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield where, key
            yield from _texts_in(part, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from _texts_in(part, f"{where}.{index}")


def _check_names(template: Template) -> None:
    numbers = [str(seat) for seat in range(len(template.seats))]
    for where, text in _texts(template):
        for match in _SLOT.finditer(text):
            if match.group(1) not in numbers:
                expected = f"{{0}} to {{{numbers[-1]}}} for the names of the characters"
                raise InvalidValueError(field=where, expected=expected, got=match.group())
        if marker := MARKER.search(text):
            raise InvalidValueError(
                field=where, expected=f"a word other than {marker.group()!r}, which is a placeholder for a name"
            )
    most = min(len(template.names.firsts), len(template.names.lasts))
    if len(numbers) > most:
        raise InvalidValueError(
            field="seats",
            expected=f"at most {most}, the number of names that do not occur in the texts",
            got=len(numbers),
            hint="remove some of the names from the texts",
        )


def _check_ages(template: Template) -> None:
    for index, tie in enumerate(template.ties):
        if tie.kind is RelationshipKind.ROMANTIC and (low := min(template.seats[i].ages[0] for i in tie.seats)) < ADULT:
            raise InvalidValueError(
                field=f"ties.{index}.kind",
                expected=f"{tie.kind.value!r} between people aged {ADULT} or older",
                got=Verbatim(f"ages from {low}"),
                hint=f"raise the ages of seats {tie.seats[0]} and {tie.seats[1]}, or choose another kind",
            )
        if tie.age_gap is None:
            continue
        (low, high), (first, second) = tie.age_gap, (template.seats[seat].ages for seat in tie.seats)
        if low > high or second[1] - first[0] < low or second[0] - first[1] > high:
            raise InvalidValueError(
                field=f"ties.{index}.age_gap",
                expected=f"a gap that is possible for ages {list(first)} and {list(second)} of seats {list(tie.seats)}",
                got=[low, high],
                hint="widen one of them",
            )
    if any(template.age_limits[seat][seat] < 0 for seat in range(len(template.seats) + 1)):
        raise InvalidValueError(
            field="ties", expected="age gaps that are compatible with each other and the seats' ages", hint="widen one"
        )


def instantiate(template: Template, number: int, seed: int) -> Task:
    """Returns an instance of a template, with drawn people in its slots and their names in its texts.

    Equal arguments give equal tasks; the id is ``template/number``. Ages, age gaps and occupations meet the template's
    rules, and no character has a name that occurs in its texts.

    Args:
        template: the template.
        number: number of the instance in the sequence, from 0.
        seed: seed of the sequence, from 0.

    Raises:
        InvalidValueError: ``number`` or ``seed`` is not a non-negative integer.
        InvalidTaskError: the task's id would be too long.
    """
    check_whole("number", number, 0)
    check_whole("seed", seed, 0)
    rng = random.Random(f"{template.id} {seed} {number}")
    jobs = [rng.choice(slot.occupations) for slot in template.seats]
    characters = draw_people(rng, _draw_ages(rng, template), jobs, template.names)
    names = [character.first_name for character in characters]
    return Task(
        id=casting_id(template.id, number),
        scenario=template.form.filled(names),
        characters=characters,
        relationships=tuple(form.filled(names) for form in template.tie_forms),
    )


def _draw_ages(rng: random.Random, template: Template) -> list[int]:
    """Draws the ages seat by seat, each within the limits that the earlier ones leave.

    The range is never empty, because the limits are complete (:attr:`Template.age_limits`).
    """
    limits, base = template.age_limits, len(template.seats)
    ages = {base: 0}  # the person of age 0, whose limits are the seats' own ranges
    for seat in range(base):
        low = max(age - limits[seat][other] for other, age in ages.items())
        high = min(age + limits[other][seat] for other, age in ages.items())
        ages[seat] = rng.randint(low, high)
    return [ages[seat] for seat in range(base)]


TEMPLATE_FIELDS = sorted(
    {*FIELD_NAMES, *(name for model in (Template, TemplateSlot, SlotGoal, Tie) for name in model.model_fields)}
)
"""The names of all fields in files of templates and tasks, from which misspelt names are corrected."""


@lru_cache(maxsize=1)
def everyday_templates() -> tuple[Template, ...]:
    """Returns the shipped templates: everyday situations of three to five people."""
    texts = [importlib.resources.files("sotopia_env").joinpath("data", name).read_text("utf-8") for name in _FILES]
    return tuple(Template.model_validate(item) for text in texts for item in decode_json(text))


@lru_cache(maxsize=1)
def everyday_group_tasks() -> TaskSet:
    """Returns the tasks of the shipped templates, five instances each, always the same ones."""
    return TaskSet([instantiate(template, n, 0) for template in everyday_templates() for n in range(PROFILES)])
