"""The ``sotopia`` command: one subcommand per verb, each a few lines over the library.

What a command needs is imported when it runs, so that ``sotopia --help`` answers at once. Misuse ends with one
sentence on stderr and exit code 2; failed episodes with 1; Ctrl-C with 130.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sotopia_env.command_words import check_seat, make_evaluator, pick, read_matchups, task_set
from sotopia_env.errors import InvalidValueError, SotopiaError

if TYPE_CHECKING:
    from sotopia_env.compare import Comparison
    from sotopia_env.episode import Episode, Evaluator
    from sotopia_env.plan import EpisodePlan
    from sotopia_env.policies.policy import Policy
    from sotopia_env.rollout import RunResult

DEMO_POLICIES = ("boulware", "conceder", "tit-for-tat", "splitter")


class _Commands(TyperGroup):
    """Turns the package's own errors into a sentence and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SotopiaError as error:
            typer.echo(f"sotopia: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    name="sotopia",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Social situations for language agents: play, score, record and compare episodes.",
)
tasks_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show, sample and validate tasks.")
app.add_typer(tasks_app, name="tasks")

_SOURCE_HELP = "'starter', one or more task families joined by commas, 'all' families, or a .json/.jsonl task file."
Source = Annotated[str, typer.Argument(help=_SOURCE_HELP)]
SourceOption = Annotated[str, typer.Option("--tasks", help=_SOURCE_HELP)]
Number = Annotated[int | None, typer.Option("-n", min=1, help="How many tasks; families: 5 each, files: all.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of generated tasks and of the episodes.")]
LevelName = Annotated[str, typer.Option(help="Difficulty of generated tasks: easy, medium or hard.")]
EvaluatorName = Annotated[str, typer.Option("--evaluator", help="'verified', 'rules', 'verified+rules' or 'none'.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Episodes in flight at once.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds for one episode; none by default.")]


@tasks_app.command("list")
def tasks_list(
    source: Annotated[str | None, typer.Argument(help=_SOURCE_HELP)] = None,
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
) -> None:
    """List the tasks of a source; without one, the families.

    \b
    Examples:
      sotopia tasks list
      sotopia tasks list starter
      sotopia tasks list bargaining -n 3 --level hard
    """
    from sotopia_env import tasks

    if source is None:
        typer.echo("starter (shipped tasks)\n" + "\n".join(f"{name} (generated)" for name in tasks.FAMILIES))
        return
    for task in task_set(source, n, seed, level):
        typer.echo(f"{task.id}\t{len(task.agents)} seats\t{task.scenario.id}\t{' '.join(task.scenario.tags)}".rstrip())


@tasks_app.command("show")
def tasks_show(
    source: Source,
    task: Annotated[str | None, typer.Argument(help="Task id; the first one by default.")] = None,
    seat: Annotated[int, typer.Option(min=0, help="Whose view to show.")] = 0,
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
    as_json: Annotated[bool, typer.Option("--json", help="The whole task as JSON.")] = False,
) -> None:
    """Show a task as the agent in one seat reads it.

    \b
    Examples:
      sotopia tasks show starter
      sotopia tasks show bargaining --seat 1
      sotopia tasks show my_tasks.jsonl some-task --json
    """
    from sotopia_env.dynamics import Rules, initial_state
    from sotopia_env.observation import observe
    from sotopia_env.transcript import printable

    found = pick(task_set(source, n, seed, level), task)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    check_seat(found, seat)
    state = initial_state(found, Rules(), 0)
    typer.echo(f"task {found.id}, {found.agents[seat]}\n\n{printable(observe(state, found.agents[seat]).text)}")


@tasks_app.command("sample")
def tasks_sample(
    source: Source,
    out: Annotated[Path, typer.Option(help="The .jsonl file to write.")],
    n: Number = None,
    seed: Seed = 0,
    level: LevelName = "medium",
    split: Annotated[str | None, typer.Option(help="Only this split by scenario: train, dev, test.")] = None,
) -> None:
    """Draw or generate tasks and write them as JSON Lines.

    \b
    Examples:
      sotopia tasks sample division -n 100 --seed 7 --out division.jsonl
      sotopia tasks sample starter --split train --out train.jsonl
    """
    if out.suffix != ".jsonl":
        raise InvalidValueError(f"--out: expected a .jsonl file, got {str(out)!r}")
    found = task_set(source, n, seed, level)
    if split is not None:
        found = found.split(split)  # type: ignore[arg-type]  # names are checked there
    found.save(out)
    typer.echo(f"{out}: {found!r}")


@tasks_app.command("validate")
def tasks_validate(files: Annotated[list[Path], typer.Argument(help="Task files, .json or .jsonl.")]) -> None:
    """Check task files; says file, line, field, value and nearest valid name of the first problem.

    \b
    Example:
      sotopia tasks validate my_tasks.jsonl
    """
    from sotopia_env.taskset import TaskSet

    for file in files:
        typer.echo(f"{file}: valid, {TaskSet.load(file)!r}")


@app.command("policies")
def policies_list() -> None:
    """List the policies that need no language model.

    \b
    Example:
      sotopia policies
    """
    from sotopia_env import policies

    typer.echo("\n".join(policies.NAMES))


@app.command()
def rollout(
    out: Annotated[Path, typer.Option(help="Run directory; one that holds this run is continued.")],
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
    if result.failures:
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
        parts.append(f"{result.unscored} unscored (`sotopia compare` says why)")
    if result.failures:
        first = result.failures[0]
        parts.append(f"{len(result.failures)} failed, the first with {first.kind}: {first.message} (failures.jsonl)")
        parts.append("run the same command again to retry them")
    return "; ".join((*parts, *result.repaired))


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    evaluator: Annotated[str, typer.Option(help="'verified', 'rules' or 'verified+rules'.")],
    concurrency: Concurrency = 128,
    timeout: Timeout = None,
) -> None:
    """Add an evaluation to every episode of a run, beside those it has; turns stay as they are.

    \b
    Example:
      sotopia evaluate runs/a --evaluator rules
    """
    from sotopia_env import evaluators
    from sotopia_env.rollout import evaluate_run

    judge = evaluators.make(evaluator)
    try:
        unscored = evaluate_run(run, judge, concurrency=concurrency, timeout=timeout)
    except KeyboardInterrupt:
        typer.echo(f"\nsotopia: interrupted; {run} is as it was", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"{run}: evaluated by {judge.name}; {unscored} unscored")


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="Run directory or .jsonl file of episodes.")],
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


@app.command()
def play(
    policy: Annotated[str, typer.Option(help="Who sits in the other seats.")] = "tit-for-tat",
    tasks: SourceOption = "starter",
    task: Annotated[str | None, typer.Option(help="Task id; the first one by default.")] = None,
    seat: Annotated[int, typer.Option(min=0, help="Your seat.")] = 0,
    n: Number = None,
    level: LevelName = "medium",
    evaluator: EvaluatorName = "verified+rules",
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also record the episode in this run directory.")] = None,
) -> None:
    """Take a seat yourself.

    \b
    Examples:
      sotopia play
      sotopia play --tasks bargaining --policy boulware --seat 1 --out runs/me
    """
    from sotopia_env import policies
    from sotopia_env.plan import EpisodePlan
    from sotopia_env.policies.human import HumanPolicy
    from sotopia_env.rollout import run_episodes
    from sotopia_env.transcript import to_text

    found = pick(task_set(tasks, n, seed, level), task)
    check_seat(found, seat)
    seated: list[Policy] = [policies.make(policy) for _ in found.agents]
    seated[seat] = HumanPolicy()
    plan = EpisodePlan(found, tuple(seated), seed=seed)
    with _leave_on_ctrl_c():
        result = run_episodes([plan], evaluator=make_evaluator(evaluator), run_dir=out, progress=False)
    if result.failures:
        typer.echo(f"sotopia: the episode failed: {result.failures[0].message}", err=True)
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


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories or .jsonl files of episodes.")],
    evaluator: Annotated[str | None, typer.Option(help="Whose scores; the latest by default.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric of the policy × partner matrix.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for text, CSV, JSON and PNG charts.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare the policies of one or several runs: means, 95 % intervals, paired differences, who with whom.

    \b
    Examples:
      sotopia compare runs/a
      sotopia compare runs/a runs/b --metric goal --out report
      sotopia compare runs/a --json
    """
    from sotopia_env.compare import compare_runs
    from sotopia_env.comparison_report import to_json, to_text

    found = compare_runs(runs, evaluator=evaluator, metric=metric)
    typer.echo(to_json(found) if as_json else to_text(found), nl=False)
    _report(found, out, quiet=as_json)


def _report(found: Comparison, out: Path | None, quiet: bool = False) -> None:
    from sotopia_env.plots import write_report

    if out is None:
        return
    for path in write_report(found, out):
        typer.echo(f"wrote {path}", err=quiet)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Run directory; the report goes beside the episodes.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Tasks per family.")] = 6,
    seed: Seed = 0,
) -> None:
    """Play four scripted policies in all task families, then compare them; no API key, under a minute.

    \b
    Example:
      sotopia demo --out runs/demo
    """
    from sotopia_env import tasks

    families = list(tasks.FAMILIES)
    typer.echo(f"{', '.join(DEMO_POLICIES)} in {len(families)} families of tasks with verified outcomes …")
    rollout(out=out, policy=list(DEMO_POLICIES), matchup=[], tasks="all", n=n * len(families), seed=seed)
    compare([out], out=out / "report")
    typer.echo(f"episodes: {out / 'episodes.jsonl'}; read one with: sotopia show {out} 0")


def main() -> None:
    """Runs the command line."""
    app()


if __name__ == "__main__":
    main()
