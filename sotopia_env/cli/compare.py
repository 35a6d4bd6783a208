"""``sotopia compare``: tables and charts of recorded runs; ``sotopia demo``: a run and its comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sotopia_env.cli.options import ChartFormats, Seed, chart_formats, need, path_argument, path_option

DEMO_POLICIES = ("boulware", "conceder", "tit-for-tat", "splitter")


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command()(compare)
    app.command()(demo)


def compare(
    runs: Annotated[list[Path], path_argument("Run directories or .jsonl files of episodes.", "RUNS...")],
    evaluator: Annotated[str | None, typer.Option(help="Whose scores; by default the one all episodes share.")] = None,
    metric: Annotated[str | None, typer.Option(help="Main metric: of ranking, matrix and charts.")] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Also by tag, scenario, character, relationship, condition or participant."),
    ] = None,
    out: Annotated[Path | None, path_option("Folder for text, CSV, JSON and charts.")] = None,
    formats: ChartFormats = "png",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare the policies of one or several runs: ranks, intervals, paired differences, failures, cost.

    \b
    Examples:
      sotopia compare runs/a
      sotopia compare runs/a runs/b --metric goal --out report --format png,pdf
      sotopia compare runs/a --by condition --out report
      sotopia compare runs/a --json
    """
    from sotopia_env.reports.charts import write_report
    from sotopia_env.reports.compare import compare_runs
    from sotopia_env.reports.tables import to_json, to_text

    if out is not None:
        need("compare --out", "matplotlib")
    forms = chart_formats(formats)
    comparison = compare_runs(runs, evaluator=evaluator, metric=metric, by=by)
    files = [] if out is None else write_report(comparison, out, forms)
    typer.echo(to_json(comparison) if as_json else to_text(comparison), nl=False)
    for path in files:
        typer.echo(f"wrote {path}", err=as_json)


def demo(
    out: Annotated[Path, path_option("Run directory; the report goes beside the episodes.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Tasks per family.")] = 6,
    seed: Seed = 0,
    model: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Play this model beside scripts in bargaining instead.")
    ] = None,
) -> None:
    """Play four scripted policies in all task families, then compare them; no API key, under a minute.

    \b
    Examples:
      sotopia demo --out runs/demo
      sotopia demo --model smol --out runs/smol    # a real small model in this process; some minutes on a CPU
    """
    from sotopia_env import tasks
    from sotopia_env.cli.rollout import rollout

    need("demo", "matplotlib")
    if model is None:
        families = list(tasks.FAMILIES)
        typer.echo(f"{', '.join(DEMO_POLICIES)} in {len(families)} families of tasks with verified outcomes …")
        rollout(out=out, policy=list(DEMO_POLICIES), matchup=[], tasks="all", n=n * len(families), seed=seed)
    else:
        typer.echo(f"{model}, linear and random-offers in {n} bargaining tasks against conceder …")
        pairs = [f"{name} vs conceder" for name in (model, "linear", "random-offers")]
        rollout(out=out, policy=[], matchup=pairs, tasks="bargaining", n=n, seed=seed, max_turns=8)
    compare([out], out=out / "report")
    typer.echo(f"episodes: {out / 'episodes.jsonl'}; read one with: sotopia show {out} 0")
    typer.echo(f"report:   {out / 'report'} (tables as text, CSV and JSON; charts as PNG)")
