"""The tasks of the study: those of families, with people of a few short names.

A tiny model has to read who is who. It learns to copy a dozen names, each of which is one token, within minutes, and
the thousands of the families within hours. Test tasks differ from all others in what counts: in the names, roles,
options and payoffs together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from pydantic import Field
from sotopia_training.stage.directory import StageDirectory

from sotopia_env import tasks
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.settings import Settings
from sotopia_env.world import Task, TaskSet


class Source(Settings):
    """Tasks of one family.

    Attributes:
        family: the name of the family.
        level: the level.
        n: the number of tasks; of a test set, at most.
        seed: the seed of the tasks and of the names.
        test: whether tasks that are equal to one of another set, in what counts, are left out.
    """

    family: str
    level: str
    n: int = Field(ge=1)
    seed: int = Field(ge=0)
    test: bool = False


class TasksSettings(Settings):
    """Settings of the stage.

    Attributes:
        names: the names of people.
        sets: the sets by name; those of tests come last.
        most: the maximum number of tasks of a set; ``None`` for no limit.
        output: the directory, with a file for each set.
    """

    names: tuple[str, ...] = Field(min_length=5)
    sets: dict[str, Source]
    most: int | None = Field(default=None, ge=1)
    output: str


def run(settings: TasksSettings) -> None:
    """Writes the sets; does nothing if they exist."""
    stage = StageDirectory(Path(settings.output), "social_learning_tasks", settings)
    if stage.is_complete():
        return
    stage.open()
    sizes: dict[str, int] = {}
    for name, drawn in task_sets(settings).items():
        TaskSet(drawn).save(stage.path / f"{name}.jsonl")
        sizes[name] = len(drawn)
    stage.finish(sizes)


def task_sets(settings: TasksSettings) -> Mapping[str, list[Task]]:
    """Returns the tasks of each set."""
    contents = set[str]()
    result: dict[str, list[Task]] = {}
    for name, source in settings.sets.items():
        drawn = list(_drawn(source, settings))
        result[name] = [task for task in drawn if not (source.test and content(task) in contents)]
        contents |= {content(task) for task in drawn}
    return result


def content(task: Task) -> str:
    """Returns what counts in a task as JSON, without texts that change nothing."""
    return task.scenario.model_dump_json(include={"outcome", "facts"})


def _drawn(source: Source, settings: TasksSettings) -> Iterator[Task]:
    n = source.n if settings.most is None else min(source.n, settings.most)
    rng = Random(f"names {source.seed}")
    for task in tasks.generate([source.family], n, source.seed, source.level):
        yield renamed(task, rng.sample(settings.names, len(task.agents)))


def renamed(task: Task, names: list[str]) -> Task:
    """Returns the task with other names of its people, in the order of seats, wherever they occur."""
    text = task.model_dump_json()
    for character, new in zip(task.characters, names, strict=True):
        text = text.replace(f"{character.first_name} {character.last_name}", new)
    values = decode_json(text)
    for character, new in zip(values["characters"], names, strict=True):
        character |= {"first_name": new, "last_name": ""}
    return Task.model_validate(values)
