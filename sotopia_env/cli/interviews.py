"""``sotopia interview-report``: AgentSense's measures of interviewed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sotopia_env.cli.options import ChartFormats, chart_formats, need, path_argument, path_option, put_out


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command("interview-report")(interview_report)


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
    from sotopia_env.reports.interviews import interviews_report, report_runs

    forms = chart_formats(formats)
    report = report_runs(runs, evaluator=evaluator, measure=measure)
    put_out(interviews_report(report), out, forms, as_json)
