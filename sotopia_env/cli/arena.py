"""``sotopia arena``: plays policies against a frozen pool, rates them, and merges results."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.models import takes_model_options
from sotopia_env.cli.options import need, path_argument, path_option
from sotopia_env.cli.plain_help import MODELS, PACE
from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.quoting import escape_line

if TYPE_CHECKING:
    from sotopia_env.arena.card import Card

_pace, _model = (partial(typer.Option, rich_help_panel=panel) for panel in (PACE, MODELS))
Results = Annotated[
    list[Path], path_argument("Run directories, .jsonl files of episodes (as the studio exports), cards.", "RESULTS...")
]
SuiteOption = Annotated[
    str | None,
    typer.Option("--suite", metavar="SUITE", help="Suite of the results; by default that of a run or card among them."),
]
CardFolder = Annotated[Path | None, path_option("Folder for the card: Markdown, HTML, JSON, CSV and SVG.")]
Power = Annotated[bool, typer.Option("--power", help="Also show how many tasks and episodes a difference needs.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    arena = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="Rate policies against a frozen pool of opponents."
    )
    arena.command("suites")(list_suites)
    arena.command("run")(takes_model_options(run_suite))
    arena.command("rate")(rate_runs)
    arena.command("add")(add_results)
    arena.command("freeze")(freeze_suite)
    app.add_typer(arena, name="arena")


def list_suites() -> None:
    """List the suites of the package with their sizes and opponents.

    \b
    Example:
      sotopia arena suites
    """
    from sotopia_env.arena import load_suite
    from sotopia_env.arena.suites import SUITES

    for suite in map(load_suite, SUITES):
        typer.echo(f"{suite.name} (version {suite.version}, {suite.content_hash})\n    {suite.about}")
        typer.echo(f"    {len(suite.hashes)} tasks, {suite.expected('')} episodes of each policy against the pool")
        typer.echo(f"    pool: {', '.join(suite.pool)}")
        source = f"--tasks {suite.tasks} -n {suite.n} --level {suite.level} --seed {suite.seed}"
        typer.echo(f"    options of `sotopia play` for its tasks: {source}")


def run_suite(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A suite of the package, or a suite's JSON file.")],
    policy: Annotated[list[str], typer.Option(metavar="NAME", help="Policy to rate; comma-separated or repeated.")],
    out: Annotated[Path, path_option("Run directory; a run in it is continued, and policies are added to it.")],
    concurrency: Annotated[int | None, _pace(help="Episodes in flight at once.", show_default="128")] = None,
    temperature: Annotated[float | None, _model(min=0, max=2, help="Temperature of models; 1 by default.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only forecast calls, tokens and cost.")] = False,
    *,
    settings: Any = None,
) -> None:
    """Play policies against the pool of a suite, against themselves and each other; the same command continues it.

    \b
    Examples:
      sotopia arena run quick --policy micro,frequency --out runs/quick
      sotopia arena run standard --policy local/my-model --api-base http://localhost:8000/v1 --out runs/mine
      sotopia arena run hard --policy openai/gpt-4o --max-cost 5 --dry-run --out runs/hard
    """
    from sotopia_env.arena.suites import SUITE_FILE, load_suite
    from sotopia_env.cli.rollout import forecast_spec, play_spec
    from sotopia_env.foundation.settings import merged, settings_of
    from sotopia_env.naming.grammar import split_names
    from sotopia_env.runs.forecast import StandInModels
    from sotopia_env.runs.spec import RunSpec

    frozen = load_suite(suite)
    flags: dict[str, Any] = {} if concurrency is None else {"concurrency": concurrency}
    flags |= {} if temperature is None else {"manner": {"temperature": temperature}}
    fixed = frozen.spec([name for text in policy for name in split_names(text)]).model_dump(exclude_defaults=True)
    values = merged(settings or {}, flags)
    if fixed_by_suite := sorted({*values} - {"concurrency", "manner", "models", "timeout"}):
        raise InvalidValueError("the suite fixes it", field=fixed_by_suite[0], hint="freeze a suite of your own")
    spec = settings_of(merged(fixed, values), RunSpec, "")
    frozen.check()
    # Misspelt names are refused before the directory is made; stand-ins load and reach no model.
    spec.resolve(StandInModels(spec.models))
    if dry_run:
        forecast_spec(spec, out)
        return
    _check_directory(out / SUITE_FILE, frozen.content_hash)
    frozen.save(out / SUITE_FILE)
    failed = play_spec(spec, out)
    typer.echo(f"next: `sotopia arena rate {shlex.quote(str(out))}`")
    if failed:
        raise typer.Exit(1)


def _check_directory(file: Path, content_hash: str) -> None:
    from sotopia_env.arena import load_suite

    if file.is_file() and (present := load_suite(file)).content_hash != content_hash:
        raise InvalidValueError(
            "the directory holds another suite, or one with other tasks or opponents",
            field="out",
            got=Verbatim(f"{present.name} version {present.version}"),
            hint="choose another directory",
        )


def rate_runs(
    results: Results,
    suite: SuiteOption = None,
    out: CardFolder = None,
    power: Power = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON instead of tables.")] = False,
) -> None:
    """Rate the policies of one or several runs of a suite: groups, intervals, matrix, process, failures, cost.

    Runs of other commands, and episodes that people played, are added with their own tables if tasks, rules and
    evaluator are the suite's. Other episodes are left out; the card says how many and why.

    \b
    Examples:
      sotopia arena rate runs/quick
      sotopia arena rate runs/quick runs/mine --power --out cards/quick
      sotopia arena rate runs/people studio.jsonl --suite quick
    """
    _put_out(_read(results, suite), out, power, as_json)


def add_results(
    results: Results,
    out: Annotated[Path, path_option("Folder of the merged card, which may be one of the results.")],
    suite: SuiteOption = None,
    power: Power = False,
) -> None:
    """Merge the results of others into one card, or refuse with the reason: another suite, other tasks, other play.

    \b
    Examples:
      sotopia arena add cards/mine cards/theirs --out cards/both
      sotopia arena add cards/mine/card.json runs/new --out cards/mine
    """
    _put_out(_read(results, suite), out, power, False)


def _read(results: list[Path], suite: str | None) -> Card:
    from sotopia_env.arena import load_suite
    from sotopia_env.arena.reading import card_of_runs

    card = card_of_runs(results, None if suite is None else load_suite(suite))
    for item in card.left_out:
        typer.echo(f"{escape_line(item.source)}: {item.episodes} episodes left out: {item.reason}", err=True)
    return card


def _put_out(card: Card, out: Path | None, power: bool, as_json: bool) -> None:
    from sotopia_env.arena.page import card_report, write_card

    if out is not None:
        need("arena --out", "matplotlib")
    report = card_report(card, power=power)
    files = [] if out is None else write_card(card, out, power=power)
    typer.echo(card.model_dump_json() + "\n" if as_json else report.text(), nl=False)
    for path in files:
        typer.echo(f"wrote {path}", err=as_json)


def freeze_suite(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the suite.")],
    tasks: Annotated[str, typer.Option(help="Source of tasks, as in `sotopia rollout`.", metavar="SOURCE")],
    pool: Annotated[list[str], typer.Option(metavar="NAME", help="Reference opponents; comma-separated or repeated.")],
    out: Annotated[Path, path_option("JSON file of the suite.")],
    n: Annotated[int | None, typer.Option("-n", min=1, max=100_000, help="How many tasks.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks and episodes.")] = 0,
    version: Annotated[int, typer.Option(min=1, help="Raise it with every change.")] = 1,
) -> None:
    """Freeze a suite of your own tasks and scripted opponents, with their hashes.

    \b
    Examples:
      sotopia arena freeze mine --tasks bargaining -n 20 --pool boulware,conceder --out mine.json
      sotopia arena freeze market --tasks marketplace.jsonl --pool linear,liar --out market.json
    """
    from sotopia_env.arena import Suite, freeze
    from sotopia_env.arena.suites import SUITES
    from sotopia_env.naming.grammar import split_names

    if name in SUITES:
        raise InvalidValueError(field="name", expected="another name than those of the package's suites", got=name)
    names = tuple(name for text in pool for name in split_names(text))
    frozen = freeze(Suite(name=name, version=version, tasks=tasks, n=n, seed=seed, pool=names))
    frozen.save(out)
    typer.echo(f"{out}: {len(frozen.hashes)} tasks, {len(frozen.pool)} opponents, hash {frozen.content_hash}")
