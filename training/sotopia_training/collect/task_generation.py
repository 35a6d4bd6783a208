"""Training tasks: generation and casting of scenarios that are not reserved for evaluation.

Scenarios come from verified families, from a language model (:mod:`sotopia_env.writing`), or from a file; each
has several casts (:mod:`sotopia_env.tasks.casting`). SOTOPIA-π (arXiv 2403.08715, section 4 and B.1) uses 100 scenarios
and ten pairs of characters per round, and does not train on evaluation scenarios.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sotopia_env import tasks
from sotopia_env.chat_model import ChatModel
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.evaluators.judge.question import Manner
from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.foundation.json_text import read_json
from sotopia_env.foundation.settings import Settings
from sotopia_env.naming import task_set
from sotopia_env.tasks import read_cast
from sotopia_env.tasks.casting import DRAWN, cast_scenarios
from sotopia_env.tasks.open_scenario import OpenScenario, task_key
from sotopia_env.world import Scenario, Task, TaskSet
from sotopia_env.writing import Writer
from sotopia_env.writing.drafting import Drafter, Written
from sotopia_env.writing.inspirations import read_inspirations
from sotopia_env.writing.kinds import ScenarioWriting
from sotopia_env.writing.writer import count
from sotopia_training.data.held_out import check_not_reserved
from sotopia_training.stage.access import opened
from sotopia_training.stage.directory import StageDirectory

logger = logging.getLogger(__name__)
TASKS, FACTS, SCENARIOS = "tasks.jsonl", "tasks.json", "scenarios.jsonl"
_MOST_TOKENS = 1024  # of a written scenario


def _source(value: Any) -> Any:
    if isinstance(value, dict):
        raise InvalidValueError(expected="a name with options, such as 'bargaining:n=20,seed=7'", got=value)
    return value


SourceName = Annotated[str, BeforeValidator(_source)]
"""A source of tasks by name, as on a command line; see :func:`sotopia_env.naming.task_set`."""


class FamilySettings(Settings):
    """Settings of scenarios from verified families, which take turns.

    Attributes:
        names: the names of the families.
        seed: the seed of the families' sequences.
    """

    names: tuple[str, ...] = Field(default=("bargaining",), min_length=1)
    seed: int = Field(default=0, ge=0)


class WriterSettings(Settings):
    """The writing model and its inspirations.

    Attributes:
        model: the name of the model, ``PROVIDER/MODEL``.
        inspirations: files: ``.txt`` with one per line (the file's name is the source), or ``.jsonl`` of objects with
            ``source`` and ``text``.
        used: files of inspirations that are not used again, e.g. a ``scenarios.jsonl`` of an earlier round.
    """

    model: str
    inspirations: tuple[str, ...] = Field(min_length=1)
    used: tuple[str, ...] = ()


class TaskSettings(Settings):
    """The tasks of a round.

    Attributes:
        scenarios: the number of scenarios; with both ``families`` and ``writer``, each contributes half.
        pairs: casts per scenario; 0 keeps the characters of the family or file.
        families: scenarios of verified families.
        writer: scenarios written by a language model.
        given: existing tasks, instead of the other two; this, ``evaluation`` and ``earlier`` are names such as
            ``bargaining:level=hard,n=20,seed=7``, or files.
        cast: source of the characters: ``drawn``, the ``starter`` or ``everyday`` cast, or a JSON file with a cast.
        seed: the seed of the casts and of the order of inspirations.
        evaluation: tasks reserved for evaluation; their scenarios are never trained on, with any characters.
        earlier: tasks of earlier rounds; their scenarios are not used again.
        models: the access to the writing model.
    """

    scenarios: int = Field(default=100, ge=1)
    pairs: int = Field(default=10, ge=0)
    families: FamilySettings | None = None
    writer: WriterSettings | None = None
    given: SourceName | None = None
    cast: str = DRAWN
    seed: int = Field(default=0, ge=0)
    evaluation: tuple[SourceName, ...] = ()
    earlier: tuple[SourceName, ...] = ()
    models: ModelOptions = ModelOptions()


class TaskGenerationSettings(TaskSettings):
    """The tasks of a round, as a stage.

    Attributes:
        output: the stage's directory.
    """

    output: str


def run(settings: TaskGenerationSettings, model: ChatModel | None = None) -> None:
    """Writes ``tasks.jsonl``; continues an interrupted stage, and does nothing if it is complete.

    Args:
        settings: the settings of the stage.
        model: used instead of ``writer.model``.

    Raises:
        InvalidValueError: as :func:`make_tasks`.
    """
    stage = StageDirectory(Path(settings.output), "task_generation", settings)
    if stage.is_complete():
        return
    stage.open()
    make_tasks(settings, stage.path, model)
    facts = read_json(stage.path / FACTS)
    logger.info("%s", ", ".join(f"{name}: {value}" for name, value in facts.items()))
    stage.finish(facts)


def load_tasks(source: str) -> TaskSet:
    """Returns the tasks of a source; raises the errors of :func:`sotopia_env.naming.task_set`."""
    return task_set(source, None, 0, "medium")


def scenario_keys(sources: Iterable[str]) -> dict[str, str]:
    """Returns the sources' scenarios: :func:`~sotopia_env.tasks.open_scenario.task_key` to the id of a task."""
    return {task_key(task): task.id for source in sources for task in load_tasks(source)}


def make_tasks(settings: TaskSettings, folder: Path, model: ChatModel | None = None) -> TaskSet:
    """Returns the tasks of a round, generated once and then read from ``folder``.

    Args:
        settings: the settings of the tasks.
        folder: the directory of ``tasks.jsonl``, ``tasks.json`` (numbers) and ``scenarios.jsonl`` (written by a model).
        model: used instead of ``writer.model``.

    Raises:
        InvalidValueError: no source of tasks is named, or all tasks are reserved for evaluation.
        ConstraintError: no cast fits a scenario's seats.
        SotopiaError: the model cannot be reached.
    """
    # The tasks are written last, so an interrupted round is generated again, except for a model's scenarios.
    file = folder / TASKS
    if file.is_file():
        return TaskSet.load(file)
    folder.mkdir(parents=True, exist_ok=True)
    reserved = scenario_keys(settings.evaluation)
    if settings.given is not None:
        task_list, facts = _existing_tasks(settings, reserved)
    else:
        task_list, facts = _generated_tasks(settings, folder, reserved, model)
    for task in task_list:
        check_not_reserved(task_key(task), reserved, got=task.id, field="task")
    write_text_atomically(folder / FACTS, json.dumps({**facts, "tasks": len(task_list)}, indent=2) + "\n")
    task_list.save(file)
    return task_list


def _existing_tasks(settings: TaskSettings, reserved: Mapping[str, str]) -> tuple[TaskSet, dict[str, Any]]:
    assert settings.given is not None
    if settings.families is not None or settings.writer is not None:
        raise InvalidValueError(field="tasks", expected="'given', or 'families' and 'writer'", got=Verbatim("both"))
    source_tasks = load_tasks(settings.given)
    allowed = [task for task in source_tasks if task_key(task) not in reserved]
    if not allowed:
        raise InvalidValueError(
            f"all {len(source_tasks)} tasks of {settings.given!r} are reserved for evaluation", field="tasks"
        )
    earlier = scenario_keys(settings.earlier)
    usable = [task for task in allowed if task_key(task) not in earlier]
    if not usable:
        raise InvalidValueError(f"earlier rounds have used all other tasks of {settings.given!r}", field="tasks")
    facts = {
        "scenarios": len({task_key(task) for task in usable}),
        "kept_for_evaluation": len(source_tasks) - len(allowed),
    }
    if not settings.pairs:
        return TaskSet(usable), facts
    return _cast(settings, list({task_key(task): OpenScenario.of(task) for task in usable}.values())), facts


def _generated_tasks(
    settings: TaskSettings, folder: Path, reserved: Mapping[str, str], model: ChatModel | None
) -> tuple[TaskSet, dict[str, Any]]:
    if settings.families is None and settings.writer is None:
        raise InvalidValueError(field="tasks", expected="'families', 'writer' or 'given'")
    # The writer goes first: families fill up whatever its inspirations did not give.
    share = settings.scenarios if settings.families is None else settings.scenarios // 2
    answers = _written(settings, share, folder, model) if settings.writer is not None else []
    scenarios = [Scenario.model_validate(item.result) for item in answers if item.result is not None]
    open_scenarios = [OpenScenario(scenario) for scenario in scenarios]
    facts: dict[str, Any] = {"written": _written_facts(answers)} if settings.writer is not None else {}
    if settings.families is not None:
        earlier = scenario_keys(settings.earlier)
        family_set, left_out = family_tasks(
            settings.families, settings.scenarios - len(open_scenarios), reserved, earlier
        )
        facts |= {"families": len(family_set), "kept_for_evaluation": left_out}
        open_scenarios = [*(OpenScenario.of(task) for task in family_set), *open_scenarios]
        if not settings.pairs:
            if len(open_scenarios) > len(family_set):
                raise InvalidValueError(
                    field="pairs", expected="at least 1, because written scenarios have no characters", got=0
                )
            return family_set, {"scenarios": len(family_set), **facts}
    if not open_scenarios:
        raise InvalidValueError(
            f"{len(answers)} inspirations gave no scenario", field="tasks", hint=f"{folder}/{SCENARIOS} has the reasons"
        )
    return _cast(settings, open_scenarios), {"scenarios": len(open_scenarios), **facts}


def _written_facts(answers: Sequence[Written]) -> dict[str, Any]:
    by_source = Counter(item.source for item in answers if item.result is not None)
    return {"by_source": dict(sorted(by_source.items())), "failed": len(answers) - count(answers)}


def _cast(settings: TaskSettings, open_scenarios: Collection[OpenScenario]) -> TaskSet:
    return cast_scenarios(open_scenarios, read_cast(settings.cast), max(1, settings.pairs), settings.seed)


def family_tasks(
    settings: FamilySettings, n: int, reserved: Collection[str], earlier: Iterable[str] = ()
) -> tuple[TaskSet, int]:
    """Returns ``n`` tasks of different scenarios, and the number of tasks left out because they are reserved.

    Args:
        settings: the settings of the families.
        n: the number of tasks.
        reserved: the keys of scenarios reserved for evaluation.
        earlier: the keys of scenarios of earlier rounds.

    Raises:
        UnknownNameError: a family or the level does not exist.
        InvalidValueError: the families have fewer different scenarios.
    """
    result: list[Task] = []
    previous = set(earlier)
    left_out = 0
    for index in itertools.count():
        if len(result) == n:
            return TaskSet(result), left_out
        # A family may repeat scenarios for ever; 20 draws per task are far more than the built-in ones need.
        if index > 20 * n + 100:
            raise InvalidValueError(
                field="families", expected=f"{n} different scenarios outside evaluation", got=len(result)
            )
        turn, number = divmod(index, len(settings.names))
        task = tasks.generate(settings.names[number], 1, settings.seed, start=turn)[0]
        key = task_key(task)
        left_out += key in reserved
        # Two draws of a family may give the same scenario with other characters.
        if key not in reserved and key not in previous:
            previous.add(key)
            result.append(task)
    raise AssertionError("the loop has no other end")


def _written(settings: TaskSettings, n: int, folder: Path, model: ChatModel | None) -> list[Written]:
    assert settings.writer is not None
    previous = [task.scenario for source in (*settings.evaluation, *settings.earlier) for task in load_tasks(source)]
    if model is not None:
        answers = asyncio.run(_ask(model, settings.writer, n, folder, settings.seed, previous))
    else:
        answers = asyncio.run(_connect_and_ask(settings, n, folder, previous))
    if count(answers) < n:
        logger.warning("the inspirations gave %d of %d scenarios", count(answers), n)
    return answers


async def _connect_and_ask(settings: TaskSettings, n: int, folder: Path, previous: list[Scenario]) -> list[Written]:
    assert settings.writer is not None
    models = ModelPool(settings.models)
    model = models(settings.writer.model)
    async with opened(models, folder):
        return await _ask(model, settings.writer, n, folder, settings.seed, previous)


async def _ask(
    model: ChatModel, settings: WriterSettings, n: int, folder: Path, seed: int, previous: Iterable[Scenario]
) -> list[Written]:
    manner = Manner(temperature=1.0, max_tokens=_MOST_TOKENS)
    writing = ScenarioWriting()
    writing.exclude(previous)
    writer = Writer(Drafter(model, manner), writing)
    # Inspirations of earlier rounds are used up, so that rounds do not repeat scenarios.
    pool, used = read_inspirations(settings.inspirations), read_inspirations(settings.used)
    return await writer.write(pool, n, folder / SCENARIOS, seed, used)
