"""Commands that make runs and read them: ``policies``, ``rollout``, ``evaluate``, ``show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sotopia_env.command_options import (
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
from sotopia_env.command_words import make_evaluator, read_matchups, task_set
from sotopia_env.errors import InvalidValueError

if TYPE_CHECKING:
    from sotopia_env.episode import Episode, Evaluator
    from sotopia_env.plan import EpisodePlan
    from sotopia_env.rollout import EvaluationResult, RunResult


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("policies")(list_policies)
    app.command()(rollout)
    app.command()(evaluate)
    app.command()(show)


def list_policies() -> None:
    """List the policies that need no language model.

    \b
    Example:
      sotopia policies
    """
    from sotopia_env import policies

    typer.echo("\n".join(policies.NAMES))


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
) -> None:
    """Play episodes and record them; the same command again continues a run that was stopped.

    \b
    Examples:
      sotopia rollout --policy boulware,conceder --tasks bargaining -n 20 --out runs/a
      sotopia rollout --matchup "stubborn vs generous" --tasks all --both-orders --out runs/b
      sotopia rollout --policy random --evaluator none --out runs/c
    """
    from sotopia_env.dynamics import Rules
    from sotopia_env.plan import plan_episodes

    pairings = read_matchups(policy, matchup, self_play)
    plans = plan_episodes(
        task_set(tasks, n, seed, level),
        pairings,
        repeats=repeats,
        seed=seed,
        rules=Rules(turn_order=turn_order, max_turns=max_turns),  # type: ignore[arg-type]  # checked there
        both_seats=both_seats,
        both_orders=both_orders,
    )
    result = _run(plans, make_evaluator(evaluator), out, concurrency, timeout)
    typer.echo(f"{out}: {_summary(result)}")
    if result.failures or (result.unscored and result.unscored == result.played + result.resumed):
        raise typer.Exit(1)


def _run(
    plans: list[EpisodePlan], evaluator: Evaluator | None, out: Path, concurrency: int, timeout: float | None
) -> RunResult:
    from sotopia_env.rollout import run_episodes

    try:
        return run_episodes(plans, evaluator=evaluator, run_dir=out, concurrency=concurrency, timeout=timeout)
    except KeyboardInterrupt:
        typer.echo(f"\nsotopia: interrupted; the same command continues the run in {out}", err=True)
        raise typer.Exit(130) from None


def _summary(result: RunResult) -> str:
    parts = [f"{result.planned} episodes planned, {result.played} played now, {result.resumed} were there"]
    if result.unscored:
        every = "every one" if result.unscored == result.played + result.resumed else str(result.unscored)
        parts.append(f"{every} unscored (`sotopia compare` says why)")
    if result.failures:
        first = result.failures[0]
        parts.append(f"{len(result.failures)} failed, the first with {first.kind}: {first.message} (failures.jsonl)")
        parts.append("run the same command again to retry them")
    return "; ".join((*parts, *result.repaired))


def evaluate(
    run: Annotated[Path, path_argument("Run directory.", "RUN")],
    evaluator: Annotated[str, typer.Option(help="'verified', 'rules' or 'verified+rules'.")],
    concurrency: Concurrency = 128,
    timeout: Timeout = None,
    force: Annotated[bool, typer.Option("--force", help="Evaluate all again; failures may replace scores.")] = False,
) -> None:
    """Add an evaluation to every episode of a run, beside those it has; turns stay as they are.

    The same command again continues one that was interrupted.

    \b
    Examples:
      sotopia evaluate runs/a --evaluator rules
      sotopia evaluate runs/a --evaluator rules --force
    """
    from sotopia_env import evaluators
    from sotopia_env.rollout import evaluate_run

    judge = evaluators.make(evaluator)
    try:
        result = evaluate_run(run, judge, concurrency=concurrency, timeout=timeout, force=force)
    except KeyboardInterrupt:
        typer.echo(f"\nsotopia: interrupted; the same command continues the evaluation of {run}", err=True)
        raise typer.Exit(130) from None
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
    from sotopia_env.rollout import read_run
    from sotopia_env.transcript import to_text

    if episode is None:
        for index, item in enumerate(read_run(run)):
            typer.echo(f"{index}\t{item.key}\t{len(item.turns)} turns\t{item.stop.value if item.stop else ''}")
        return
    typer.echo(to_text(_find(run, episode)), nl=False)


def _find(run: Path, wanted: str) -> Episode:
    from sotopia_env.rollout import read_run

    matches = [item for index, item in enumerate(read_run(run)) if str(index) == wanted or item.key.startswith(wanted)]
    exact = [item for item in matches if item.key == wanted]
    if len(exact or matches) != 1:
        raise InvalidValueError(
            f"episode: expected an index or the beginning of one key in {run}, got {wanted!r}, which fits "
            f"{len(matches)}; `sotopia show {run}` lists them"
        )
    return (exact or matches)[0]
