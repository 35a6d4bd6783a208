"""``sotopia show``: shows the transcripts of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sotopia_env.cli.options import path_argument
from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.quoting import escape_line

if TYPE_CHECKING:
    from sotopia_env.storage.manifest import FailureRecord
    from sotopia_env.world.episode import Episode


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command()(show)


def show(
    run: Annotated[Path, path_argument("Run directory or .jsonl file of episodes.", "RUN")],
    episode: Annotated[str | None, typer.Argument(help="Index from 0, or beginning of a key.")] = None,
    acts: Annotated[
        Path | None, typer.Option(help="Write every statement, proof and question of the run, with its class, as CSV.")
    ] = None,
) -> None:
    """Show a transcript with private messages and failures marked; without an episode, list all episodes.

    \b
    Examples:
      sotopia show runs/a
      sotopia show runs/a 0
      sotopia show runs/a bargaining-medium-0-3
      sotopia show runs/a --acts acts.csv
    """
    from sotopia_env.reports.transcript import failure_text, to_text
    from sotopia_env.world.episode import Episode

    if acts is not None:
        _write_acts(run, acts)
        return
    if episode is None:
        _list(run)
        return
    record = _find(run, episode)
    typer.echo(to_text(record) if isinstance(record, Episode) else failure_text(record), nl=False)


def _write_acts(run: Path, file: Path) -> None:
    from sotopia_env.foundation.files import csv_text, replacement
    from sotopia_env.reports.transcript import act_rows
    from sotopia_env.storage.directory import read_run

    rows = list(act_rows(read_run(run)))
    if not rows:
        raise InvalidValueError(expected="episodes with statements, of tasks that declare facts", where=run)
    with replacement(file) as stream:
        stream.write(csv_text(list(rows[0]), [list(row.values()) for row in rows]).encode())
    typer.echo(f"{len(rows)} acts written to {file}")


def _failures(run: Path) -> tuple[FailureRecord, ...]:
    from sotopia_env.storage.directory import read_failures

    return read_failures(run) if run.is_dir() else ()


def _list(run: Path) -> None:
    from sotopia_env.storage.directory import read_run
    from sotopia_env.world.answers import participant_of

    for index, episode in enumerate(read_run(run)):
        stop = episode.stop.value if episode.stop else ""
        people = "".join(f"\tby {name}" for info in episode.policies if (name := participant_of(info)))
        line = f"{index}\t{episode.key}\t{len(episode.turns)} turns\t{stop}{_marks(episode)}{people}"
        typer.echo(escape_line(line))
    for failure in _failures(run):
        reason = escape_line(f"{failure.kind}: {failure.message}")
        typer.echo(f"failed\t{escape_line(failure.key)}\t{len(failure.turns)} turns\t{reason}")


def _marks(episode: Episode) -> str:
    """Returns the irregularities of an episode as a short text."""
    generations = [turn.generation for turn in episode.turns if turn.generation is not None]
    latest = episode.evaluation()
    counts = {
        "asked again": sum(generation.reasks for generation in generations),
        "call failed": len(episode.errors),
        "not an action": sum(generation.parse_failure is not None for generation in generations),
        "not possible": sum(bool(turn.turn.violation) for turn in episode.turns),
        "shortened": sum(generation.dropped_turns > 0 for generation in generations),
        "unscored": int(latest is not None and latest.unscored is not None),
    }
    marks = ", ".join(f"{mark} {count}" if count > 1 else mark for mark, count in counts.items() if count)
    return f"\t{marks}" if marks else ""


def _find(run: Path, name: str) -> Episode | FailureRecord:
    """Returns the episode that matches ``name``, or the last failure of an episode that was never finished."""
    from sotopia_env.storage.directory import read_run

    matches: dict[str, Episode | FailureRecord] = {
        failure.key: failure for failure in _failures(run) if failure.key.startswith(name)
    }
    count = 0
    for item in read_run(run):
        if str(count) == name or item.key.startswith(name):
            matches[item.key] = item  # a recorded episode takes the place of its earlier failures
        count += 1
    # A complete key may also be the beginning of other keys.
    exact = [matches[name]] if name in matches else list(matches.values())
    if len(exact) != 1:
        index = f"an index from 0 to {count - 1} or " if count else ""
        raise InvalidValueError(
            field="episode",
            expected=f"{index}the beginning of one key in {run}",
            got=Verbatim(f"{name!r}, which matches {len(exact)} episodes"),
            hint=f"`sotopia show {run}` lists them",
        )
    return exact[0]
