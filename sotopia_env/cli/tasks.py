"""``sotopia tasks``: list, show, count, sample, generate, validate and select tasks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sotopia_env.cli.models import takes_model_options
from sotopia_env.cli.options import (
    SOURCE_HELP,
    KeepGoing,
    LevelName,
    Number,
    Seed,
    Source,
    need,
    path_argument,
    path_option,
)
from sotopia_env.cli.write import draft_simulation, write_tasks
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.quoting import escape
from sotopia_env.naming import SHIPPED, check_seat, pick_task, task_rules, task_set
from sotopia_env.naming.task_sources import task_sources

if TYPE_CHECKING:
    from sotopia_env.tasks.lint.material import Material
    from sotopia_env.tasks.selection import Entry


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    tasks = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        help="List, show, count, sample, generate, validate and select tasks.",
    )
    tasks.command("list")(list_tasks)
    tasks.command("show")(show_task)
    tasks.command("sample")(sample_tasks)
    tasks.command("generate")(generate_tasks)
    tasks.command("validate")(validate_tasks)
    tasks.command("stats")(stats)
    tasks.command("hard")(hard)
    tasks.command("write")(takes_model_options(write_tasks))
    tasks.command("draft")(takes_model_options(draft_simulation))
    app.add_typer(tasks, name="tasks")


def list_tasks(
    source: Annotated[str | None, typer.Argument(help=SOURCE_HELP)] = None,
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
    keep_going: KeepGoing = False,
) -> None:
    """List the tasks of a source; without one, the families.

    \b
    Examples:
      sotopia tasks list
      sotopia tasks list starter
      sotopia tasks list bargaining -n 3 --level hard
    """
    from sotopia_env import tasks
    from sotopia_env.tasks.families.registry import UNLISTED

    if source is None:
        shipped = [f"{name} (shipped tasks)" for name in SHIPPED]
        typer.echo("\n".join([*shipped, *(f"{name} (generated)" for name in (*tasks.FAMILIES, *UNLISTED))]))
        return
    refused: list[str] = []
    for task in task_set(source, n, seed, level, refused=refused if keep_going else None):
        names = f"{task.id}\t{len(task.agents)} seats\t{task.scenario.id}\t{' '.join(task.scenario.tags)}"
        typer.echo(escape(names).rstrip())
    _report_refused(refused)


def show_task(
    source: Source,
    task: Annotated[str | None, typer.Argument(help="Task id; the first one by default.")] = None,
    seat: Annotated[int | None, typer.Option(min=0, help="Show only the texts of this seat.")] = None,
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
    as_json: Annotated[bool, typer.Option("--json", help="The whole task as JSON.")] = False,
) -> None:
    """Show a task on a card, with all secrets; or as the agent in one seat sees it.

    \b
    Examples:
      sotopia tasks show starter
      sotopia tasks show bargaining --seat 1
      sotopia tasks show my_tasks.jsonl some-task --json
    """
    from sotopia_env.reports.task_reports import card
    from sotopia_env.world.dynamics import Rules, initial_state
    from sotopia_env.world.observation import observe

    item = pick_task(task_set(source, n, seed, level), task)
    if as_json:
        typer.echo(item.model_dump_json(indent=2))
        return
    if seat is None:
        typer.echo(card(item), nl=False)
        return
    check_seat(item, seat)
    state = initial_state(item, Rules(), 0)
    typer.echo(escape(f"task {item.id}, {item.agents[seat]}\n\n{observe(state, item.agents[seat]).text}"))


def stats(
    source: Source,
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
    out: Annotated[Path | None, path_option("A .png, .svg or .pdf file for the chart.")] = None,
    keep_going: KeepGoing = False,
) -> None:
    """Show the composition of a set: relationships, sources, seats, outcomes, goal types, people.

    \b
    Examples:
      sotopia tasks stats everyday
      sotopia tasks stats everyday-groups --out groups.png
    """
    from sotopia_env.reports.charts import check_formats
    from sotopia_env.reports.task_reports import composition_chart, composition_report
    from sotopia_env.tasks.composition import composition

    if out is not None:
        need("tasks stats --out", "matplotlib")
        check_formats([out.suffix.removeprefix(".")])
    refused: list[str] = []
    counts = composition(task_set(source, n, seed, level, refused=refused if keep_going else None))
    typer.echo(composition_report(counts).text(), nl=False)
    if out is not None:
        typer.echo(f"wrote {composition_chart(counts, source, out)}")
    _report_refused(refused)


def hard(
    runs: Annotated[list[Path], path_argument("Run directories or .jsonl files of episodes.", "RUNS...")],
    target: Annotated[str, typer.Option(help="The policy for which tasks are hard.")],
    top: Annotated[int, typer.Option(min=1, help="How many tasks.")] = 20,
    metric: Annotated[str | None, typer.Option(help="Metric of the values; by default that of a ranking.")] = None,
    evaluator: Annotated[
        str | None, typer.Option(help="Evaluator of the scores; by default the one all episodes share.")
    ] = None,
    held_out: Annotated[
        list[Path] | None, path_option("A run with other episodes of these tasks; may be repeated.", "--held-out")
    ] = None,
    out: Annotated[Path | None, path_option("A .json file for the selection.")] = None,
) -> None:
    """Select the hardest tasks for a policy, by (others' mean + 3 sd) - (its mean - 3 sd) (SOTOPIA, section 7).

    The rule is the paper's, and finds noisy tasks: --held-out shows how much better the others are by other episodes,
    drawn towards the mean of all scenarios as far as chance explains the difference.

    \b
    Examples:
      sotopia tasks hard runs/a --target tit-for-tat
      sotopia tasks hard runs/a runs/b --target my-model --top 20 --out hard.json
      sotopia tasks hard runs/a --target my-model --held-out runs/b
      sotopia tasks sample everyday --only hard.json --out hard.jsonl
    """
    from sotopia_env.reports.hard import hard_tasks
    from sotopia_env.reports.sheet import Sheet

    if out is not None and out.suffix != ".json":
        raise InvalidValueError(field="--out", expected="a .json file", got=str(out))
    selection = hard_tasks(runs, target, top, metric=metric, evaluator=evaluator, held_out=held_out or ())
    rows = [(e.task or "", e.gap, e.high, e.low, e.by or "", _held_out(e)) for e in selection.entries]
    columns = ("task", "gap", "others' high", "own low", "by", "held-out difference")
    width = len(columns) if held_out else len(columns) - 1
    typer.echo(Sheet("hard", columns[:width], [row[:width] for row in rows]).text())
    typer.echo(
        escape(f"{selection.about}; {selection.compared} tasks compared, {selection.left_out} without deviations")
    )
    if out is not None:
        selection.save(out)
        typer.echo(f"wrote {out}")


def _held_out(entry: Entry) -> str:
    item = entry.held_out
    return "n/a: no values" if item is None else f"{item.mean:.2f} [{item.low:.2f}, {item.high:.2f}]"


_ONLY_HELP = "Selection: 'published-hard', 'everyday-hard-scripted', or a file written by `tasks hard --out`."


def sample_tasks(
    source: Source,
    out: Annotated[Path, path_option("The .jsonl file to write.")],
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
    split: Annotated[str | None, typer.Option(help="Draw from this split by scenario: train, dev, test.")] = None,
    only: Annotated[str | None, typer.Option(help=_ONLY_HELP)] = None,
    keep_going: KeepGoing = False,
) -> None:
    """Draw or generate tasks and write them as JSON Lines.

    \b
    Examples:
      sotopia tasks sample division -n 100 --seed 7 --out division.jsonl
      sotopia tasks sample starter --split train --out train.jsonl
      sotopia tasks sample official.jsonl --only published-hard --out hard.jsonl
    """
    from sotopia_env.tasks.selection import read_selection

    if out.suffix != ".jsonl":
        raise InvalidValueError(field="--out", expected="a .jsonl file", got=str(out))
    selection = None if only is None else read_selection(only)
    refused: list[str] = []
    sample = task_set(source, n, seed, level, split, refused if keep_going else None)
    sample = sample if selection is None else selection.of(sample)
    sample.save(out)
    typer.echo(f"{out}: {sample!r}" + ("" if selection is None else f": {escape(selection.about)}"))
    _report_refused(refused)


def _report_refused(refused: list[str]) -> None:
    """Lists the records that were left out, and exits with code 1 if the list is not empty."""
    for sentence in refused:
        typer.echo(f"refused: {escape(sentence)}", err=True)
    if refused:
        typer.echo(f"{len(refused)} records left out", err=True)
        raise typer.Exit(1)


def generate_tasks(
    sources: Annotated[
        str,
        typer.Option("--from", help="A file of templates or scenarios, a shipped set, or families."),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="How many tasks.")],
    out: Annotated[Path, path_option("The .jsonl file to write.")],
    seed: Seed = 0,
    start: Annotated[int, typer.Option(min=0, help="Index of the first task in the sequence.")] = 0,
    level: LevelName = "medium",
    cast: Annotated[
        str | None,
        typer.Option(
            help="Cast of scenarios: 'starter', 'everyday' or a JSON file; by default the file's, or drawn people."
        ),
    ] = None,
) -> None:
    """Generate any number of tasks from templates, scenarios or families, with drawn people or those of a cast.

    Tasks are written to a temporary file while they are drawn; the file appears when all are written.

    \b
    Examples:
      sotopia tasks generate --from everyday-groups -n 2000 --out groups.jsonl
      sotopia tasks generate --from everyday --cast everyday -n 1000 --out everyday.jsonl
      sotopia tasks generate --from my_scenarios.json -n 500 --seed 7 --out cast.jsonl
      sotopia tasks generate --from negotiation,division -n 1000000 --level hard --out many.jsonl
    """
    from sotopia_env.concurrency.progress import Progress
    from sotopia_env.tasks import read_cast

    if out.suffix != ".jsonl":
        raise InvalidValueError(field="--out", expected="a .jsonl file", got=str(out))
    stream = task_sources(sources).stream(seed, level, None if cast is None else read_cast(cast))
    stream.save(out, n, start, Progress(n, 0, None, "tasks").advance)
    typer.echo(f"{out}: {n} tasks")


_SOURCES_HELP = ".json, .jsonl or .yaml files, or built-in sets: starter, everyday, everyday-groups."


def validate_tasks(
    sources: Annotated[list[str], typer.Argument(help=_SOURCES_HELP, metavar="SOURCES...")],
    against: Annotated[list[str], typer.Option(help="A file or set whose situations must not be repeated.")] = [],  # noqa: B006
    keep_going: Annotated[bool, typer.Option("--keep-going", help="List all refused records, and continue.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    balance: Annotated[bool, typer.Option("--balance", help="Also print the tables of `tasks stats`.")] = False,
) -> None:
    """Check together whether tasks, templates, scenarios and casts can be read, played and scored.

    Errors name file, line, field, value and fix; exit code 1. Warnings are about texts: gendered words, private texts
    that others can read, numbers that do not occur in a worth, near-duplicates.

    \b
    Examples:
      sotopia tasks validate my_tasks.jsonl
      sotopia tasks validate my_cast.json my_scenarios.yaml --against everyday --keep-going
      sotopia tasks validate everyday everyday-groups --strict --balance
    """
    from sotopia_env.reports.task_reports import composition_report
    from sotopia_env.tasks.composition import composition
    from sotopia_env.tasks.lint.report import lint

    for source in sources:
        task_rules(source)  # raises errors in the rules, which a YAML file may contain besides the tasks
    material, others = _read_all(sources), _read_all(against)
    refused = [*others.refused, *material.refused]
    # Without --keep-going, the first refused record ends the command, and the slow lint is not needed.
    problems = lint(material.records, others.records) if keep_going or not refused else []
    errors = [*refused, *(str(problem) for problem in problems if problem.is_error or strict)]
    lines = [*refused, *map(str, problems)] if keep_going or not errors else errors[:1]
    for line in lines:
        typer.echo(escape(line), err=True)
    # ``errors`` also counts refused records, which are not among the problems of the lint.
    warnings = len(problems) - len(errors) + len(refused)
    summary = f"{material.summary}, {len(errors)} errors, {warnings} warnings"
    typer.echo(f"{', '.join(sources)}: {'' if errors else 'valid, '}{summary}")
    if balance:
        typer.echo(composition_report(composition(record for _, record in material.records)).text(), nl=False)
    if errors:
        raise typer.Exit(1)


def _read_all(sources: Iterable[str]) -> Material:
    from sotopia_env.tasks.lint.material import Material, read_material

    whole = Material()
    for source in sources:
        whole.extend(read_material(source))
    return whole
