"""Importer and writer of AgentSense's scenes, as tasks with interviews."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    check_distinct_names,
    converted,
    one_line,
)
from sotopia_env.importers.library import Library
from sotopia_env.importers.source import RawRecord
from sotopia_env.outcomes.amounts import fold
from sotopia_env.world.interview import Interview, Question, Role
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Seat, Task


class SceneGoal(Foreign):
    """A goal; the questions on whether it was reached are kept as extra fields."""

    goal: str


class SceneQuestion(Foreign):
    """A question about another character's private information; ``answer_label`` is the index of the right option."""

    question: str
    options: tuple[str, ...]
    answer_label: Identity


class SceneCharacter(Foreign):
    """A character with its goals."""

    name: str
    profile: Text = ""
    goals: tuple[SceneGoal, ...]
    private_info: Text = ""
    info_reason_questions: tuple[SceneQuestion, ...] = ()


class SceneRecord(Foreign):
    """A scene: one sample of a template."""

    sample_idx: Identity
    template_idx: Identity
    background: str
    description: Text = ""
    characters: tuple[SceneCharacter, ...]
    roles: dict[str, str] | None = None


def _check(scene: SceneRecord) -> None:
    names = [character.name for character in scene.characters]
    check_distinct_names(names)
    for name in scene.roles or {}:
        if name not in names:
            raise DamagedRecordError(field="roles", got=name, valid=names)
    for n, character in enumerate(scene.characters):
        for m, question in enumerate(character.info_reason_questions):
            label = question.answer_label
            if not label.isdigit() or int(label) >= len(question.options):
                raise DamagedRecordError(
                    field=f"characters.{n}.info_reason_questions.{m}.answer_label",
                    expected=f"the index of one of {len(question.options)} options, from 0",
                    got=label,
                )


def read(scene: SceneRecord, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a scene."""
    _check(scene)

    people = scene.characters
    task = converted(
        lambda: Task(
            id=f"{scene.template_idx}/{scene.sample_idx}",
            scenario=Scenario(
                id=scene.template_idx,
                context="\n".join(filter(None, (scene.background, scene.description))),
                seats=tuple(
                    Seat(goals=tuple(one_line(goal.goal) for goal in p.goals), private_info=one_line(p.private_info))
                    for p in people
                ),
                source="AgentSense",
                interview=_interview(scene),
            ),
            characters=tuple(_character(person) for person in people),
            relationships=tuple(
                Relationship(seats=pair, kind=RelationshipKind.STRANGER)
                for pair in itertools.combinations(range(len(people)), 2)
            ),
        )
    )
    yield Product(ProductKind.TASK, task)


def _interview(scene: SceneRecord) -> Interview:
    """The roles and questions of a scene; the files contain no domain and no types of goals."""
    people = scene.characters
    # Unknown roles are dropped. Roles go by seat, so they are usable only if every seat has one.
    roles = [Role(role) for person in people if (role := (scene.roles or {}).get(person.name)) in set(Role)]
    return Interview(
        template=scene.template_idx,
        roles=tuple(roles) if len(roles) == len(people) else (),
        questions=tuple(_questions(people)),
    )


def _questions(people: Sequence[SceneCharacter]) -> Iterator[Question]:
    """The questions whose subject is known: those in scenes where only one other character has private information."""
    for seat, person in enumerate(people):
        owners = [other for other, owner in enumerate(people) if other != seat and one_line(owner.private_info).strip()]
        for question in person.info_reason_questions:
            options = [one_line(option) for option in question.options]
            right = options.pop(int(question.answer_label))
            # Options must differ after folding: an answer is compared with them case-insensitively.
            if len(owners) == 1 and len({fold(option) for option in (right, *options)} - {""}) == len(options) + 1 > 1:
                text = one_line(question.question)
                yield Question(about=owners[0], text=text, answer=right, wrong=tuple(options), asked=(seat,))


def _character(person: SceneCharacter) -> Character:
    first, _, last = person.name.partition(" ")
    return Character(
        first_name=first, last_name=last, gender="", pronouns="", occupation="", public_info=one_line(person.profile)
    )


def _scene(task: Task) -> dict[str, Any]:
    background, _, description = task.scenario.context.partition("\n")
    interview = task.scenario.interview
    roles = () if interview is None else interview.roles
    questions = () if interview is None else interview.questions
    return {
        "sample_idx": task.id.rpartition("/")[2],
        "template_idx": task.scenario.id,
        "background": background,
        "description": description,
        "characters": [
            {
                "name": character.name,
                "profile": character.public_info,
                "goals": [{"goal": goal} for goal in seat.goals],
                "private_info": seat.private_info or None,
                "info_reason_questions": [
                    _question(question) for question in questions if number in question.asked_seats(len(task.agents))
                ],
            }
            for number, (character, seat) in enumerate(zip(task.characters, task.scenario.seats, strict=True))
        ],
        **({"roles": dict(zip(task.names.values(), roles, strict=True))} if roles else {}),
    }


def _question(question: Question) -> dict[str, Any]:
    """The foreign record of a question."""
    # Sorted, so that the position of the right option carries no information.
    options = sorted((question.answer, *question.wrong))
    return {"question": question.text, "options": options, "answer_label": str(options.index(question.answer))}


SCENES = Format(
    "agentsense",
    "AgentSense scenes",
    ProductKind.TASK,
    SceneRecord,
    read,
    _scene,
)
