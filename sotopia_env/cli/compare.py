"""``sotopia compare`` and ``interview-report``: reports on recorded runs; ``demo``: a run and its comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sotopia_env.cli.options import ChartFormats, Seed, chart_formats, need, path_argument, path_option, put_out
from sotopia_env.foundation.extras import install_command

DEMO_POLICIES = ("boulware", "conceder", "tit-for-tat", "splitter")


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command()(compare)
    app.command()(demo)
    app.command("interview-report")(interview_report)


def compare(
    runs: Annotated[list[Path], path_argument("Run directories or .jsonl files of episodes.", "RUNS...")] = [],  # noqa: B006
    config: Annotated[
        Path | None, path_option("YAML file of a comparison; arguments and flags take precedence.", "--config")
    ] = None,
    evaluator: Annotated[
        list[str],
        typer.Option(
            help="Evaluator of the scores; repeatable; by default the one all episodes share.", metavar="NAME"
        ),
    ] = [],  # noqa: B006
    metric: Annotated[
        list[str], typer.Option(help="Metric of matrix, differences and charts; repeatable; the first one ranks.")
    ] = [],  # noqa: B006
    primary: Annotated[
        str | None, typer.Option(metavar="METRIC", help="The metric that ranks; by default the first one.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Group also by tag, scenario, character, relationship, condition, participant or role."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Compare all others with this one, beside each partner.")
    ] = None,
    out: Annotated[Path | None, path_option("Folder for text, CSV, JSON and charts.")] = None,
    formats: ChartFormats = "png",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    settings: Annotated[
        list[str],
        typer.Option("--set", help="Any other setting, such as partners=[linear]. Repeatable.", metavar="KEY=VALUE"),
    ] = [],  # noqa: B006
) -> None:
    """Compare the policies of one or several runs: ranks, intervals, paired differences, failures, cost.

    Settings without a flag can be given in a YAML file (--config) or with --set; they are the fields of
    `sotopia_env.reports.compare.CompareSpec` (docs/measures.md).

    \b
    Examples:
      sotopia compare runs/a
      sotopia compare runs/a runs/b --metric goal --out report --format png,pdf
      sotopia compare runs/a --baseline linear --evaluator verified --evaluator "judge:local/m"
      sotopia compare runs/a --by condition --out report
      sotopia compare --config comparison.yaml --set partners=[linear] --json
    """
    from sotopia_env.foundation.settings import merged, overridden, read_values, settings_of
    from sotopia_env.reports.compare import CompareSpec
    from sotopia_env.reports.comparison_tables import comparison_report

    if out is not None:
        need("compare --out", "matplotlib")
    forms = chart_formats(formats)
    flags = {
        "runs": [str(run) for run in runs],
        "evaluators": evaluator,
        "metrics": metric,
        "primary": primary,
        "by": by,
        "baseline": baseline,
    }
    values = merged(overridden({}, settings, "--set"), {name: value for name, value in flags.items() if value})
    # Flags take precedence over --set, and both over the file.
    spec = settings_of(merged({} if config is None else read_values(config), values), CompareSpec, str(config or ""))
    put_out(comparison_report(*spec.compare()), out, forms, as_json)


def demo(
    out: Annotated[Path, path_option("Run directory; the report is written to its folder report.")],
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
    typer.echo(f"\nRead it in a browser: sotopia view {out}   (needs {install_command('serve')})")
    typer.echo(f"episodes: {out / 'episodes.jsonl'}; read one with: sotopia show {out} 0")
    typer.echo(f"report:   {out / 'report'} (tables as text, CSV and JSON; charts as PNG)")


def interview_report(
    runs: Annotated[list[Path], path_argument("Run directories or .jsonl files, interviewed.", "RUNS...")],
    evaluator: Annotated[str | None, typer.Option(help="Interview to report on; by default the one all share.")] = None,
    measure: Annotated[
        str | None,
        typer.Option(help="Main measure: judge majority, judge average, self, other, exact, or one of information."),
    ] = None,
    out: Annotated[Path | None, path_option("Folder for text, CSV, JSON and charts.")] = None,
    formats: ChartFormats = "png",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Report on interviews: goals by view, private information, sensitivity to profiles, senders and receivers.

    \b
    Examples:
      sotopia interview-report runs/groups
      sotopia interview-report runs/a runs/b --measure "judge average" --out report
      sotopia interview-report runs/groups --json
    """
    need("interview-report", "scipy", *(() if out is None else ("matplotlib",)))
    from sotopia_env.interviews.output import interviews_report
    from sotopia_env.interviews.report import report_runs

    forms = chart_formats(formats)
    report = report_runs(runs, evaluator=evaluator, measure=measure)
    put_out(interviews_report(report), out, forms, as_json)
