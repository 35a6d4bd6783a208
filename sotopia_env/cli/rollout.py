"""``sotopia policies``: lists policies; ``sotopia rollout``: plays episodes; ``sotopia merge``: joins parts of runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.models import exit_if_stopped, exit_on_signals, run_with_models, takes_model_options
from sotopia_env.cli.options import (
    EVALUATOR_HELP,
    SOURCE_HELP,
    Number,
    Probe,
    no_facts,
    path_argument,
    path_option,
)
from sotopia_env.cli.plain_help import MODELS, ORDER, PACE
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.quoting import escape, escape_line

if TYPE_CHECKING:
    from sotopia_env.concurrency.stopping import Stop
    from sotopia_env.runs.parts import Part
    from sotopia_env.runs.plan import EpisodePlan
    from sotopia_env.runs.rollout import RunResult
    from sotopia_env.runs.spec import RunSpec
    from sotopia_env.world.episode import Episode, RecordedTurn

RUN = "run.json"
_EXECUTORS = ("local", "ray")
_MOST_SHOWN = 10
_order, _pace, _model = (partial(typer.Option, rich_help_panel=panel) for panel in (ORDER, PACE, MODELS))


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("policies")(list_policies)
    app.command("rollout")(takes_model_options(rollout))
    app.command("merge")(merge)


def list_policies() -> None:
    """List the policies that have a name of their own, each with a description and its parameters.

    \b
    Other policies are named as follows, wherever a command takes a policy:
      local/my-model                           a model on your own server (--api-base)
      openai/gpt-4o:temperature=0.7,reasks=1   a provider's model, with settings
      best-of-8(local/my-model by offer-worth) the best of 8 candidates by a scorer
      boulware+authority:strong                a script that adds manipulation to its words (docs/manipulation.md)
      my_package.my_module:factory:key=value   your own class or function (scorers too)
      runs/sft/adapter/                        a directory that an installed package opens (scorers too)

    Your own module is imported, also from the working directory, which runs its code: only name modules that you would
    run as a program. `run.json` records the file and the hash of its source under `code`.

    \b
    Example:
      sotopia policies
    """
    from sotopia_env import naming

    for name, about, parameters in naming.described_policies():
        typer.echo(name)
        typer.echo(f"    {about}")
        if parameters:
            typer.echo("    " + ",".join(f"{key}={value}" for key, value in parameters.items()))


def rollout(
    out: Annotated[
        Path | None, path_option("Run directory; a run in it is continued. By default the directory of a run.json.")
    ] = None,
    config: Annotated[
        Path | None, path_option("YAML file of a run, or the run.json of one; flags take precedence.", "--config")
    ] = None,
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="Policies, all against all; comma-separated or repeated. See `sotopia policies`."
        ),
    ] = [],  # noqa: B006
    matchup: Annotated[
        list[str], typer.Option(metavar="NAMES", help="A single pairing, as 'a vs b'; 'a vs a' is self-play.")
    ] = [],  # noqa: B006
    tasks: Annotated[str | None, typer.Option(help=SOURCE_HELP, metavar="SOURCE", show_default="all")] = None,
    n: Number = None,
    evaluator: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"{EVALUATOR_HELP[:-1]}; or 'none'.", show_default="verified"),
    ] = None,
    probe: Probe = None,
    repeats: Annotated[int | None, _order(help="Repetitions with other seeds.", show_default="1")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of generated tasks and of the episodes.", show_default="0")
    ] = None,
    max_turns: Annotated[int | None, _order(help="Turn limit; the task's or 20.")] = None,
    temperature: Annotated[
        float | None, _model(min=0, max=2, help="Temperature of models in seats; 1 by default.")
    ] = None,
    concurrency: Annotated[int | None, _pace(help="Episodes in flight at once.", show_default="128")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only forecast calls, tokens and cost.")] = False,
    verbose: Annotated[bool, _pace("--verbose", help="Show the transcript of one episode at a time.")] = False,
    executor: Annotated[
        str, _pace(help="Where episodes are played: local, ray, or ray:N for N processes.", metavar="NAME")
    ] = "local",
    part: Annotated[
        str | None, _pace(metavar="I/N", help="Play only share I of N; `sotopia merge` joins the shares.")
    ] = None,
    *,
    settings: Any = None,
) -> None:
    """Play episodes and record them; the same command continues a run that was stopped.

    Settings without a flag can be given in a YAML file (--config) or with --set; they are the fields of
    `sotopia_env.runs.RunSpec` (docs/running.md). `run.json` records them.

    \b
    Examples:
      sotopia rollout --policy boulware,conceder --tasks bargaining -n 20 --out runs/a
      sotopia rollout --matchup "stubborn vs generous" --tasks all --set orders=both --out runs/b
      sotopia rollout --policy random --evaluator none --out runs/c
      sotopia rollout --tasks mini_mafia --policy bayesian --evaluator verified+facts --probe turns --out runs/i
      sotopia rollout --policy local/my-model --api-base http://localhost:8000/v1 --out runs/d
      sotopia rollout --policy "best-of-4(local/m by offer-worth)" --api-base http://localhost:8000/v1 --out runs/f
      sotopia rollout --policy openai/gpt-4o --evaluator "judge:openai/gpt-4o" --max-cost 5 --dry-run --out runs/e
      sotopia rollout --config run.yaml --out runs/g
      sotopia rollout --config runs/a/run.json --out runs/again
      sotopia rollout --config run.yaml --part 3/16 --out runs/h
    """
    from sotopia_env.runs.parts import Part

    flags = {
        "policies": tuple(policy),
        "matchups": tuple(matchup),
        "tasks": tasks,
        "n": n,
        "seed": seed,
        "evaluator": evaluator,
        "repeats": repeats,
        "max_turns": max_turns,
        "concurrency": concurrency,
        "manner": {} if temperature is None else {"temperature": temperature},
    }
    specs = _specs(flags, settings or {}, config)
    if probe is not None:
        specs = [_with_probes(spec, probe) for spec in specs]
    share = None if part is None else Part.parse(part)
    workers = _workers(executor, verbose, share)
    directory = _directory(out, config)
    if dry_run:
        for spec in specs:
            forecast_spec(spec, directory, share)
    else:
        _play_specs(specs, directory, workers, verbose, share)


def _specs(flags: Mapping[str, Any], settings: dict[str, Any], config: Path | None) -> list[RunSpec]:
    """Returns the run of the flags, or those of ``config`` changed by the flags."""
    from sotopia_env.foundation.settings import merged, settings_of
    from sotopia_env.runs.spec import RunSpec, read_specs

    values = merged(settings, {name: value for name, value in flags.items() if value not in (None, (), {})})
    return [settings_of(values, RunSpec, "")] if config is None else read_specs(config, values)


def _with_probes(spec: RunSpec, probe: str) -> RunSpec:
    """Returns the run with the moments of its probes in the evaluator's name, which `run.json` records."""
    from sotopia_env import naming

    evaluator = naming.with_probes(spec.evaluator, probe)
    if all(task.scenario.facts is None for task in spec.task_set()):
        raise no_facts(spec.tasks)
    return spec.model_copy(update={"evaluator": evaluator})


def _workers(executor: str, verbose: bool, part: Part | None) -> int:
    """Returns the number of Ray processes, after a check of what Ray cannot do; 0 for this process."""
    workers = _ray_workers(executor)
    if workers and verbose:
        raise InvalidValueError(
            "episodes are not played in this process", field="--verbose", hint="use --executor local"
        )
    if workers and part is not None:
        raise InvalidValueError("Ray plays all parts", field="--part", hint="use --executor local")
    return workers


def _directory(out: Path | None, config: Path | None) -> Path:
    """Returns the run directory; a run.json is in its own, so that one is continued by default."""
    if out is not None:
        return out
    if config is None or config.name != RUN:
        raise InvalidValueError(field="--out", expected="a run directory")
    return config.parent


def _play_specs(specs: Sequence[RunSpec], directory: Path, workers: int, verbose: bool, part: Part | None) -> None:
    """Plays the runs of one directory; exits with 1 if anything is missing in one of them."""
    # A list, so that a failure in one spec does not keep the others from being played.
    failed = [play_spec(spec, directory, workers, verbose, part) for spec in specs]
    following = ("show", "compare") if part is None else ("merge",)
    typer.echo("next: " + ", ".join(f"`sotopia {name} {shlex.quote(str(directory))}`" for name in following))
    if any(failed):
        raise typer.Exit(1)


def _ray_workers(name: str) -> int:
    """Returns the number of Ray processes of an executor; 0 for ``local``."""
    executor, _, number = name.partition(":")
    if executor not in _EXECUTORS:
        raise UnknownNameError(field="--executor", got=executor, valid=_EXECUTORS)
    if executor == "local":
        return 0
    if number and (not number.isdecimal() or not int(number)):
        raise InvalidValueError(field="--executor", expected="ray:N for N processes", got=name)
    return int(number or 2)


def play_spec(spec: RunSpec, out: Path, workers: int = 0, verbose: bool = False, part: Part | None = None) -> bool:
    """Plays a run or a part of it; returns whether an episode failed or is unscored, or a policy wrote no action."""
    result, number = _run_on_ray(spec, out, workers) if workers else _run_here(spec, out, verbose, part)
    # The driver of a Ray cluster calls no models itself, so unscored episodes need another command.
    on_ray = f"`sotopia evaluate {out} --evaluator {shlex.quote(spec.evaluator)}`, with the same options of models,"
    typer.echo(f"{result.run_dir}: {_summary(result, on_ray if workers else 'the same command')}")
    for line in result.usability.lines():
        typer.echo(f"sotopia: {line}", err=True)
    budget = "" if number else " with a higher limit"
    exit_if_stopped(result.stopped, number, f"the same command{budget} continues the run in {out}")
    return bool(result.failures or result.unscored or result.usability.useless)


def _run_here(spec: RunSpec, out: Path, verbose: bool, part: Part | None) -> tuple[RunResult, int | None]:
    """Plays a run, or a part of it, in this process; returns the result, and the signal that stopped it, if any."""
    from tqdm import tqdm

    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.runs.forecast import check_prompts
    from sotopia_env.runs.rollout import run_episodes

    models = ModelPool(spec.models)
    run = spec.resolve(models)
    check_prompts(spec, out, 1 if part is None else part.count)
    if part is not None:
        if models.names:
            spec.models.check_divisible(part.count, models.longest, "part")
        # The policies are made again, with models under the limits of the part.
        models = ModelPool(part.limits(spec.models, out))
        run = spec.resolve(models, check_limits=False)
    plans = run.plans()

    async def play(stop: Stop) -> RunResult:
        return await run_episodes(
            plans,
            evaluator=run.evaluator,
            run_dir=out,
            concurrency=spec.concurrency,
            timeout=spec.timeout,
            stop=stop,
            ledger=models.ledger,
            watcher=LiveTranscript(tqdm.write) if verbose else None,
            spec=spec,
            part=part,
        )

    directory = out if part is None else part.path(out)
    return run_with_models(models, directory, play, f"the same command continues the run in {directory}")


def merge(
    runs: Annotated[list[Path], path_argument("Run directories whose parts are joined.", "RUN...")],
) -> None:
    """Join the parts of runs, and check that every planned episode is recorded once. Exit code 1: some are missing.

    `sotopia rollout --part I/N --out RUN` plays one part. Run it with every I from 1 to N, as tasks of a Slurm array,
    as pods of a Kubernetes job or by hand. Copy parts from other machines into RUN/parts first. The same command, with
    or without --part, plays the episodes that are missing after the merge.

    \b
    Examples:
      sotopia merge runs/a
      sbatch --array=1-16 --wrap 'sotopia rollout --config run.yaml --part $SLURM_ARRAY_TASK_ID/16 --out runs/a'
    """
    from sotopia_env.runs.parts import merge_run

    incomplete = False
    for run in runs:
        result = merge_run(run)
        planned = "" if result.planned is None else f" of {result.planned} planned"
        parts = [f"{result.recorded} episodes{planned}, {result.new} of them merged now"]
        if result.failed:
            parts.append(f"{result.failed} failed (failures.jsonl)")
        if result.missing:
            absent = f" (absent parts: {', '.join(result.absent[:_MOST_SHOWN])})" if result.absent else ""
            parts.append(f"{result.missing} missing{absent}; the command that plays them continues the run")
        typer.echo(f"{run}: {'; '.join(parts)}")
        incomplete |= bool(result.failed or result.missing)
    if incomplete:
        raise typer.Exit(1)


def _run_on_ray(spec: RunSpec, out: Path, workers: int) -> tuple[RunResult, int | None]:
    """Plays a run on Ray; returns the result, and the signal that stopped it, if any."""
    from sotopia_env.concurrency.stopping import Stop
    from sotopia_env.runs.ray_executor import run_on_ray

    stop = Stop()
    with exit_on_signals(stop, f"the same command continues the run in {out}"):
        result = run_on_ray(spec, out, workers=workers, stop=stop)
    return result, stop.signal


def forecast_spec(spec: RunSpec, out: Path, part: Part | None = None) -> None:
    """Prints the calls, tokens and cost of a run or a part of it."""
    from sotopia_env.runs.forecast import StandInModels, forecast

    models = StandInModels(spec.models)
    for line in forecast(spec.resolve(models), models, out, part).lines():
        typer.echo(line)


def _summary(result: RunResult, again: str) -> str:
    from sotopia_env.storage.directory import is_unscored

    parts = [f"{result.planned} episodes planned, {result.played} played now, {result.resumed} before"]
    if result.unscored:
        every = "all" if result.unscored == result.played + result.resumed else str(result.unscored)
        reasons = (item.evaluations[-1].unscored for item in result.episodes if is_unscored(item))
        reason = escape_line(next(reasons, None) or "")
        parts.append(f"{every} unscored (the first: {reason}; {again} evaluates again)")
    if result.unfinished:
        parts.append(f"{result.unfinished} unfinished; the same command resumes them after their last turn")
    if result.failures:
        first = result.failures[0]
        reason = escape_line(f"{first.kind}: {first.message}")
        parts.append(f"{len(result.failures)} failed, the first with {reason} (failures.jsonl)")
        parts.append("run the same command again to retry them")
    return "; ".join((*parts, *result.repaired))


class LiveTranscript:
    """A :class:`~sotopia_env.runs.play.Watcher` that writes the transcript of one episode at a time."""

    def __init__(self, write: Callable[[str], object]) -> None:
        """Creates the watcher, which follows the first episode that starts.

        Args:
            write: writes lines of text.
        """
        self._write = write
        self._key = ""

    def turn(self, plan: EpisodePlan, turn: RecordedTurn) -> None:
        """Writes the turn if it belongs to the episode that is followed."""
        from sotopia_env.reports.transcript import beginning, turn_text

        # An episode is followed from its first turn or not at all.
        if not self._key and turn.turn.index == 0:
            self._key = plan.key
            policies = dict(zip(plan.task.agents, (policy.name for policy in plan.policies), strict=True))
            self._print(beginning(plan.key, plan.task, plan.episode_seed, policies))
        if plan.key == self._key:
            self._print(turn_text(turn, plan.task, plan.rules))

    def end(self, plan: EpisodePlan, episode: Episode | None, why: str = "") -> None:
        """Writes the end of the episode; the next episode that starts is followed then."""
        from sotopia_env.reports.transcript import conclusion

        if plan.key == self._key:
            self._key = ""
            self._print((conclusion(episode) if episode is not None else f"Not finished: {escape_line(why)}") + "\n")

    def _print(self, text: str) -> None:
        self._write(escape(text))
