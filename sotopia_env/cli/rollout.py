"""``sotopia policies``: the policies by name; ``sotopia rollout``: episodes between them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.models import exit_if_stopped, exit_on_signals, run_with_models, takes_model_options
from sotopia_env.cli.options import (
    Concurrency,
    EvaluatorName,
    LevelName,
    Number,
    Seed,
    SourceOption,
    Timeout,
    path_option,
)
from sotopia_env.cli.plain_help import MODELS, ORDER, PACE
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.quoting import disarm, disarm_line

if TYPE_CHECKING:
    from sotopia_env.concurrency.stopping import Stop
    from sotopia_env.runs.plan import EpisodePlan
    from sotopia_env.runs.request import RunRequest
    from sotopia_env.runs.rollout import RunResult
    from sotopia_env.world.episode import Episode, RecordedTurn

_EXECUTORS = ("local", "ray")
_order, _pace, _model = (partial(typer.Option, rich_help_panel=panel) for panel in (ORDER, PACE, MODELS))


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("policies")(list_policies)
    app.command("rollout")(takes_model_options(rollout))


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
    out: Annotated[Path, path_option("Run directory; one that holds this run is continued.")],
    policy: Annotated[
        list[str], typer.Option(metavar="NAME", help="Each plays each; commas or repeats. See `sotopia policies`.")
    ] = [],  # noqa: B006
    matchup: Annotated[
        list[str], typer.Option(metavar="NAMES", help="A single pairing, as 'a vs b'; 'a vs a' is self-play.")
    ] = [],  # noqa: B006
    tasks: SourceOption = "starter",
    n: Number = None,
    level: LevelName = "medium",
    evaluator: EvaluatorName = "verified+rules",
    repeats: Annotated[int, _order(min=1, help="Repetitions with other seeds.")] = 1,
    seed: Seed = 0,
    turn_order: Annotated[
        str | None,
        _order(help="round-robin, random or simultaneous; a YAML task file's, or round-robin."),
    ] = None,
    max_turns: Annotated[int | None, _order(min=1, help="Turn limit; the task's or 20.")] = None,
    self_play: Annotated[bool, _order(help="Policies also play themselves.")] = True,
    both_seats: Annotated[bool, _order(help="Play every pairing in both seats.")] = True,
    both_orders: Annotated[bool, _order(help="Let every seat begin once.")] = False,
    by_role: Annotated[bool, _order("--by-role", help="Pair senders with receivers, not seat with seat.")] = False,
    concurrency: Concurrency = 128,
    timeout: Timeout = None,
    temperature: Annotated[float | None, _model(min=0, max=2, help="Of models in seats; 1 by default.")] = None,
    max_completion_tokens: Annotated[int | None, _model(min=1, help="Limit on a seat's answers.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked at most; ask nothing.")] = False,
    verbose: Annotated[bool, _pace("--verbose", help="Show one transcript as it grows.")] = False,
    executor: Annotated[str, _pace(help="Where episodes are played: local or ray.")] = "local",
    workers: Annotated[int, _pace(min=1, help="Processes of --executor ray.")] = 2,
    *,
    models: Any = None,
) -> None:
    """Play episodes and record them; the same command again continues a run that was stopped.

    \b
    Examples:
      sotopia rollout --policy boulware,conceder --tasks bargaining -n 20 --out runs/a
      sotopia rollout --matchup "stubborn vs generous" --tasks all --both-orders --out runs/b
      sotopia rollout --policy random --evaluator none --out runs/c
      sotopia rollout --policy local/my-model --api-base http://localhost:8000/v1 --out runs/d
      sotopia rollout --policy "best-of-4(local/m by offer-worth)" --api-base http://localhost:8000/v1 --out runs/f
      sotopia rollout --policy openai/gpt-4o --evaluator "judge:openai/gpt-4o" --max-cost 5 --dry-run --out runs/e
    """
    from sotopia_env.chat_model.pool import ModelOptions
    from sotopia_env.naming import task_rules
    from sotopia_env.runs.request import RunRequest

    manner = {"temperature": temperature, "max_tokens": max_completion_tokens}
    request = RunRequest(
        policies=tuple(policy),
        matchups=tuple(matchup),
        tasks=tasks,
        n=n,
        level=level,
        seed=seed,
        evaluator=evaluator,
        repeats=repeats,
        rules=task_rules(tasks, turn_order=turn_order, max_turns=max_turns),
        self_play=self_play,
        both_seats=both_seats,
        both_orders=both_orders,
        by_role=by_role,
        manner={name: value for name, value in manner.items() if value is not None},
        models=models or ModelOptions(),
    )
    if executor not in _EXECUTORS:
        raise UnknownNameError(f"--executor: {name_hint(executor, _EXECUTORS)}")
    if executor == "ray" and verbose:
        raise InvalidValueError("--verbose: expected --executor local, whose episodes are played here, got 'ray'")
    if dry_run:
        _forecast(request, out)
        return
    if executor == "ray":
        result, number = _run_on_ray(request, out, concurrency, timeout, workers)
    else:
        result, number = _run_here(request, out, concurrency, timeout, verbose)
    # The driver of a Ray cluster asks no models; another command does that.
    on_ray = f"`sotopia evaluate {out} --evaluator {shlex.quote(evaluator)}`, with the same options of models,"
    typer.echo(f"{out}: {_summary(result, on_ray if executor == 'ray' else 'the same command')}")
    budget = "" if number else " with a higher limit"
    exit_if_stopped(result.stopped, number, f"the same command{budget} continues the run in {out}")
    if result.failures or result.unscored:
        raise typer.Exit(1)


def _run_here(
    request: RunRequest, out: Path, concurrency: int, timeout: float | None, verbose: bool
) -> tuple[RunResult, int | None]:
    """The run, and the signal that stopped it if one did."""
    from tqdm import tqdm

    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.runs.forecast import check_prompts
    from sotopia_env.runs.rollout import run_episodes_async

    models = ModelPool(request.models)
    run = request.resolve(models)
    check_prompts(request, out)
    plans = run.plans()

    async def play(stop: Stop) -> RunResult:
        return await run_episodes_async(
            plans,
            evaluator=run.evaluator,
            run_dir=out,
            concurrency=concurrency,
            timeout=timeout,
            stop=stop,
            ledger=models.ledger,
            watcher=LiveTranscript(tqdm.write) if verbose else None,
        )

    return run_with_models(models, out, play, f"the same command continues the run in {out}")


def _run_on_ray(
    request: RunRequest, out: Path, concurrency: int, timeout: float | None, workers: int
) -> tuple[RunResult, int | None]:
    """The run, and the signal that stopped it if one did."""
    from sotopia_env.concurrency.stopping import Stop
    from sotopia_env.runs.ray_executor import run_on_ray

    stop = Stop()
    with exit_on_signals(stop, f"the same command continues the run in {out}"):
        result = run_on_ray(request, out, workers=workers, concurrency=concurrency, timeout=timeout, stop=stop)
    return result, stop.signal


def _forecast(request: RunRequest, out: Path) -> None:
    from sotopia_env.runs.forecast import forecast
    from sotopia_env.runs.rehearsal import RehearsedModels

    models = RehearsedModels(request.models)
    for line in forecast(request.resolve(models), models, out).lines():
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
