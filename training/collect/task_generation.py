"""What an agent trains on: tasks that are generated, cast, and never those that are kept for evaluation.

Scenarios come from verified families, from a language model (:mod:`training.collect.task_writer`), or from a file;
each is played by several casts (:mod:`training.collect.casting`). SOTOPIA-π (arXiv 2403.08715, section 4 and B.1) has
100 scenarios and ten pairs of characters a round, and no scenario that is also evaluated.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sotopia_env import tasks
from sotopia_env.chat_model import ChatModel
from sotopia_env.errors import InvalidValueError
from sotopia_env.files import write_text_atomically
from sotopia_env.naming.task_sources import task_set
from sotopia_env.world.scenario import Scenario, Task
from sotopia_env.world.taskset import TaskSet
from training.collect.casting import DRAWN, cast_scenarios, read_cast
from training.collect.task_writer import SCENARIOS, TaskWriter, WriterSettings, Written
from training.data.held_out import OpenScenario, task_key
from training.stage.access import ModelAccess, opened
from training.stage.directory import StageDirectory
from training.stage.settings import Settings

logger = logging.getLogger(__name__)
TASKS, FACTS = "tasks.jsonl", "tasks.json"


class TaskSource(Settings):
    """Tasks that are there, or that a family makes.

    Attributes:
        source: ``starter``, families joined by commas, ``all`` of them, or a ``.json`` or ``.jsonl`` file.
        n: how many; by default all that are there, or 5 of each family.
        level: difficulty of generated tasks.
        seed: of generated tasks, or of the draw.
        split: only these of them, split by scenario.
    """

    source: str
    n: int | None = Field(default=None, ge=1)
    level: str = "medium"
    seed: int = Field(default=0, ge=0)
    split: Literal["train", "dev", "test"] | None = None

    def load(self) -> TaskSet:
        """Returns the tasks.

        Raises:
            InvalidValueError: there are not so many, or none in this split.
            UnknownNameError: no family and no file is called so.
            InvalidTaskError: the file cannot be read as tasks.
        """
        found = task_set(self.source, self.n, self.seed, self.level)
        if self.split is not None:
            found = found.split(self.split)
        if not len(found):
            raise InvalidValueError(f"tasks: {self.source!r} has none in the split {self.split!r}")
        return found


class FamilySettings(Settings):
    """Scenarios of verified families, which take turns.

    Attributes:
        names: of the families.
        level: difficulty.
        seed: of their sequences.
        start: index of the first scenario in each family's sequence; a later round begins where one ended.
    """

    names: tuple[str, ...] = Field(default=("bargaining",), min_length=1)
    level: str = "medium"
    seed: int = Field(default=0, ge=0)
    start: int = Field(default=0, ge=0)


class TaskSettings(Settings):
    """The tasks of a round.

    Attributes:
        scenarios: how many. With both ``families`` and ``writer`` each gives half.
        pairs: casts of every scenario; 0 keeps the people that a family or a file seats.
        families: scenarios of verified families.
        writer: scenarios that a language model writes.
        given: tasks that are there; all of them, instead of the other two.
        cast: who plays: ``drawn`` people, the ``starter`` cast, or a JSON file with a cast.
        seed: of casts and of the order of inspirations.
        evaluation: what is kept for evaluation. No scenario of it is trained on, whoever plays it.
        earlier: tasks of earlier rounds. No scenario of them is taken or made again.
        access: how the writing model is reached.
    """

    scenarios: int = Field(default=100, ge=1)
    pairs: int = Field(default=10, ge=0)
    families: FamilySettings | None = None
    writer: WriterSettings | None = None
    given: TaskSource | None = None
    cast: str = DRAWN
    seed: int = Field(default=0, ge=0)
    evaluation: tuple[TaskSource, ...] = ()
    earlier: tuple[TaskSource, ...] = ()
    access: ModelAccess = ModelAccess()


class TaskGenerationSettings(TaskSettings):
    """The tasks of a round, as a stage of its own.

    Attributes:
        output: the stage's directory.
    """

    output: str


def run(settings: TaskGenerationSettings, model: ChatModel | None = None) -> None:
    """Writes ``tasks.jsonl``; continues what was interrupted, and does nothing if that is done.

    Args:
        settings: of the stage.
        model: asked instead of the one that ``writer.model`` names.

    Raises:
        InvalidValueError: see :func:`make_tasks`.
    """
    stage = StageDirectory(Path(settings.output), "task_generation", settings)
    stage.open()
    if stage.figures is not None:
        logger.info("%s is complete: nothing to do", settings.output)
        return
    make_tasks(settings, stage.path, model)
    facts = json.loads((stage.path / FACTS).read_text(encoding="utf-8"))
    logger.info("%s", ", ".join(f"{name}: {value}" for name, value in facts.items()))
    stage.finish(facts)


def scenario_keys(sources: Iterable[TaskSource]) -> dict[str, str]:
    """Returns the scenarios of tasks that are there: :func:`~training.data.held_out.task_key` to the id of a task."""
    return {task_key(task): task.id for source in sources for task in source.load()}


def make_tasks(settings: TaskSettings, folder: Path, model: ChatModel | None = None) -> TaskSet:
    """Returns the tasks of a round, made once and then read from ``folder``.

    Args:
        settings: what tasks.
        folder: ``tasks.jsonl``, ``tasks.json`` (how many of what) and ``scenarios.jsonl`` (by a model) go there.
        model: asked instead of the one that ``writer.model`` names.

    Raises:
        InvalidValueError: not one source of tasks is named, or all that there is, is kept for evaluation.
        ConstraintError: nobody can sit in a scenario's seats.
        SotopiaError: the model cannot be asked.
    """
    file = folder / TASKS
    if file.is_file():
        return TaskSet.load(file)
    folder.mkdir(parents=True, exist_ok=True)
    kept = scenario_keys(settings.evaluation)
    if settings.given is not None:
        made, facts = _given(settings, kept)
    else:
        made, facts = _generated(settings, folder, kept, model)
    check_not_evaluated(made, kept)
    write_text_atomically(folder / FACTS, json.dumps({**facts, "tasks": len(made)}, indent=2) + "\n")
    made.save(file)
    return made


def check_not_evaluated(made: TaskSet, kept: Mapping[str, str]) -> None:
    """Raises :class:`InvalidValueError` if one of the tasks has a scenario that is kept for evaluation."""
    for task in made:
        if (key := task_key(task)) in kept:
            raise InvalidValueError(f"task {task.id!r}: its scenario is kept for evaluation (task {kept[key]!r})")


def _given(settings: TaskSettings, kept: Mapping[str, str]) -> tuple[TaskSet, dict[str, Any]]:
    assert settings.given is not None
    if settings.families is not None or settings.writer is not None:
        raise InvalidValueError("tasks: expected 'given', or 'families' and 'writer', got both")
    found = settings.given.load()
    allowed = [task for task in found if task_key(task) not in kept]
    if not allowed:
        raise InvalidValueError(f"tasks: all {len(found)} of {settings.given.source!r} are kept for evaluation")
    earlier = scenario_keys(settings.earlier)
    usable = [task for task in allowed if task_key(task) not in earlier]
    if not usable:
        raise InvalidValueError(f"tasks: earlier rounds have used all that {settings.given.source!r} has left")
    facts = {"scenarios": len({task_key(task) for task in usable}), "kept_for_evaluation": len(found) - len(allowed)}
    if not settings.pairs:
        return TaskSet(usable), facts
    return _cast(settings, list({task_key(task): OpenScenario.of(task) for task in usable}.values())), facts


def _generated(
    settings: TaskSettings, folder: Path, kept: Mapping[str, str], model: ChatModel | None
) -> tuple[TaskSet, dict[str, Any]]:
    if settings.families is None and settings.writer is None:
        raise InvalidValueError("tasks: expected 'families', 'writer' or 'given', got none of them")
    share = settings.scenarios if settings.families is None else settings.scenarios // 2
    written = _written(settings, share, folder, model) if settings.writer is not None else []
    open_scenarios = [OpenScenario(item.scenario) for item in written if item.scenario is not None]
    facts: dict[str, Any] = {"written": _written_facts(written)} if settings.writer is not None else {}
    if settings.families is not None:
        earlier = scenario_keys(settings.earlier)
        seated, left_out = family_tasks(settings.families, settings.scenarios - len(open_scenarios), kept, earlier)
        facts |= {"families": len(seated), "kept_for_evaluation": left_out}
        open_scenarios = [*(OpenScenario.of(task) for task in seated), *open_scenarios]
        if not settings.pairs:
            if len(open_scenarios) > len(seated):
                raise InvalidValueError("pairs: expected at least 1, got 0: nobody is seated in what a model writes")
            return seated, {"scenarios": len(seated), **facts}
    if not open_scenarios:
        raise InvalidValueError(f"tasks: {len(written)} inspirations gave no scenario; {folder}/{SCENARIOS} says why")
    return _cast(settings, open_scenarios), {"scenarios": len(open_scenarios), **facts}


def _written_facts(written: Iterable[Written]) -> dict[str, Any]:
    made = Counter(item.source for item in written if item.scenario is not None)
    return {"by_source": dict(sorted(made.items())), "failed": sum(item.scenario is None for item in written)}


def _cast(settings: TaskSettings, open_scenarios: Collection[OpenScenario]) -> TaskSet:
    return cast_scenarios(open_scenarios, read_cast(settings.cast), max(1, settings.pairs), settings.seed)


def family_tasks(
    settings: FamilySettings, n: int, kept: Collection[str], earlier: Iterable[str] = ()
) -> tuple[TaskSet, int]:
    """Returns ``n`` tasks of different scenarios, and how many were left out for evaluation on the way.

    Args:
        settings: which families.
        n: how many tasks.
        kept: scenarios for evaluation.
        earlier: scenarios that earlier rounds had.

    Raises:
        UnknownNameError: a family or the level does not exist.
        InvalidValueError: the families do not make so many different ones.
    """
    found: list[Task] = []
    seen = set(earlier)
    left_out = 0
    for index in itertools.count():
        if len(found) == n:
            return TaskSet(found), left_out
        if index > 20 * n + 100:
            raise InvalidValueError(
                f"families: expected {n} different scenarios outside evaluation, found {len(found)}"
            )
        turn, number = divmod(index, len(settings.names))
        task = tasks.generate(settings.names[number], 1, settings.seed, settings.level, settings.start + turn)[0]
        key = task_key(task)
        left_out += key in kept
        if key not in kept and key not in seen:
            seen.add(key)
            found.append(task)
    raise AssertionError("counting ends above")


def _written(settings: TaskSettings, n: int, folder: Path, model: ChatModel | None) -> list[Written]:
    assert settings.writer is not None
    taken = [task.scenario for source in (*settings.evaluation, *settings.earlier) for task in source.load()]
    if model is not None:
        written = asyncio.run(_ask(model, settings.writer, n, folder, settings.seed, taken))
    else:
        written = asyncio.run(_connect_and_ask(settings, n, folder, taken))
    made = sum(item.scenario is not None for item in written)
    if made < n:
        logger.warning("the inspirations gave %d of %d scenarios", made, n)
    return written


async def _connect_and_ask(settings: TaskSettings, n: int, folder: Path, taken: list[Scenario]) -> list[Written]:
    assert settings.writer is not None
    models = settings.access.models()
    model = models(settings.writer.model)
    async with opened(models, folder):
        return await _ask(model, settings.writer, n, folder, settings.seed, taken)


async def _ask(
    model: ChatModel, settings: WriterSettings, n: int, folder: Path, seed: int, taken: Iterable[Scenario]
) -> list[Written]:
    writer = TaskWriter(model, settings)
    writer.know(taken)
    return await writer.write(n, folder, seed)


__all__ = [
    "TASKS",
    "FamilySettings",
    "TaskGenerationSettings",
    "TaskSettings",
    "TaskSource",
    "check_not_evaluated",
    "family_tasks",
    "make_tasks",
    "run",
    "scenario_keys",
]
