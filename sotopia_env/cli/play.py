"""``sotopia play`` and ``sotopia mcp``: a person or an agent product takes a seat, and plays episodes of one run."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sotopia_env.cli.models import takes_model_options
from sotopia_env.cli.options import EvaluatorName, LevelName, Number, Seed, SourceOption, path_option
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.quoting import escape_line

if TYPE_CHECKING:
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.runs.participants import Session
    from sotopia_env.runs.plan import EpisodePlan
    from sotopia_env.runs.rollout import RunResult
    from sotopia_env.world.episode import Episode, Evaluator
    from sotopia_env.world.play.policy import Policy
    from sotopia_env.world.scenario import Task

_T = TypeVar("_T")


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command()(takes_model_options(play))
    app.command("mcp")(takes_model_options(serve_seat))


def play(
    policy: Annotated[str, typer.Option(metavar="NAME", help="Policy of the other seats.")] = "tit-for-tat",
    tasks: SourceOption = "all",
    task: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Task or scenario; by default the first one, or all with --participant."),
    ] = None,
    seat: Annotated[int, typer.Option(min=0, help="Your seat.")] = 0,
    n: Number = None,
    level: LevelName = "medium",
    evaluator: EvaluatorName = "verified",
    seed: Seed = 0,
    out: Annotated[Path | None, path_option("Also record the episode in this run directory.")] = None,
    adviser: Annotated[str, typer.Option(metavar="NAME", help="A policy that helps you; only you read it.")] = "",
    assistance: Annotated[
        str,
        typer.Option(metavar="MODE", help="advise: you read it; propose: you may take it; act: it acts for you."),
    ] = "advise",
    participant: Annotated[
        str, typer.Option(metavar="CODE", help="Your code: play the tasks one by one, and add them to --out.")
    ] = "",
    *,
    settings: Any = None,
) -> None:
    """Take a seat yourself; the same command continues an interrupted episode.

    \b
    Examples:
      sotopia play
      sotopia play --tasks bargaining --policy boulware --seat 1 --out runs/me
      sotopia play --tasks bargaining --adviser conceder --assistance propose
      sotopia play --tasks my_scenarios.yaml --participant p07 --out runs/study
    """
    from sotopia_env import naming
    from sotopia_env.policies.human import HumanPolicy
    from sotopia_env.runs.participants import Session, in_order_of

    if participant and out is None:
        raise InvalidValueError(field="out", expected="the directory of the run that the participant adds to", got=None)
    collection = naming.task_set(tasks, n, seed, level)
    # A participant plays all tasks, unless one is named.
    named_task = None if participant and task is None else naming.pick_task(collection, task)
    person = HumanPolicy(participant=participant)
    items = [named_task] if named_task and not participant else collection
    plans, judge, pool = _planned(
        items, person, seat, policy, tasks, evaluator, {"seed": seed}, settings, adviser=adviser, assistance=assistance
    )
    with _leave_on_ctrl_c(out):
        if participant and out is not None:
            session = Session(in_order_of(participant, plans, seed), judge, out)
            _run(pool, lambda: _play_session(session, named_task.id if named_task else None, pool))
        else:
            _play_one(plans[0], judge, out, pool)


def _planned(
    items: Iterable[Task],
    own: Policy,
    seat: int,
    partner: str,
    source: str,
    evaluator: str,
    options: dict[str, Any],
    settings: Any,
    *,
    adviser: str = "",
    assistance: str = "advise",
) -> tuple[list[EpisodePlan], Evaluator | None, ModelPool]:
    """The episodes of ``items`` with ``own`` in its seat, their evaluator, and the models of both."""
    from sotopia_env import naming
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.foundation.settings import merged, settings_of
    from sotopia_env.policies.combined.advised import AdvisedPolicy, mode_of
    from sotopia_env.runs.plan import EpisodePlan
    from sotopia_env.runs.spec import EpisodeOptions

    checked = settings_of(merged(settings, options), EpisodeOptions, "")
    pool = ModelPool(checked.models)
    rules = naming.task_rules(source, **checked.rule_options)
    other = naming.make_policy(partner, pool)
    if not adviser and assistance != "advise":
        raise InvalidValueError("nobody advises", field="--assistance", got=assistance, hint="add --adviser NAME")
    if adviser:
        own = AdvisedPolicy(own, naming.make_policy(adviser, pool), mode_of(assistance))
    judge = naming.make_optional_evaluator(evaluator, model_factory=pool.judge, policies=(own, other))
    plans = []
    for item in items:
        naming.check_seat(item, seat)
        seats = tuple(own if index == seat else other for index in range(len(item.agents)))
        plans.append(EpisodePlan(item, seats, seed=checked.seed, rules=rules))
    return plans, judge, pool


def serve_seat(
    policy: Annotated[str, typer.Option(metavar="NAME", help="Policy of the other seats.")] = "tit-for-tat",
    tasks: SourceOption = "all",
    task: Annotated[
        str | None, typer.Option(metavar="ID", help="Task or scenario; by default the next one that is not recorded.")
    ] = None,
    seat: Annotated[int, typer.Option(min=0, help="The seat of the agent.")] = 0,
    n: Number = None,
    level: LevelName = "medium",
    evaluator: EvaluatorName = "verified",
    seed: Seed = 0,
    out: Annotated[Path, path_option("Run directory that the episodes are added to.")] = Path("runs/mcp"),
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the agent in the records.")] = "mcp",
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve http://127.0.0.1:PORT/mcp in place of stdin and stdout."),
    ] = None,
    *,
    settings: Any = None,
) -> None:
    """Let an agent product take a seat over the Model Context Protocol (docs/adapters/mcp.md).

    One episode for each start, the next one that is not recorded; the same command continues an interrupted one.

    \b
    Examples:
      sotopia mcp --tasks bargaining -n 20 --policy boulware --out runs/agent
      sotopia mcp --tasks my_scenarios.yaml --seat 1 --port 8765
    """
    from sotopia_env import naming
    from sotopia_env.adapters.mcp.seat import McpSeat, OutsidePolicy, serve
    from sotopia_env.runs.participants import Session

    collection = naming.task_set(tasks, n, seed, level)
    own = OutsidePolicy(name)
    items = collection if task is None else [naming.pick_task(collection, task)]
    plans, judge, pool = _planned(items, own, seat, policy, tasks, evaluator, {"seed": seed}, settings)
    session = Session(plans, judge, out)
    if not (todo := session.todo()):
        expected = f"a directory without all {len(plans)} episodes of this command (or a larger -n, another --seed)"
        raise InvalidValueError(field="out", expected=expected, got=str(out))
    plan = todo[0]

    async def play_it() -> Episode:
        result = await session.play(plan, pool.ledger)
        if result.failures or result.stopped:
            raise SotopiaError(result.stopped or result.failures[0].message)
        (episode,) = result.episodes
        session.todo()  # moves the episode into the run
        return episode

    _run(pool, lambda: serve(McpSeat(own, plan.task.agents[seat], play_it), port))


def _play_one(plan: Any, judge: Any, out: Path | None, pool: ModelPool) -> None:
    from sotopia_env.reports.transcript import to_text
    from sotopia_env.runs import run_episodes

    result = _run(
        pool,
        lambda: run_episodes([plan], evaluator=judge, run_dir=out, progress=False, ledger=pool.ledger),
    )
    _exit_if_failed(result)
    typer.echo(to_text(next(episode for episode in result.episodes if episode.key == plan.key)), nl=False)


async def _play_session(session: Session, task_id: str | None, pool: ModelPool) -> None:
    """Plays one episode after another."""
    # Unlike after a single episode, the record is not shown: it contains the partner's goals and all scores.
    played = 0
    while todo := [plan for plan in session.todo() if task_id in (None, plan.task.id)]:
        if played and not _continues(played, len(todo)):
            break
        _exit_if_failed(await session.play(todo[0], pool.ledger))
        played += 1
    typer.echo(f"{session.run_dir}: {played} episodes added, {len(todo)} left; the same command continues")


def _continues(played: int, left: int) -> bool:
    try:
        return input(f"\nDone: {played}, left: {left}. Enter for the next one, q to stop: ").strip().casefold() != "q"
    except EOFError:
        return False


def _run(pool: ModelPool, work: Callable[[], Awaitable[_T]]) -> _T:
    """Checks the models, does the work, and closes the models."""

    async def checked() -> _T:
        try:
            await pool.check()
            return await work()
        finally:
            await pool.close()

    return asyncio.run(checked())


def _exit_if_failed(result: RunResult) -> None:
    if result.failures:
        typer.echo(f"sotopia: the episode failed: {escape_line(result.failures[0].message)}", err=True)
        raise typer.Exit(1)


@contextmanager
def _leave_on_ctrl_c(out: Path | None) -> Iterator[None]:
    """Makes Ctrl-C end the process at once."""
    advice = "the same command continues after your last turn" if out else "this episode was not recorded"

    def leave(*_: object) -> None:
        typer.echo(f"\nsotopia: interrupted; {advice}", err=True)
        # A normal exit would wait for the thread that reads the person's next line. Recorded turns are on disk already.
        os._exit(130)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
