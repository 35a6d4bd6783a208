"""Commands about people: sheets for annotators, judges compared with them, and published experiments beside ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.models import takes_model_options
from sotopia_env.cli.options import ChartFormats, chart_formats, need, path_argument, path_option, put_out
from sotopia_env.cli.plain_help import MODELS, PACE
from sotopia_env.foundation.errors import InvalidValueError, Verbatim

if TYPE_CHECKING:
    from sotopia_env.people.answers import AnnotationSet
    from sotopia_env.people.replications import Replication
    from sotopia_env.runs.spec import RunSpec

_pace, _model = (partial(typer.Option, rich_help_panel=panel) for panel in (PACE, MODELS))


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("annotation-template")(annotation_template)
    app.command("judge-agreement")(judge_agreement)
    app.command("replicate")(takes_model_options(replicate))


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


def replicate(
    name: Annotated[str | None, typer.Argument(help="A replication, or your own YAML file of one.")] = None,
    out: Annotated[
        Path | None, path_option("Run directory, continued if it exists; the report is written into it.")
    ] = None,
    policy: Annotated[
        list[str], typer.Option(metavar="NAME", help="Policies, comma-separated or repeated; scripts by default.")
    ] = [],  # noqa: B006
    results: Annotated[
        list[Path], path_option("Episodes to show as well: of people, as the studio exports. Repeatable.", "--results")
    ] = [],  # noqa: B006
    study: Annotated[
        Path | None, path_option("Write the same design as a study of the studio (YAML), and play nothing.", "--study")
    ] = None,
    partner: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --study: who takes the other seats; people by default.")
    ] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Number of tasks; the design's by default.")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="How often each is played.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the tasks and of the episodes.")] = 0,
    formats: ChartFormats = "png",
    concurrency: Annotated[int | None, _pace(help="Episodes in flight at once.", show_default="128")] = None,
    temperature: Annotated[float | None, _model(min=0, max=2, help="Temperature of models; 1 by default.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only forecast calls, tokens and cost.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    *,
    settings: Any = None,
) -> None:
    """Play the design of a published experiment, and show what people did there beside it; without a name, list them.

    \b
    Examples:
      sotopia replicate
      sotopia replicate ultimatum --out runs/ultimatum
      sotopia replicate 121-games --policy local/my-model --api-base http://localhost:8000/v1 --out runs/grid
      sotopia replicate trust --study trust.yaml
      sotopia replicate trust --results people.jsonl
      sotopia replicate trust --results people.jsonl --out runs/trust
    """
    from sotopia_env.foundation.files import write_text_atomically
    from sotopia_env.people.replications import NAMES, beside_people, read_replication
    from sotopia_env.people.studies.files import to_text
    from sotopia_env.storage.directory import read_failures, read_run

    if name is None:
        typer.echo("\n".join(f"{one}\t{read_replication(one).title}" for one in NAMES))
        return
    plan = read_replication(name)
    if study is not None:
        _check_partner(partner)
        text = to_text(plan.study(Path(name).stem, *([] if partner is None else [partner])))
        write_text_atomically(study, text)
        typer.echo(f"wrote {study}; next: `sotopia serve`, then Studies, New study, and paste or choose the file")
        return
    if partner is not None:
        raise InvalidValueError("it belongs to a study", field="--partner", hint="add --study FILE")
    need("replicate", "matplotlib")
    forms = chart_formats(formats)
    if out is None and (not results or dry_run):
        raise InvalidValueError(field="--out", expected="a run directory")
    flags: dict[str, Any] = {"n": n, "repeats": repeats, "seed": seed, "concurrency": concurrency}
    flags["manner"] = None if temperature is None else {"temperature": temperature}
    # With --json, stdout has the JSON alone.
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        failed = out is not None and _play_design(_design_spec(plan, policy, settings or {}, flags), out, dry_run)
    if not dry_run:
        runs = [*([] if out is None else [out]), *results]
        failures = chain.from_iterable(read_failures(path) for path in runs if path.is_dir())
        report = beside_people(name, plan, chain.from_iterable(map(read_run, runs)), failures)
        put_out(report, None if out is None else out / "report", forms, as_json)
    if failed:
        raise typer.Exit(1)


def _check_partner(partner: str | None) -> None:
    """Raises UnknownNameError for a name that no policy has; a model's address and key are settings of the studio."""
    from sotopia_env import naming
    from sotopia_env.naming.plugins import without_building

    if partner is not None and "/" not in partner:
        with without_building():
            naming.make_policy(partner)


def _design_spec(plan: Replication, policy: Sequence[str], settings: dict[str, Any], flags: dict[str, Any]) -> RunSpec:
    """Returns the run of a design: each policy with itself, or also with every other one."""
    from sotopia_env.foundation.settings import merged, settings_of
    from sotopia_env.naming.grammar import split_names
    from sotopia_env.runs.spec import RunSpec

    design = plan.design
    names = [one for text in policy for one in split_names(text)] or list(design.policies)
    seats = {"policies": names} if design.mixed else {"matchups": [f"{one} vs {one}" for one in names]}
    fixed = {"tasks": design.tasks, "level": design.level, "n": design.n, "repeats": design.repeats, **seats}
    chosen = {key: value for key, value in flags.items() if value is not None}
    if reserved := sorted({*settings} & {"tasks", "level", "policies", "matchups", "evaluator"}):
        raise InvalidValueError("the design fixes it", field=reserved[0], hint="use `sotopia rollout`")
    return settings_of(merged(merged(fixed, settings), chosen), RunSpec, "")


def _play_design(spec: RunSpec, out: Path, dry_run: bool) -> bool:
    from sotopia_env.cli.rollout import forecast_spec, play_spec

    if dry_run:
        forecast_spec(spec, out)
        return False
    return play_spec(spec, out)
