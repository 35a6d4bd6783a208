"""``sotopia annotation-template``: sheets for annotators; ``sotopia judge-agreement``: judges compared with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sotopia_env.cli.options import ChartFormats, chart_formats, need, path_argument, path_option, put_out
from sotopia_env.foundation.errors import InvalidValueError, Verbatim

if TYPE_CHECKING:
    from sotopia_env.people.answers import AnnotationSet


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("annotation-template")(annotation_template)
    app.command("judge-agreement")(judge_agreement)


def annotation_template(
    run: Annotated[Path, path_argument("Run directory or .jsonl file of episodes.", "RUN")],
    out: Annotated[Path, path_option("The .csv file to write; its key and a guide are written to the same folder.")],
    n: Annotated[
        int | None, typer.Option("-n", min=1, help="How many episodes, drawn at random; all by default.")
    ] = None,
    per_episode: Annotated[int, typer.Option(min=1, help="Annotators asked for each episode.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw, of the order and of the ids.")] = 0,
) -> None:
    """Write a sheet for people who score episodes without knowing the policies; do not give them the key.

    \b
    Examples:
      sotopia annotation-template runs/a --out people.csv
      sotopia annotation-template runs/a -n 200 --per-episode 2 --out people.csv
    """
    from sotopia_env.people.sheet import draw, guide_path, key_path, write_template
    from sotopia_env.storage.directory import read_run

    key = write_template(draw(read_run(run), n, seed), out, per_episode=per_episode, seed=seed)
    episodes = len({request.episode for request in key.requests})
    typer.echo(f"{out}: {len(key.requests)} rows to fill in, {episodes} episodes; for annotators: {guide_path(out)}")
    typer.echo(f"{key_path(out)}: undoes the blinding; needed by `sotopia judge-agreement`, not for annotators")


def judge_agreement(
    run: Annotated[Path, path_argument("Run directory or .jsonl file of episodes, evaluated.", "RUN")],
    human: Annotated[
        list[Path], path_option("Filled-in sheet; repeatable for the copies of several annotators.", "--human")
    ],
    key: Annotated[
        Path | None, path_option("Key of the sheets; by default the one beside the first sheet.", "--key")
    ] = None,
    judge: Annotated[list[str], typer.Option(help="Evaluation to compare; repeatable; all by default.")] = [],  # noqa: B006
    bins: Annotated[int, typer.Option(min=2, max=11, help="Bins of the scale for the annotators' agreement.")] = 5,
    filters: Annotated[bool, typer.Option(help="Leave out annotations of poor quality.")] = True,
    min_words: Annotated[float, typer.Option(min=0, help="Minimum median number of words in a row's reasoning.")] = 5,
    max_goal_difference: Annotated[
        float, typer.Option(min=0, help="Maximum difference on GOAL; otherwise an episode is left out.")
    ] = 5,
    max_distance: Annotated[
        float | None,
        typer.Option(min=0, help="Maximum mean distance of an annotator from the others; no limit by default."),
    ] = None,
    out: Annotated[Path | None, path_option("Folder for text, CSV, JSON and the chart.")] = None,
    formats: ChartFormats = "png",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare judges with people: correlations, differences, perceived ranges, and agreement among people.

    \b
    Examples:
      sotopia judge-agreement runs/a --human people.csv
      sotopia judge-agreement runs/a --human ann.csv --human bo.csv --key people.key.json --out report
      sotopia judge-agreement runs/a --human people.csv --judge verified --no-filters --json
    """
    need("judge-agreement", "scipy", *(() if out is None else ("matplotlib",)))
    from sotopia_env.people import human_agreement, read_annotations
    from sotopia_env.people.quality import LENIENT, QualityRules
    from sotopia_env.people.report import agreement_report
    from sotopia_env.people.sheet import key_path
    from sotopia_env.storage.directory import read_run

    forms = chart_formats(formats)
    rules = QualityRules(min_words=min_words, max_difference={"goal": max_goal_difference}, max_distance=max_distance)
    answers = read_annotations(human, key or key_path(human[0]))
    _check_filled_in(answers, human)
    agreement = human_agreement(
        read_run(run), answers, rules=rules if filters else LENIENT, judges=judge or None, bins=bins
    )
    put_out(agreement_report(agreement), out, forms, as_json)


def _check_filled_in(answers: AnnotationSet, sheets: Sequence[Path]) -> None:
    """Raises :class:`InvalidValueError` if the sheets contain no scores to compare with."""
    if any(answer.scores for answer in answers.annotations):
        return
    columns = ([] if answers.annotations else ["annotator"]) + list(answers.key.scales)
    raise InvalidValueError(
        expected=f"scores in at least one of {len(answers.key.requests)} rows",
        got=Verbatim(f"empty columns {', '.join(columns)}"),
        where=", ".join(map(str, sheets)),
    )
