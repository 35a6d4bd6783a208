"""``sotopia evaluate``: adds an evaluation to a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.models import exit_if_stopped, run_with_models, takes_model_options
from sotopia_env.cli.options import EVALUATOR_HELP, Concurrency, Probe, no_facts, path_argument
from sotopia_env.foundation.quoting import escape_line

if TYPE_CHECKING:
    from sotopia_env.concurrency.stopping import Stop
    from sotopia_env.runs.evaluate import EvaluationResult


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command("evaluate")(takes_model_options(evaluate))


def evaluate(
    run: Annotated[Path, path_argument("Run directory.", "RUN")],
    evaluator: Annotated[str, typer.Option(metavar="NAME", help=EVALUATOR_HELP)],
    probe: Probe = None,
    concurrency: Concurrency = 128,
    force: Annotated[bool, typer.Option("--force", help="Evaluate all again; failures may replace scores.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only forecast calls, tokens and cost.")] = False,
    *,
    settings: Any = None,
) -> None:
    """Add an evaluation to every episode of a run; turns and other evaluations do not change.

    The same command continues an interrupted evaluation.

    \b
    Examples:
      sotopia evaluate runs/a --evaluator diligence
      sotopia evaluate runs/a --evaluator diligence --force
      sotopia evaluate runs/a --evaluator "judge:openai/gpt-4o" --dry-run
      sotopia evaluate runs/a --evaluator "judge:local/my-model:bands=true" --api-base http://localhost:8000/v1
      sotopia evaluate runs/a --evaluator "mean(judge:openai/gpt-4o+judge:anthropic/claude-sonnet-4-5)"
      sotopia evaluate runs/a --evaluator "interview:local/m:interviewee=local/m,deciding=all" --api-base http://localhost:8000/v1
      sotopia evaluate runs/a --evaluator facts --probe turns
      sotopia evaluate runs/a --evaluator interview
      sotopia evaluate runs/a --evaluator "interview:openai/gpt-4o,anthropic/claude-sonnet-4-5"
    """
    from sotopia_env import naming
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.foundation.settings import merged, settings_of
    from sotopia_env.runs.evaluate import evaluate_run
    from sotopia_env.runs.forecast import StandInModels, forecast_evaluation
    from sotopia_env.runs.spec import WorkOptions
    from sotopia_env.storage.directory import check_run, read_run
    from sotopia_env.storage.manifest import configured_policies

    limits = settings_of(merged(settings, {"concurrency": concurrency}), WorkOptions, "")
    pool = StandInModels(limits.models) if dry_run else ModelPool(limits.models)
    if probe is not None:
        evaluator = naming.with_probes(evaluator, probe)
        if all(episode.task.scenario.facts is None for episode in read_run(run)):
            raise no_facts(str(run))
    judge = naming.make_evaluator(evaluator, model_factory=pool.judge, policies=configured_policies(run))
    check_run(run)
    pool.check_answers(judge.parameters)
    if isinstance(pool, StandInModels):
        typer.echo("\n".join(forecast_evaluation(run, judge, pool, force).lines()))
        return

    async def work(stop: Stop) -> EvaluationResult:
        return await evaluate_run(
            run,
            judge,
            concurrency=concurrency,
            timeout=limits.timeout,
            force=force,
            stop=stop,
            ledger=pool.ledger,
        )

    advice = f"the same command continues the evaluation of {run}"
    result, number = run_with_models(pool, run, work, advice)
    if result.stopped:
        typer.echo(f"{run}: {result.evaluated} of {result.episodes} episodes evaluated now, stored for the next time")
        exit_if_stopped(result.stopped, number, advice)
    typer.echo(f"{run}: {_summary(judge.name, result)}")
    if result.unscored or result.refused:
        raise typer.Exit(1)


def _summary(judge: str, result: EvaluationResult) -> str:
    parts = [f"{result.evaluated} episodes evaluated by {judge}, {result.unscored} unscored"]
    if result.kept:
        parts.append(f"{result.kept} already had its scores (--force evaluates them again)")
    if result.refused:
        parts.append(f"{result.refused} failed now and keep their earlier scores (--force replaces them)")
    if result.reason:
        parts.append(f"the first because of {escape_line(result.reason)}; the same command tries again")
    return "; ".join(parts)
