"""``sotopia policies``: the policies by name; ``sotopia rollout``: episodes between them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.models import exit_if_stopped, exit_on_signals, run_with_models, takes_model_options
from sotopia_env.cli.options import EVALUATOR_HELP, SOURCE_HELP, Number, path_argument, path_option
from sotopia_env.cli.plain_help import MODELS, ORDER, PACE
from sotopia_env.errors import InvalidValueError, UnknownNameError
from sotopia_env.quoting import disarm, disarm_line

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
    """List the policies that need no language model, each with a line and its parameters.

    \b
    Others are named by what they are made of, wherever a command takes a policy:
      local/my-model                           a model on a server of your own (--api-base)
      openai/gpt-4o:temperature=0.7,reasks=1   a provider's model, with settings
      best-of-8(local/my-model by offer-worth) the best of 8 candidates by a scorer
      my_package.my_module:factory:key=value   your own class or function (scorers too)
      runs/sft/adapter/                        a directory that an installed package opens (scorers too)

    A module of your own is imported, from the working directory too, and that runs its code: name only modules that
    you would run as a program. `run.json` records the file and the hash of its source under `code`.

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
    for name in naming.POLICY_PLUGINS.names:
        typer.echo(f"{name}\n    of an installed package")


def rollout(
    out: Annotated[
        Path | None, path_option("Run directory; one that holds this run is continued. By default that of a run.json.")
    ] = None,
    config: Annotated[
        Path | None, path_option("YAML file of a run, or the run.json of one; flags replace what it says.", "--config")
    ] = None,
    policy: Annotated[
        list[str], typer.Option(metavar="NAME", help="Each plays each; commas or repeats. See `sotopia policies`.")
    ] = [],  # noqa: B006
    matchup: Annotated[
        list[str], typer.Option(metavar="NAMES", help="A single pairing, as 'a vs b'; 'a vs a' is self-play.")
    ] = [],  # noqa: B006
    tasks: Annotated[str | None, typer.Option(help=SOURCE_HELP, metavar="SOURCE", show_default="starter")] = None,
    n: Number = None,
    evaluator: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"{EVALUATOR_HELP[:-1]}; or 'none'.", show_default="verified+rules"),
    ] = None,
    repeats: Annotated[int | None, _order(help="Repetitions with other seeds.", show_default="1")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of generated tasks and of the episodes.", show_default="0")
    ] = None,
    max_turns: Annotated[int | None, _order(help="Turn limit; the task's or 20.")] = None,
    temperature: Annotated[float | None, _model(min=0, max=2, help="Of models in seats; 1 by default.")] = None,
    concurrency: Annotated[int | None, _pace(help="Episodes in flight at once.", show_default="128")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked at most; ask nothing.")] = False,
    verbose: Annotated[bool, _pace("--verbose", help="Show one transcript as it grows.")] = False,
    executor: Annotated[
        str, _pace(help="Where episodes are played: local, ray, or ray:N for N processes.", metavar="NAME")
    ] = "local",
    part: Annotated[
        str | None, _pace(metavar="I/N", help="Play only share I of N; `sotopia merge` joins the shares.")
    ] = None,
    *,
    settings: Any = None,
) -> None:
    """Play episodes and record them; the same command again continues a run that was stopped.

    What the flags do not say stands in a YAML file (--config), or in --set: the settings are those of
    `sotopia_env.runs.RunSpec` (docs/running.md), and `run.json` keeps them.

    \b
    Examples:
      sotopia rollout --policy boulware,conceder --tasks bargaining -n 20 --out runs/a
      sotopia rollout --matchup "stubborn vs generous" --tasks all --set orders=both --out runs/b
      sotopia rollout --policy random --evaluator none --out runs/c
      sotopia rollout --policy local/my-model --api-base http://localhost:8000/v1 --out runs/d
      sotopia rollout --policy "best-of-4(local/m by offer-worth)" --api-base http://localhost:8000/v1 --out runs/f
      sotopia rollout --policy openai/gpt-4o --evaluator "judge:openai/gpt-4o" --max-cost 5 --dry-run --out runs/e
      sotopia rollout --config run.yaml --out runs/g
      sotopia rollout --config runs/a/run.json --out runs/again
      sotopia rollout --config run.yaml --part 3/16 --out runs/h
    """
    from sotopia_env.runs.parts import Part
    from sotopia_env.runs.spec import RunSpec, read_specs
    from sotopia_env.settings import merged, settings_of

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
    values = merged(settings or {}, {name: value for name, value in flags.items() if value not in (None, (), {})})
    specs = [settings_of(values, RunSpec, "")] if config is None else read_specs(config, values)
    place = _Place.named(executor)
    if place.workers and verbose:
        raise InvalidValueError(
            "episodes are not played in this process", field="--verbose", hint="take --executor local"
        )
    share = None if part is None else Part.parse(part)
    if place.workers and share is not None:
        raise InvalidValueError("Ray plays all parts", field="--part", hint="take --executor local")
    if out is None and (config is None or config.name != RUN):
        raise InvalidValueError(field="--out", expected="a run directory")
    directory = out or config.parent  # type: ignore[union-attr]  # checked above
    if dry_run:
        for spec in specs:
            _forecast(spec, directory, share)
        return
    failed = [_play(spec, directory, place, verbose, share) for spec in specs]
    if any(failed):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where episodes are played.

    Attributes:
        workers: processes of Ray; 0 for this process.
    """

    workers: int = 0

    @classmethod
    def named(cls, name: str) -> _Place:
        executor, _, number = name.partition(":")
        if executor not in _EXECUTORS:
            raise UnknownNameError(field="--executor", got=executor, valid=_EXECUTORS)
        if executor == "local":
            return cls()
        if number and (not number.isdecimal() or not int(number)):
            raise InvalidValueError(field="--executor", expected="ray:N for N processes", got=name)
        return cls(int(number or 2))


def _play(spec: RunSpec, out: Path, place: _Place, verbose: bool, part: Part | None) -> bool:
    """Plays a run or a part of it; returns whether an episode failed or is unscored."""
    result, number = _run_on_ray(spec, out, place.workers) if place.workers else _run_here(spec, out, verbose, part)
    # The driver of a Ray cluster asks no models; another command does that.
    on_ray = f"`sotopia evaluate {out} --evaluator {shlex.quote(spec.evaluator)}`, with the same options of models,"
    typer.echo(f"{result.run_dir}: {_summary(result, on_ray if place.workers else 'the same command')}")
    budget = "" if number else " with a higher limit"
    exit_if_stopped(result.stopped, number, f"the same command{budget} continues the run in {out}")
    return bool(result.failures or result.unscored)


def _run_here(spec: RunSpec, out: Path, verbose: bool, part: Part | None) -> tuple[RunResult, int | None]:
    """The run, or a part of it, and the signal that stopped it if one did."""
    from tqdm import tqdm

    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.runs.forecast import check_prompts
    from sotopia_env.runs.rollout import run_episodes_async

    models = ModelPool(spec.models)
    run = spec.resolve(models)
    check_prompts(spec, out, 1 if part is None else part.count)
    if part is not None:
        if models.names:
            spec.models.check_divisible(part.count, models.longest, "part")
        models = ModelPool(part.limits(spec.models, out))
        run = spec.resolve(models, check_limits=False)
    plans = run.plans()

    async def play(stop: Stop) -> RunResult:
        return await run_episodes_async(
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
    """Join the parts of runs, and check that every planned episode is there once. Exit code 1: some are missing.

    `sotopia rollout --part I/N --out RUN` plays a part: the same command with every I from 1 to N, as tasks of a Slurm
    array, as pods of a Kubernetes job or by hand. Parts that other machines wrote are copied into RUN/parts first. What
    is missing after the merge is played by the same command, with or without --part.

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
            absent = f" (not there: {', '.join(result.absent[:_MOST_SHOWN])})" if result.absent else ""
            parts.append(f"{result.missing} missing{absent}; the command that played them continues the run")
        typer.echo(f"{run}: {'; '.join(parts)}")
        incomplete |= bool(result.failed or result.missing)
    if incomplete:
        raise typer.Exit(1)


def _run_on_ray(spec: RunSpec, out: Path, workers: int) -> tuple[RunResult, int | None]:
    """The run, and the signal that stopped it if one did."""
    from sotopia_env.concurrency.stopping import Stop
    from sotopia_env.runs.ray_executor import run_on_ray

    stop = Stop()
    with exit_on_signals(stop, f"the same command continues the run in {out}"):
        result = run_on_ray(spec, out, workers=workers, stop=stop)
    return result, stop.signal


def _forecast(spec: RunSpec, out: Path, part: Part | None) -> None:
    from sotopia_env.runs.forecast import StandInModels, forecast

    models = StandInModels(spec.models)
    for line in forecast(spec.resolve(models), models, out, part).lines():
        typer.echo(line)


def _summary(result: RunResult, again: str) -> str:
    parts = [f"{result.planned} episodes planned, {result.played} played now, {result.resumed} were there"]
    if result.unscored:
        every = "every one" if result.unscored == result.played + result.resumed else str(result.unscored)
        parts.append(f"{every} unscored (`sotopia show` says why, {again} evaluates again)")
    if result.unfinished:
        parts.append(f"{result.unfinished} under way go on from their last turn when the run is continued")
    if result.failures:
        first = result.failures[0]
        reason = disarm_line(f"{first.kind}: {first.message}")
        parts.append(f"{len(result.failures)} failed, the first with {reason} (failures.jsonl)")
        parts.append("run the same command again to retry them")
    return "; ".join((*parts, *result.repaired))


class LiveTranscript:
    """A :class:`~sotopia_env.runs.play.Watcher` that writes one episode at a time."""

    def __init__(self, write: Callable[[str], object]) -> None:
        """Begins without an episode.

        Args:
            write: writes some lines.
        """
        self._write = write
        self._key = ""

    def turn(self, plan: EpisodePlan, turn: RecordedTurn) -> None:
        """Writes the turn if its episode is the one that is followed."""
        from sotopia_env.reports.transcript import beginning, turn_text

        if not self._key and turn.turn.index == 0:  # from the beginning or not at all
            self._key = plan.key
            policies = dict(zip(plan.task.agents, (policy.name for policy in plan.policies), strict=True))
            self._print(beginning(plan.key, plan.task, plan.episode_seed, policies))
        if plan.key == self._key:
            self._print(turn_text(turn, plan.task, plan.rules))

    def end(self, plan: EpisodePlan, episode: Episode | None, why: str = "") -> None:
        """Writes how it ended, and looks for another episode to follow."""
        from sotopia_env.reports.transcript import conclusion

        if plan.key == self._key:
            self._key = ""
            self._print((conclusion(episode) if episode is not None else f"Not finished: {disarm_line(why)}") + "\n")

    def _print(self, text: str) -> None:
        self._write(disarm(text))
