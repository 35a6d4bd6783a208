"""``sotopia tasks``: list, show, sample, generate and validate tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sotopia_env.cli.models import takes_model_options
from sotopia_env.cli.options import SOURCE_HELP, LevelName, Number, Seed, Source, path_argument, path_option
from sotopia_env.cli.write import draft_simulation, write_tasks
from sotopia_env.errors import InvalidValueError
from sotopia_env.naming import SHIPPED, check_seat, pick_task, task_set, task_sources
from sotopia_env.quoting import disarm


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    tasks = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="List, show, sample, generate and validate tasks."
    )
    tasks.command("list")(list_tasks)
    tasks.command("show")(show_task)
    tasks.command("sample")(sample_tasks)
    tasks.command("generate")(generate_tasks)
    tasks.command("validate")(validate_tasks)
    tasks.command("write")(takes_model_options(write_tasks))
    tasks.command("draft")(takes_model_options(draft_simulation))
    app.add_typer(tasks, name="tasks")


def list_tasks(
    source: Annotated[str | None, typer.Argument(help=SOURCE_HELP)] = None,
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
) -> None:
    """List the tasks of a source; without one, the families.

    \b
    Examples:
      sotopia tasks list
      sotopia tasks list starter
      sotopia tasks list bargaining -n 3 --level hard
    """
    from sotopia_env import tasks

    if source is None:
        shipped = [f"{name} (shipped tasks)" for name in SHIPPED]
        typer.echo("\n".join([*shipped, *(f"{name} (generated)" for name in tasks.FAMILIES)]))
        return
    for task in task_set(source, n, seed, level):
        names = f"{task.id}\t{len(task.agents)} seats\t{task.scenario.id}\t{' '.join(task.scenario.tags)}"
        typer.echo(disarm(names).rstrip())


def show_task(
    source: Source,
    task: Annotated[str | None, typer.Argument(help="Task id; the first one by default.")] = None,
    seat: Annotated[int, typer.Option(min=0, help="Whose view to show.")] = 0,
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
    as_json: Annotated[bool, typer.Option("--json", help="The whole task as JSON.")] = False,
) -> None:
    """Show a task as the agent in one seat reads it.

    \b
    Examples:
      sotopia tasks show starter
      sotopia tasks show bargaining --seat 1
      sotopia tasks show my_tasks.jsonl some-task --json
    """
    from sotopia_env.world.dynamics import Rules, initial_state
    from sotopia_env.world.observation import observe

    chosen = pick_task(task_set(source, n, seed, level), task)
    if as_json:
        typer.echo(chosen.model_dump_json(indent=2))
        return
    check_seat(chosen, seat)
    state = initial_state(chosen, Rules(), 0)
    typer.echo(disarm(f"task {chosen.id}, {chosen.agents[seat]}\n\n{observe(state, chosen.agents[seat]).text}"))


def sample_tasks(
    source: Source,
    out: Annotated[Path, path_option("The .jsonl file to write.")],
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
    split: Annotated[str | None, typer.Option(help="Draw from this split by scenario: train, dev, test.")] = None,
) -> None:
    """Draw or generate tasks and write them as JSON Lines.

    \b
    Examples:
      sotopia tasks sample division -n 100 --seed 7 --out division.jsonl
      sotopia tasks sample starter --split train --out train.jsonl
    """
    if out.suffix != ".jsonl":
        raise InvalidValueError(f"--out: expected a .jsonl file, got {str(out)!r}")
    sample = task_set(source, n, seed, level, split)
    sample.save(out)
    typer.echo(f"{out}: {sample!r}")


def generate_tasks(
    sources: Annotated[
        str,
        typer.Option("--from", help="A file of templates or scenarios, 'everyday-groups', 'starter', or families."),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="How many tasks.")],
    out: Annotated[Path, path_option("The .jsonl file to write.")],
    seed: Seed = 0,
    start: Annotated[int, typer.Option(min=0, help="Index of the first task in the sequence.")] = 0,
    level: LevelName = "medium",
) -> None:
    """Generate any number of tasks from templates, scenarios or families, with drawn people.

    Tasks are written while they are drawn; the file is there when all are.

    \b
    Examples:
      sotopia tasks generate --from everyday-groups -n 2000 --out groups.jsonl
      sotopia tasks generate --from my_scenarios.json -n 500 --seed 7 --out cast.jsonl
      sotopia tasks generate --from negotiation,division -n 1000000 --level hard --out many.jsonl
    """
    from sotopia_env.runs import Progress
    from sotopia_env.tasks import TaskStream

    if out.suffix != ".jsonl":
        raise InvalidValueError(f"--out: expected a .jsonl file, got {str(out)!r}")
    TaskStream(task_sources(sources), seed, level).save(out, n, start, Progress(n, 0, None, "tasks").advance)
    typer.echo(f"{out}: {n} tasks")


def validate_tasks(files: Annotated[list[Path], path_argument(".json, .jsonl or .yaml files.", "FILES...")]) -> None:
    """Check task files: whether every task can be read, played and scored.

    Says file, line, field, value and nearest valid name of the first problem, and warns of numbers in goals that
    contradict the worth.

    \b
    Example:
      sotopia tasks validate my_tasks.jsonl
    """
    from sotopia_env import tasks

    for file in files:
        file_tasks = tasks.load(file)
        for task in file_tasks:
            for warning in tasks.warnings(task):
                typer.echo(f"{file}: warning: task {task.id!r}: {disarm(warning)}", err=True)
        typer.echo(f"{file}: valid, {file_tasks!r}")
