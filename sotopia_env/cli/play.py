"""``sotopia play``: a person takes a seat."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sotopia_env.cli.options import EvaluatorName, LevelName, Number, Seed, SourceOption, path_option
from sotopia_env.quoting import disarm_line

if TYPE_CHECKING:
    from sotopia_env.policies.policy import Policy


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command()(play)


def play(
    policy: Annotated[str, typer.Option(help="Who sits in the other seats.")] = "tit-for-tat",
    tasks: SourceOption = "starter",
    task: Annotated[str | None, typer.Option(help="Task id; the first one by default.")] = None,
    seat: Annotated[int, typer.Option(min=0, help="Your seat.")] = 0,
    n: Number = None,
    level: LevelName = "medium",
    evaluator: EvaluatorName = "verified+rules",
    seed: Seed = 0,
    out: Annotated[Path | None, path_option("Also record the episode in this run directory.")] = None,
) -> None:
    """Take a seat yourself.

    \b
    Examples:
      sotopia play
      sotopia play --tasks bargaining --policy boulware --seat 1 --out runs/me
    """
    from sotopia_env import naming
    from sotopia_env.policies.human import HumanPolicy
    from sotopia_env.reports.transcript import to_text
    from sotopia_env.runs.plan import EpisodePlan
    from sotopia_env.runs.rollout import run_episodes

    chosen = naming.pick_task(naming.task_set(tasks, n, seed, level), task)
    naming.check_seat(chosen, seat)
    policies: list[Policy] = [naming.make_policy(policy) for _ in chosen.agents]
    policies[seat] = HumanPolicy()
    plan = EpisodePlan(chosen, tuple(policies), seed=seed, rules=naming.task_rules(tasks))
    judge = naming.make_optional_evaluator(evaluator, policies=policies)
    with _leave_on_ctrl_c():
        result = run_episodes([plan], evaluator=judge, run_dir=out, progress=False)
    if result.failures:
        typer.echo(f"sotopia: the episode failed: {disarm_line(result.failures[0].message)}", err=True)
        raise typer.Exit(1)
    typer.echo(to_text(next(episode for episode in result.episodes if episode.key == plan.key)), nl=False)


@contextmanager
def _leave_on_ctrl_c() -> Iterator[None]:
    """Ends the process at once: Python would first wait for the thread that waits for the person's next line."""

    def leave(*_: object) -> None:
        typer.echo("\nsotopia: interrupted; this episode was not recorded", err=True)
        os._exit(130)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
