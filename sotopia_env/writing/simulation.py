"""Simulations from one sentence (SOTOPIA-S4 §3.1), with people, goals, turn order, outcome and custom dimensions.

The result is the content of a YAML file for ``sotopia rollout --tasks``: a task, the rules of play, and the dimensions
of a judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.prompts import reader
from sotopia_env.foundation.records import Name
from sotopia_env.foundation.validation import invalid
from sotopia_env.outcomes import OutcomeSpec
from sotopia_env.world import Character, Relationship, Scenario, Seat, Task
from sotopia_env.world.reward import CustomDimension
from sotopia_env.world.scenario import RelationshipKind
from sotopia_env.world.turn_order import TurnOrder
from sotopia_env.writing.drafting import DraftQuestion, Trusted
from sotopia_env.writing.kinds import check_task, checked_rules

load = reader(__package__)

_RULES = {"turn_order", "max_silent_turns", "end_when_settled"}
_SCENARIO = ("id", "context", "seats", "private_messages", "max_turns", "outcome")
_MOST_SEATS = 8


class SimulationDraft(BaseModel):
    """A simulation in the format of the model's answer."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[Name, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    context: Annotated[str, Field(min_length=40, max_length=2000)]
    characters: Annotated[tuple[Character, ...], Field(min_length=2, max_length=_MOST_SEATS)]
    seats: tuple[Seat, ...]
    relationships: tuple[Relationship, ...]
    private_messages: bool = False
    turn_order: TurnOrder = TurnOrder.ROUND_ROBIN
    max_turns: Annotated[int, Field(ge=2, le=500)] = 20
    max_silent_turns: Annotated[int | None, Field(ge=0)] = None
    end_when_settled: bool = True
    dimensions: tuple[CustomDimension, ...] = ()
    outcome: OutcomeSpec | None = None

    def content(self) -> dict[str, Any]:
        """Returns the content of a YAML task file.

        Raises:
            InvalidValueError: the parts contradict each other, or the task cannot be played and scored.
        """
        names = [dimension.name for dimension in self.dimensions]
        if len(set(names)) != len(names):
            raise InvalidValueError(field="dimensions", expected="different names", got=names)
        task = self._task()
        check_task(task)
        content: dict[str, Any] = {
            "tasks": [plain_task(task)],
            "rules": self.model_dump(mode="json", include=_RULES, exclude_none=True),
        }
        return content | ({"dimensions": [one.model_dump(mode="json") for one in self.dimensions]} if names else {})

    def _task(self) -> Task:
        fields = {name: getattr(self, name) for name in _SCENARIO}
        try:
            scenario = Scenario(**fields, source="drafted", tags=("drafted",))
            return Task(id=self.id, scenario=scenario, characters=self.characters, relationships=self.relationships)
        except ValidationError as error:
            raise invalid(error) from None


def plain_task(task: Task) -> dict[str, Any]:
    """Returns a task as a person would write it: without default values, and with the outcome as an object."""
    # An outcome is a JSON text in records; here it becomes a mapping that can be edited in YAML.
    content = task.model_dump(mode="json", exclude_defaults=True)
    if task.scenario.outcome is not None:
        content["scenario"]["outcome"] = task.scenario.outcome.model_dump(mode="json")
    return content


def simulation_question(sentence: str) -> DraftQuestion[SimulationDraft]:
    """Returns the question whose result is the content of a YAML task file.

    Raises:
        InvalidValueError: the sentence is empty.
    """
    if not sentence.strip():
        raise InvalidValueError(field="sentence", expected="a sentence that says who meets and why", got=sentence)

    def accept(draft: SimulationDraft) -> Mapping[str, Any]:
        return draft.content()

    values = {
        "relationships": Trusted(", ".join(kind.value for kind in RelationshipKind)),
        "outcome": Trusted(load("write_scenario_outcome")),
        "rules": checked_rules(),
        "sentence": sentence,
    }
    return DraftQuestion("sentence", sentence, "write_simulation", SimulationDraft, accept, values)
