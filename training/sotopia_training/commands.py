"""The stages as commands: ``sotopia train STAGE --config NAME``, or ``python -m sotopia_training STAGE …``.

``sotopia rows`` writes what the supervised stages train on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from sotopia_env.foundation.errors import SotopiaError, UnknownNameError
from sotopia_env.foundation.quoting import escape
from sotopia_env.foundation.settings import Settings
from sotopia_training.stage.configurations import listed_configurations
from sotopia_training.stage.script import DryRun, run_script


@dataclass(frozen=True, slots=True)
class StageCommand:
    """The parts of a stage that the command line uses.

    Attributes:
        settings: the class of the stage's settings.
        run: runs the stage.
        check: raises on contradictory settings; for ``--check``.
        forecast: returns the cost of the stage as text; for ``--dry-run``.
    """

    settings: type[Settings]
    run: Callable[[Any], object]
    check: Callable[[Any], object] | None = None
    forecast: Callable[[Any, DryRun], str] | None = None


def _forecast(stage: ModuleType) -> Callable[[Any, DryRun], str]:
    """Returns the forecast of a training stage, which includes a measured step if the dry run requests it."""

    def text(settings: Any, dry_run: DryRun) -> str:
        import torch

        counted = stage.forecast(settings, dry_run.rows, dry_run.devices)
        lines = [str(counted)]
        # By default only on a GPU, where a step takes seconds.
        if torch.cuda.is_available() if dry_run.probe is None else dry_run.probe:
            lines.append(stage.probe(settings).text(counted.steps))
        return "\n".join(lines) + "\n"

    return text


def _arguments(stage: ModuleType) -> Callable[[Any], None]:
    """Returns the check of a training stage: its trainer's arguments, and that trackers are installed."""

    def check(settings: Any) -> None:
        from sotopia_training.fitting.checks import check_trackers

        check_trackers(stage.trainer_arguments(settings))

    return check


# Each function imports only its own stage: a wrong key must be reported without waiting for the other imports.


def _tasks() -> StageCommand:
    """Generates the tasks of a round, from verified families or with a language model from inspirations.

    The same command continues an interrupted stage; used inspirations are in `scenarios.jsonl` and are not used again.
    """
    from sotopia_training.collect import task_generation as stage

    return StageCommand(stage.TaskGenerationSettings, stage.run)


def _collect() -> StageCommand:
    """Collects episodes: an expert with itself, a model with itself, or an agent with a partner.

    The same command plays missing episodes. `sotopia compare` reads the run directory.
    """
    from sotopia_training.collect import collection as stage

    return StageCommand(stage.CollectionSettings, stage.run)


def _rate() -> StageCommand:
    """Evaluates every episode of a run: the ratings for the filters of SOTOPIA-π.

    The same command evaluates missing episodes.
    """
    from sotopia_training.collect import collection as stage

    return StageCommand(stage.RatingSettings, stage.rate)


def _filter() -> StageCommand:
    """Selects episodes to train on by the filters of SOTOPIA-π; writes selections and a report per task."""
    from sotopia_training.collect import filtering as stage

    return StageCommand(stage.FilteringSettings, stage.run)


def _relabel() -> StageCommand:
    """Relabelling: a script answers in every state that a seat of recorded episodes came to; labels for `bc`.

    Writes `labels.jsonl` into the output directory, and the share of states in which the seat agreed with the script.
    """
    from sotopia_training.collect import relabelling as stage

    return StageCommand(stage.RelabellingSettings, stage.run, stage.check)


def _bc() -> StageCommand:
    """Behaviour cloning: fine-tunes a model on an expert's turns."""
    from sotopia_training.fitting import behavior_cloning as stage

    return StageCommand(stage.BehaviorCloningSettings, stage.run, _arguments(stage), _forecast(stage))


def _sr() -> StageCommand:
    """Self-reinforcement: fine-tunes a cloned model on its own best turns."""
    return _bc()


def _pi() -> StageCommand:
    """SOTOPIA-π from tasks to a table: generate, collect, rate, filter, train, evaluate, for any number of updates.

    The same command continues an interrupted stage, also after a kill. The table is `summary.txt` in the output.
    """
    from sotopia_training.pi import pipeline as stage
    from sotopia_training.pi.settings import PipelineSettings

    return StageCommand(PipelineSettings, stage.run, stage.check)


def _attribute() -> StageCommand:
    """Attributes the scores of evaluated episodes to single turns.

    Writes `attributions.jsonl` (one reward for each turn, dimension, attributor and method) and `report.md` into the
    output directory. If the stage is stopped, it keeps the answers of language models.
    """
    from sotopia_training.attribution import stage

    return StageCommand(stage.AttributionSettings, stage.run)


def _rewards() -> StageCommand:
    """Combines attributed rewards into one value for each turn.

    Writes `rows.jsonl` (the reward model's training data) and `design.json` (the combination) into the output
    directory.
    """
    from sotopia_training.reward import rows as stage

    return StageCommand(stage.RewardRowSettings, stage.run)


def _rm() -> StageCommand:
    """Reward model: learns the value of an utterance by regression."""
    from sotopia_training.reward import model as stage

    return StageCommand(stage.RewardModelSettings, stage.run, _arguments(stage), _forecast(stage))


def _grpo() -> StageCommand:
    """Group-relative policy optimisation: single-turn with a reward model, or multi-turn in the environment."""
    from sotopia_training.grpo import forecast, settings, stage

    def check(values: settings.GRPOSettings) -> None:
        settings.check(values)
        _arguments(settings)(values)

    return StageCommand(settings.GRPOSettings, stage.run, check, _forecast(forecast))


def _evaluate() -> StageCommand:
    """Evaluation: policies against partners, scored by judges, with paired tests against a baseline.

    Policies, partners and judges may be added to an evaluation.
    """
    from sotopia_training.evaluation import evaluation as stage

    return StageCommand(stage.EvaluationSettings, stage.run)


def _league() -> StageCommand:
    """League: policies, and the past selves of GRPO stages, meet in every role: who beats whom as what, with intervals.

    Writes `league.md` and `league.csv` into the output directory, whose `run` is an ordinary run.
    """
    from sotopia_training.evaluation import league as stage

    return StageCommand(stage.LeagueSettings, stage.run)


STAGES: Mapping[str, Callable[[], StageCommand]] = {
    "tasks": _tasks,
    "collect": _collect,
    "rate": _rate,
    "filter": _filter,
    "relabel": _relabel,
    "bc": _bc,
    "sr": _sr,
    "pi": _pi,
    "attribute": _attribute,
    "rewards": _rewards,
    "rm": _rm,
    "grpo": _grpo,
    "evaluate": _evaluate,
    "league": _league,
}
"""The stages by name, in the order in which they run; the functions' docstrings are the help texts."""
_STUDIES: Mapping[str, str] = {
    "credit-accuracy": "python -m studies.attribution_accuracy --config FILE",
    "harm": "python -m studies.harm --config FILE",
}
"""Commands of the studies that were stages in earlier versions."""
_USAGE = """usage: {program} STAGE --config NAME [--set KEY=VALUE ...] [--check]
       {program} [STAGE] --list
       {program} show DIRECTORY

Runs a stage of training. NAME is a configuration of the package (--list), or a YAML file. The same command continues a
stage that was stopped. `{program} STAGE --help` has the other options.

`{program} show DIRECTORY` draws the figures of a training stage over its steps.

stages:
"""


def main(arguments: Sequence[str] | None = None, program: str = "python -m sotopia_training") -> int:
    """Runs a stage, or lists stages or configurations, and returns the exit code of :func:`run_script`.

    Args:
        arguments: the stage and its options; by default those of the process.
        program: the name of the command in its help.
    """
    # Not argparse: the stage's own parser reads the rest, and building it imports the stage.
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words and not words[0].startswith("-") else None
    if name is not None and name in _STUDIES:
        sys.stderr.write(f"sotopia: {name} is now a study in the source checkout: {_STUDIES[name]}\n")
        return 2
    if name == "show":
        return _show(words[1:], program)
    if name is not None and name not in STAGES:
        sys.stderr.write(f"sotopia: {escape(str(UnknownNameError(field='stage', got=name, valid=STAGES)))}\n")
        return 2
    if "--list" in words:
        sys.stdout.write(listed_configurations(name))
        return 0
    if name is None:
        about = {stage: (function.__doc__ or "").splitlines()[0] for stage, function in STAGES.items()}
        lines = [f"  {stage:{max(map(len, about))}}  {text}\n" for stage, text in about.items()]
        sys.stdout.write(_USAGE.format(program=program) + "".join(lines))
        return 0 if {"-h", "--help"} & {*words} else 2
    return run_stage(name, words[1:], f"{program} {name}")


def _show(words: Sequence[str], program: str) -> int:
    """Prints and draws the figures of a training stage; returns 0, or 2 if there are none."""
    from sotopia_training.evaluation.curves import show

    if len(words) != 1 or words[0].startswith("-"):
        sys.stderr.write(f"usage: {program} show DIRECTORY\n")
        return 0 if {"-h", "--help"} & {*words} else 2
    try:
        sys.stdout.write(show(words[0]))
    except SotopiaError as error:
        sys.stderr.write(f"sotopia: {escape(str(error))}\n")
        return 2
    return 0


def register(app: typer.Typer) -> None:
    """Adds ``train`` and ``rows`` to the commands of ``sotopia``."""
    app.command(
        add_help_option=False,  # the options, `--help` among them, are those of the stages
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )(train)
    app.command()(rows)


def train(context: typer.Context) -> None:
    """Run a training stage. Without a stage, list the stages; with `--list`, list the configurations.

    \b
    Examples:
      sotopia train bc --config bc_tiny
      sotopia train grpo --config mine.yaml --set trainer.max_steps=10 --dry-run
    """
    raise typer.Exit(main(context.args, "sotopia train"))


def rows(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory or .jsonl file of episodes.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="A .jsonl or .parquet file.")],
    format: Annotated[str, typer.Option(metavar="NAME", help="'prompt-completion' or 'messages'.")] = (
        "prompt-completion"
    ),
    seat: Annotated[list[str] | None, typer.Option(metavar="AGENT", help="A seat (agent_0); repeatable.")] = None,
    policy: Annotated[list[str] | None, typer.Option(metavar="NAME", help="All seats of a policy; repeatable.")] = None,
    min_score: Annotated[
        list[str] | None,
        typer.Option(metavar="DIMENSION=N", help="Only seats with this score or more, such as goal=7; repeatable."),
    ] = None,
    selection: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Only the seats in a selection of `sotopia train filter`."),
    ] = None,
    unscored: Annotated[bool, typer.Option("--unscored", help="Also episodes without a score.")] = False,
    prompt: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of prompts, such as format=brief or max_length=1024."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Shorten and leave out rows by this model's tokens, as its training does."),
    ] = None,
    evaluation_tasks: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Refuse rows of these tasks: a file, 'starter', 'everyday'.")
    ] = None,
) -> None:
    """Write training rows of a run, one for each answer of the chosen seats, as the training stages cut them.

    \b
    Examples:
      sotopia rows runs/a -o rows.jsonl
      sotopia rows runs/a --policy linear --min-score goal=7 --format messages -o rows.parquet
      sotopia rows runs/a --prompt format=brief --tokenizer runs/pi-tiny/base/model -o rows.jsonl
    """
    from sotopia_env.foundation.settings import overridden, settings_of
    from sotopia_training.data.sources import SourceSettings
    from sotopia_training.fitting.row_files import write_rows
    from sotopia_training.stage.settings import PromptSettings

    source = settings_of(
        {
            "run": str(run),
            "selection": selection,
            "seats": [*(seat or ()), *(f"policy:{name}" for name in policy or ())] or None,
            "scored": not unscored,
            "min_scores": overridden({}, min_score or (), "--min-score"),
        },
        SourceSettings,
        "",
    )
    counts = write_rows(
        source,
        out,
        settings_of(overridden({}, prompt or (), "--prompt"), PromptSettings, "--prompt"),
        format=format,
        tokenizer=tokenizer,
        evaluation_tasks=evaluation_tasks,
    )
    typer.echo(f"{out}: {counts.text()}")


def run_stage(name: str, arguments: Sequence[str], program: str | None = None) -> int:
    """Runs one stage of :data:`STAGES`; arguments and exit code are those of :func:`run_script`."""
    stage = STAGES[name]()
    return run_script(
        STAGES[name].__doc__, stage.settings, stage.run, arguments, stage.check, stage.forecast, program=program
    )
