"""``sotopia import`` and ``sotopia export``: conversion from and to the formats of other projects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sotopia_env.cli.options import KeepGoing, path_argument
from sotopia_env.foundation.quoting import escape, escape_line

if TYPE_CHECKING:
    from sotopia_env.importers.importing import ImportReport

_MOST_LINES = 20
FORMAT_HELP = "Name of the foreign format; `sotopia import` without files lists them. Detected by default."
INSPECT = "inspect"
Out = Annotated[Path, typer.Option("--out", "-o", help="File to write; for inspect, a folder.")]
FormatName = Annotated[str | None, typer.Option("--format", help=FORMAT_HELP)]


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("import")(import_)
    app.command("export")(export)


def import_(
    files: Annotated[
        list[Path] | None, path_argument("Foreign files in any order: JSON, YAML, CSV, Parquet, text, PNG.", "FILES...")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write; episodes make it a run.")] = None,
    format: FormatName = None,
    keep_going: KeepGoing = False,
) -> None:
    """Import profiles, tasks, episodes and training rows of SOTOPIA and related projects, cards, chats and tables.

    Records that contradict themselves are imported as the reference code interprets them, with a note.

    Without files, list the formats. Every refused record is reported with file, line, field and fix. Nothing is written
    then; with --keep-going, all other records are written.

    \b
    Examples:
      sotopia import episodes.jsonl -o runs/published
      sotopia import agents.json envs.json env_agent_combos.json used_env.json -o runs/official
      sotopia import marketplace/small.yaml -o runs/marketplace
      sotopia import people.csv tasks.csv -o runs/tables
      sotopia import card.png -o runs/card
      sotopia import agents.json envs.json relationships.jsonl combos.json logs.jsonl -o runs/mine --keep-going
      sotopia compare runs/published
    """
    from sotopia_env.importers.importing import import_files
    from sotopia_env.importers.registry import formats

    if not files:
        for name, foreign in formats().items():
            export_note = " (export writes it, too)" if foreign.write is not None else ""
            typer.echo(f"{name:24} {foreign.kind.value:14} {foreign.summary}{export_note}")
        return
    if out is None:
        raise typer.BadParameter("expected a folder to write, got none", param_hint="--out")
    report = import_files(files, out, format=format, keep_going=keep_going)
    _print_report(report)
    if report.refused:
        raise typer.Exit(1)


def _print_report(report: ImportReport) -> None:
    for count in report.counts:
        typer.echo(
            f"{escape_line(count.file)}: {count.format or 'no known format'}; {count.read} read, "
            f"{count.converted} converted, {count.left_out} refused"
            + (f", {len(count.notes)} with a note" if count.notes else "")
        )
    for name, number in report.written.items():
        typer.echo(f"{report.folder / name}: {number}")
    for (_, field), notes in report.notes().items():
        more = f" (and {len(notes) - 1} more on {field}, all in {report.folder / 'import.json'})" if notes[1:] else ""
        typer.echo(f"note: {escape_line(notes[0].sentence + more)}", err=True)
    refusals = [refusal for count in report.counts for refusal in count.refused]
    for refusal in refusals[:_MOST_LINES]:
        typer.echo(f"refused: {escape_line(refusal.sentence)}", err=True)
    if len(refusals) > _MOST_LINES:
        typer.echo(
            f"and {len(refusals) - _MOST_LINES} more, all in {report.folder / 'import.json'}; by reason:", err=True
        )
        for reason, number in report.reasons()[:_MOST_LINES]:
            typer.echo(f"{number:8} {escape_line(reason)}", err=True)


def export(
    source: Annotated[Path, path_argument("Folder of imports, run directory, or file of records.", "SOURCE")],
    out: Out,
    format: FormatName = None,
) -> None:
    """Write records in SOTOPIA's or AgentSense's format or as training rows: JSON Lines, or an array in a .json file.

    The format inspect writes the episodes of a run as a folder of logs for `inspect view`, one for each policy.

    \b
    Examples:
      sotopia export runs/published -o episodes.jsonl
      sotopia export runs/mine --format sotopia-agents -o agents.json
      sotopia export runs/a --format inspect -o logs
    """
    if format == INSPECT:
        from sotopia_env.adapters.inspect_logs import export_logs

        for file in export_logs(source, out):
            typer.echo(escape_line(str(file)))
        return
    from sotopia_env.importers.exporting import export_records

    count = export_records(source, out, format=format)
    typer.echo(f"{out}: {escape(str(count))} records")
