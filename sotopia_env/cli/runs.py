"""Commands that make runs and read them: ``policies``, ``rollout``, ``evaluate``, ``show``."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.models import exit_if_stopped, exit_refused, run_with_models, spending, takes_model_options
from sotopia_env.cli.options import (
    EVALUATOR_HELP,
    Concurrency,
    EvaluatorName,
    LevelName,
    Number,
    Seed,
    SourceOption,
    Timeout,
    path_argument,
    path_option,
)
from sotopia_env.errors import InvalidValueError, ModelRefusedError, UnknownNameError, name_hint
from sotopia_env.reports.transcript import beginning, conclusion, printable, turn_text
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.world.episode import Episode, RecordedTurn

if TYPE_CHECKING:
    from sotopia_env.runs.request import RunRequest
    from sotopia_env.runs.rollout import EvaluationResult, RunResult
    from sotopia_env.world.episode import Episode


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("policies")(list_policies)
    app.command("rollout")(takes_model_options(rollout))
    app.command("evaluate")(takes_model_options(evaluate))
    app.command("show")(show)


def list_policies() -> None:
    """List the policies that need no language model, those of other packages included.

    \b
    Others are named by what they are made of, wherever a command takes a policy:
      local/my-model                           a model on a server of your own (--api-base)
      openai/gpt-4o:temperature=0.7,reasks=1   a provider's model, with settings
      best-of-8(local/my-model by offer-worth) the best of 8 candidates by a scorer
      my_package.my_module:factory:key=value   your own class or function (scorers too)
      runs/sft/adapter/                        a directory that an installed package opens (scorers too)

    \b
    Example:
      sotopia policies
    """
    from sotopia_env import naming

    typer.echo("\n".join((*naming.POLICY_NAMES, *naming.POLICY_PLUGINS.names)))


def rollout(
    out: Annotated[Path, path_option("Run directory; one that holds this run is continued.")],
    policy: Annotated[list[str], typer.Option(help="Each plays each; commas or repeats. See `sotopia policies`.")] = [],  # noqa: B006
    matchup: Annotated[list[str], typer.Option(help="A single pairing, as 'a vs b'.")] = [],  # noqa: B006
    tasks: SourceOption = "starter",
    n: Number = None,
    level: LevelName = "medium",
    evaluator: EvaluatorName = "verified+rules",
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions with other seeds.")] = 1,
    seed: Seed = 0,
    turn_order: Annotated[str, typer.Option(help="round-robin, random or simultaneous.")] = "round-robin",
    max_turns: Annotated[int | None, typer.Option(min=1, help="Turn limit; the task's or 20.")] = None,
    self_play: Annotated[bool, typer.Option(help="Policies also play themselves.")] = True,
    both_seats: Annotated[bool, typer.Option(help="Play every pairing in both seats.")] = True,
    both_orders: Annotated[bool, typer.Option(help="Let every seat begin once.")] = False,
    concurrency: Concurrency = 128,
    timeout: Timeout = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="Of models in seats; 1 by default.")] = None,
    max_completion_tokens: Annotated[int | None, typer.Option(min=1, help="Limit on a seat's answers.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked at most; ask nothing.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show one transcript as it grows.")] = False,
    executor: Annotated[str, typer.Option(help="Where episodes are played: local or ray.")] = "local",
    workers: Annotated[int, typer.Option(min=1, help="Processes of --executor ray.")] = 2,
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
    from sotopia_env.runs.request import RunRequest
    from sotopia_env.world.dynamics import Rules

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
        rules=Rules(turn_order=turn_order, max_turns=max_turns),  # type: ignore[arg-type]  # checked there
        self_play=self_play,
        both_seats=both_seats,
        both_orders=both_orders,
        manner={name: value for name, value in manner.items() if value is not None},
        models=models or ModelOptions(),
    )
    if executor not in _EXECUTORS:
        raise UnknownNameError(f"--executor: {name_hint(executor, _EXECUTORS)}")
    if dry_run:
        _forecast(request, out)
        return
    if executor == "ray" and verbose:
        raise InvalidValueError("--verbose: expected --executor local, whose episodes are played here, got 'ray'")
    run = _run_on_ray if executor == "ray" else _run_here
    result, number = run(request, out, concurrency, timeout, *([workers] if executor == "ray" else [verbose]))
    typer.echo(f"{out}: {_summary(result, out, evaluator)}")
    budget = "" if number else " with a higher limit"
    exit_if_stopped(result.stopped, number, f"the same command{budget} continues the run in {out}")
    if result.failures or (result.unscored and result.unscored == result.played + result.resumed):
        raise typer.Exit(1)


_EXECUTORS = ("local", "ray")


def _run_here(
    request: RunRequest, out: Path, concurrency: int, timeout: float | None, verbose: bool
) -> tuple[RunResult, int | None]:
    """The run, and the signal that stopped it if one did."""
    from tqdm import tqdm

    from sotopia_env.chat_model.pool import RunModels

    pass
    from sotopia_env.runs.rollout import run_episodes_async
    from sotopia_env.runs.stopping import Stop

    models = RunModels(request.models)
    plans, evaluator = request.plans(models), request.judge(models)
    numbers: list[int | None] = []

    async def work(stop: Stop) -> RunResult:
        try:
            return await run_episodes_async(
                plans,
                evaluator=evaluator,
                run_dir=out,
                concurrency=concurrency,
                timeout=timeout,
                stop=stop,
                ledger=models.ledger,
                watcher=LiveTranscript(tqdm.write) if verbose else None,
            )
        finally:
            numbers.append(stop.signal)

    result = run_with_models(models, out, work, f"the same command continues the run in {out}")
    for line in spending(models):
        typer.echo(line)
    return result, numbers[0]


def _run_on_ray(
    request: RunRequest, out: Path, concurrency: int, timeout: float | None, workers: int
) -> tuple[RunResult, int | None]:
    """The run, and the signal that stopped it if one did."""
    from sotopia_env.runs.ray_executor import run_on_ray
    from sotopia_env.runs.stopping import Stop, stop_on_signals

    stop, again = Stop(), f"the same command continues the run in {out}"
    with stop_on_signals(stop, lambda text: typer.echo(f"\nsotopia: {text}", err=True)):
        try:
            result = run_on_ray(request, out, workers=workers, concurrency=concurrency, timeout=timeout, stop=stop)
        except ModelRefusedError as error:
            exit_refused(error, again)
        except KeyboardInterrupt:
            typer.echo(f"\nsotopia: interrupted; {again}", err=True)
            raise typer.Exit(128 + (stop.signal or signal.SIGINT)) from None
    return result, stop.signal


def _forecast(request: RunRequest, out: Path) -> None:
    from sotopia_env.runs.forecast import forecast

    for line in forecast(request, out):
        typer.echo(line)


def _summary(result: RunResult, out: Path, evaluator: str) -> str:
    parts = [f"{result.planned} episodes planned, {result.played} played now, {result.resumed} were there"]
    if result.unscored:
        every = "every one" if result.unscored == result.played + result.resumed else str(result.unscored)
        again = f"`sotopia evaluate {out} --evaluator {shlex.quote(evaluator)}` evaluates again"
        parts.append(f"{every} unscored (`sotopia compare` says why, {again})")
    if result.dropped:
        parts.append(f"{result.dropped} under way were dropped and will be played again")
    if result.failures:
        first = result.failures[0]
        parts.append(f"{len(result.failures)} failed, the first with {first.kind}: {first.message} (failures.jsonl)")
        parts.append("run the same command again to retry them")
    return "; ".join((*parts, *result.repaired))


def evaluate(
    run: Annotated[Path, path_argument("Run directory.", "RUN")],
    evaluator: Annotated[str, typer.Option(help=EVALUATOR_HELP)],
    concurrency: Concurrency = 128,
    timeout: Timeout = None,
    force: Annotated[bool, typer.Option("--force", help="Evaluate all again; failures may replace scores.")] = False,
    *,
    models: Any = None,
) -> None:
    """Add an evaluation to every episode of a run, beside those it has; turns stay as they are.

    The same command again continues one that was interrupted.

    \b
    Examples:
      sotopia evaluate runs/a --evaluator rules
      sotopia evaluate runs/a --evaluator rules --force
      sotopia evaluate runs/a --evaluator "judge:local/my-model?bands=true" --api-base http://localhost:8000/v1
      sotopia evaluate runs/a --evaluator "mean(judge:openai/gpt-4o+judge:anthropic/claude-sonnet-4-5)"
      sotopia evaluate runs/a --evaluator "views:local/my-model?interviewee=local/my-model&deciding=all" --api-base …
    """
    from sotopia_env.chat_model.pool import RunModels
    from sotopia_env.runs.request import make_judge
    from sotopia_env.runs.rollout import evaluate_run_async
    from sotopia_env.runs.stopping import Stop
    from sotopia_env.storage.directory import check_run

    made = RunModels(models)
    judge = make_judge(evaluator, made)
    check_run(run)
    numbers: list[int | None] = []

    async def work(stop: Stop) -> EvaluationResult:
        try:
            return await evaluate_run_async(
                run, judge, concurrency=concurrency, timeout=timeout, force=force, stop=stop, ledger=made.ledger
            )
        finally:
            numbers.append(stop.signal)

    again = f"the same command continues the evaluation of {run}"
    result = run_with_models(made, run, work, again)
    for line in spending(made):
        typer.echo(line)
    if result.stopped:
        typer.echo(f"{run}: {result.evaluated} of {result.episodes} episodes evaluated now, kept for the next time")
        exit_if_stopped(result.stopped, numbers[0], again)
    typer.echo(f"{run}: {_verdict(judge.name, result)}")
    if result.unscored or result.refused:
        raise typer.Exit(1)


def _verdict(judge: str, result: EvaluationResult) -> str:
    parts = [f"{result.evaluated} episodes evaluated by {judge}, {result.unscored} unscored"]
    if result.kept:
        parts.append(f"{result.kept} had its scores and kept them (--force evaluates them again)")
    if result.refused:
        parts.append(f"{result.refused} failed now and keep their earlier scores (--force replaces them)")
    if result.reason:
        parts.append(f"the first because of {result.reason}; the same command tries again")
    return "; ".join(parts)


def show(
    run: Annotated[Path, path_argument("Run directory or .jsonl file of episodes.", "RUN")],
    episode: Annotated[str | None, typer.Argument(help="Index from 0, or beginning of a key.")] = None,
) -> None:
    """Show a transcript, private messages marked; without an episode, list them.

    \b
    Examples:
      sotopia show runs/a
      sotopia show runs/a 0
      sotopia show runs/a bargaining-medium-0-3
    """
    from sotopia_env.reports.transcript import to_text
    from sotopia_env.runs.rollout import read_run
    from sotopia_env.storage.directory import read_failures
    from sotopia_env.world.quoting import printable

    if episode is None:
        for index, item in enumerate(read_run(run)):
            typer.echo(
                f"{index}\t{item.key}\t{len(item.turns)} turns\t{item.stop.value if item.stop else ''}{_marks(item)}"
            )
        for failure in read_failures(run) if run.is_dir() else ():
            what = printable(f"{failure.kind}: {failure.message}")
            typer.echo(f"failed\t{failure.key}\t{len(failure.turns)} turns\t{what}")
        return
    typer.echo(to_text(_find(run, episode)), nl=False)


def _marks(episode: Episode) -> str:
    """What was out of order in an episode, in few words."""
    said = [item.generation for item in episode.turns if item.generation is not None]
    latest = episode.evaluation()
    counts = {
        "asked again": sum(generation.reasks for generation in said),
        "call failed": len(episode.errors),
        "not an action": sum(generation.parse_failure is not None for generation in said),
        "not possible": sum(bool(item.turn.violation) for item in episode.turns),
        "shortened": sum(generation.dropped_turns > 0 for generation in said),
        "unscored": int(latest is not None and latest.unscored is not None),
    }
    shown = ", ".join(f"{what} {count}" if count > 1 else what for what, count in counts.items() if count)
    return f"\t{shown}" if shown else ""


def _find(run: Path, wanted: str) -> Episode:
    from sotopia_env.runs.rollout import read_run

    matches = [item for index, item in enumerate(read_run(run)) if str(index) == wanted or item.key.startswith(wanted)]
    exact = [item for item in matches if item.key == wanted]
    if len(exact or matches) != 1:
        raise InvalidValueError(
            f"episode: expected an index or the beginning of one key in {run}, got {wanted!r}, which fits "
            f"{len(matches)}; `sotopia show {run}` lists them"
        )
    return (exact or matches)[0]


class LiveTranscript:
    """A :class:`~sotopia_env.runs.play.Watcher` that writes one episode at a time."""

    def __init__(self, say: Callable[[str], object]) -> None:
        """Begins.

        Args:
            say: writes some lines.
        """
        self._say = say
        self._key = ""

    def turn(self, plan: EpisodePlan, turn: RecordedTurn) -> None:
        """Writes the turn if its episode is the one that is followed."""
        if not self._key and turn.turn.index == 0:  # from the beginning or not at all
            self._key = plan.key
            policies = dict(zip(plan.task.agents, (policy.name for policy in plan.policies), strict=True))
            self._say(printable(beginning(plan.key, plan.task, plan.episode_seed, policies)))
        if plan.key == self._key:
            self._say(printable(turn_text(turn, plan.task, plan.rules)))

    def end(self, plan: EpisodePlan, episode: Episode | None, why: str = "") -> None:
        """Writes how it ended, and looks for another episode to follow."""
        if plan.key != self._key:
            return
        self._key = ""
        self._say(printable(conclusion(episode) if episode is not None else f"Not finished: {why}") + "\n")
