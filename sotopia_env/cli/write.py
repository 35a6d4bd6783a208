"""``sotopia tasks write`` and ``sotopia tasks draft``, which generate tasks with a language model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.models import exit_if_stopped, run_with_models
from sotopia_env.cli.options import Seed, path_option
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError, UnknownNameError
from sotopia_env.foundation.files import read_text, write_text_atomically
from sotopia_env.foundation.quoting import escape, escape_line

if TYPE_CHECKING:
    from sotopia_env.concurrency.stopping import Stop
    from sotopia_env.world import Scenario
    from sotopia_env.world.taskset import Cast
    from sotopia_env.writing.drafting import Drafter, Written
    from sotopia_env.writing.kinds import Writing

KINDS = ("characters", "relationships", "scenarios", "outcomes", "templates")
ModelName = Annotated[str, typer.Option("--model", help="The writing model, as PROVIDER/MODEL.")]
Reasks = Annotated[int, typer.Option(min=0, help="How often the model is asked again after a refused answer.")]
YAML_SUFFIXES = (".yaml", ".yml")
_MOST_SHOWN = 10


def write_tasks(
    kind: Annotated[str, typer.Argument(help=f"{', '.join(KINDS)}.")],
    out: Annotated[Path, path_option("Directory; the same work in it is continued.")],
    model: ModelName,
    inspirations: Annotated[list[Path], path_option("File of inspirations. Repeatable.", "--inspirations")] = [],  # noqa: B006
    used: Annotated[list[Path], path_option("File of inspirations that are already used. Repeatable.", "--used")] = [],  # noqa: B006
    evaluation: Annotated[list[str], typer.Option(help="Tasks whose scenarios must not be repeated. Repeatable.")] = [],  # noqa: B006
    cast: Annotated[str, typer.Option(help="Characters: drawn, starter, or a JSON file with a cast.")] = "drawn",
    script: Annotated[Path | None, path_option("The script from which templates are made.", "--script")] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many characters, relationships or scenarios.")] = 10,
    castings: Annotated[int, typer.Option(min=1, help="Castings of each scenario or template.")] = 5,
    seed: Seed = 0,
    reasks: Reasks = 2,
    *,
    settings: Any = None,
) -> None:
    """Have a language model write characters, relationships, scenarios (with outcomes), or templates from a script.

    Each inspiration gives one result and is used once. The same command continues interrupted work. Exit code 1: no
    answer of the model was accepted.

    \b
    Examples:
      sotopia tasks write characters --inspirations jobs.txt -n 20 --model openai/gpt-4o --out people
      sotopia tasks write relationships --cast people/cast.json -n 30 --model openai/gpt-4o --out ties
      sotopia tasks write outcomes --inspirations norms.txt --evaluation starter --model openai/gpt-4o --out new
      sotopia tasks write templates --script play.txt --model openai/gpt-4o --out play
    """
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.evaluators.judge.question import Manner
    from sotopia_env.foundation.settings import settings_of
    from sotopia_env.naming import task_set
    from sotopia_env.naming.models import with_directories
    from sotopia_env.runs.spec import WorkOptions
    from sotopia_env.writing.drafting import Drafter

    if kind not in KINDS:
        raise UnknownNameError(field="kind", got=kind, valid=KINDS)
    _check_options(
        kind, {"--inspirations": inspirations, "--used": used, "--evaluation": evaluation, "--script": script}
    )
    pool = ModelPool(settings_of(settings, WorkOptions, "").models)
    drafter = Drafter(with_directories(pool)(model), Manner(temperature=1.0, reasks=reasks))
    if kind == "templates":
        work = _templates(drafter, script, out, castings, seed)
    else:
        reserved = [task.scenario for source in evaluation for task in task_set(source, None, seed, "medium")]
        work = _results(drafter, _WriteOptions(kind, out, n, seed, cast, castings, inspirations, used), reserved)

    async def write(stop: Stop) -> tuple[str, int]:
        drafter.stop = stop
        return await work()

    advice = f"the same command continues the work in {out}"
    (report, results), number = run_with_models(pool, out, write, advice)
    typer.echo(escape(report))
    exit_if_stopped("stopped by a signal" if number else "", number, advice)
    if not results:
        typer.echo(
            f"sotopia: no {kind} were accepted, so nothing is written; try another model or more --reasks", err=True
        )
        raise typer.Exit(1)


_OPTIONS = {
    "characters": ("--inspirations", "--used"),
    "relationships": ("--used",),
    "scenarios": ("--inspirations", "--used", "--evaluation"),
    "outcomes": ("--inspirations", "--used", "--evaluation"),
    "templates": ("--script",),
}
"""The options with inputs for each kind; any other one would have no effect and is refused."""


def _check_options(kind: str, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value and option not in _OPTIONS[kind]:
            kinds = ", ".join(name for name in KINDS if option in _OPTIONS[name])
            raise InvalidValueError(f"only for {kinds}", field=option, hint="leave it out")


@dataclass(frozen=True, slots=True)
class _WriteOptions:
    """The options for writing records from inspirations."""

    kind: str
    out: Path
    n: int
    seed: int
    cast: str
    castings: int
    inspirations: Sequence[Path]
    used: Sequence[Path]

    @property
    def lines(self) -> Path:
        return self.out / f"{self.kind}.jsonl"


_Work = Callable[[], Awaitable[tuple[str, int]]]
"""Does the work; returns a report, and the number of results."""


def _results(drafter: Drafter, request: _WriteOptions, reserved: Sequence[Scenario]) -> _Work:
    """Returns the function that writes the file of questions, and then the file of results."""
    from sotopia_env import tasks
    from sotopia_env.writing import Writer
    from sotopia_env.writing.inspirations import read_inspirations
    from sotopia_env.writing.kinds import CharacterWriting, RelationshipWriting, ScenarioWriting

    cast = tasks.read_cast(request.cast)
    writing: Writing
    if request.kind == "relationships":
        if cast is None:
            raise InvalidValueError(field="--cast", expected="'starter' or a JSON file with a cast", got="drawn")
        writing = RelationshipWriting(cast)
        inspirations = writing.pairs(request.seed)
    else:
        inspirations = read_inspirations(request.inspirations)
        if not inspirations:
            raise InvalidValueError(field="--inspirations", expected="at least one file with inspirations")
        writing = CharacterWriting()
        if request.kind != "characters":
            writing = ScenarioWriting(request.kind == "outcomes", cast, request.castings)
            writing.exclude(reserved)
    writer = Writer(drafter, writing)
    used = read_inspirations(request.used)

    async def work() -> tuple[str, int]:
        lines = await writer.write(inspirations, request.n, request.lines, request.seed, used)
        results = [line.result for line in lines if line.result is not None]
        product = _product(request, writing, results, cast) if results else "none accepted"
        return "\n".join([*_refusals(lines), f"{request.lines}: {len(lines)} asked; {product}"]), len(results)

    return work


def _product(request: _WriteOptions, writing: Any, results: Sequence[Any], cast: Cast | None) -> str:
    """Writes the tasks or the cast made from the results; returns a report."""
    from sotopia_env.world import Scenario
    from sotopia_env.world.taskset import Cast

    if request.kind in ("scenarios", "outcomes"):
        file = request.out / "tasks.jsonl"
        task_set = writing.tasks([Scenario.model_validate(item) for item in results], request.seed)
        task_set.save(file)
        return f"{file}: {task_set!r}"
    # The new cast also contains the existing relationships, so that it can be used instead of the old one.
    characters = [] if cast is None else [one.model_dump(mode="json") for one in cast.characters]
    earlier = [] if cast is None else [one.model_dump(mode="json") for one in cast.relationships]
    parts = (results, []) if request.kind == "characters" else (characters, [*earlier, *results])
    cast_written = Cast.model_validate(dict(zip(("characters", "relationships"), parts, strict=True)))
    file = request.out / "cast.json"
    write_text_atomically(file, cast_written.model_dump_json(indent=1) + "\n")
    return f"{file}: {len(cast_written.characters)} characters, {len(cast_written.relationships)} relationships"


def _refusals(lines: Sequence[Written]) -> list[str]:
    """Returns one sentence for each question without an accepted answer, at most 10."""
    refused = [line for line in lines if line.result is None]
    sentences = [escape_line(f"refused: {line.source}: {line.text}: {line.refusal}") for line in refused[:_MOST_SHOWN]]
    more = len(refused) - len(sentences)
    return [*sentences, *([f"and {more} more, see the file"] if more else [])]


def _templates(drafter: Drafter, script: Path | None, out: Path, castings: int, seed: int) -> _Work:
    from sotopia_env.writing.script import ScriptRoute

    if script is None:
        raise InvalidValueError(field="--script", expected="the file from which templates are made")
    route = ScriptRoute(drafter, script.stem, read_text(script), out)
    return lambda: route.run(castings, seed)


def draft_simulation(
    sentence: Annotated[str, typer.Argument(help="One sentence that says who meets, and why.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .yaml file to write.")],
    model: ModelName,
    yes: Annotated[bool, typer.Option("--yes", help="Save without asking.")] = False,
    reasks: Reasks = 2,
    *,
    settings: Any = None,
) -> None:
    """Make a whole simulation from one sentence, show it, and save it as YAML that runs without a model.

    \b
    Examples:
      sotopia tasks draft "Three flatmates decide who gets the large room." -o flat.yaml --model openai/gpt-4o
      sotopia rollout --tasks flat.yaml --policy boulware --out runs/flat
    """
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.evaluators.judge.question import Manner
    from sotopia_env.foundation.settings import settings_of
    from sotopia_env.foundation.yaml_text import to_yaml
    from sotopia_env.naming.models import with_directories
    from sotopia_env.runs.spec import WorkOptions
    from sotopia_env.writing.drafting import Drafter
    from sotopia_env.writing.simulation import simulation_question

    if out.suffix not in YAML_SUFFIXES or out.exists():
        raise InvalidValueError(field="--out", expected="a new .yaml file", got=str(out))
    pool = ModelPool(settings_of(settings, WorkOptions, "").models)
    drafter = Drafter(with_directories(pool)(model), Manner(temperature=1.0, reasks=reasks))

    async def ask(_: Stop) -> Written | None:
        return await drafter.ask(simulation_question(sentence))

    draft, _ = run_with_models(pool, None, ask, "the same command asks again")
    if draft is None:
        raise SotopiaError(f"{model}: no answer, so nothing is written; the same command asks again")
    if draft.result is None:
        typer.echo(escape(f"sotopia: the answer was refused, so nothing is written: {draft.refusal}"), err=True)
        raise typer.Exit(1)
    text = to_yaml(draft.result)
    typer.echo(escape(text))
    if not yes and not typer.confirm(f"Save this as {out}?"):
        typer.echo("Nothing was written.")
        raise typer.Exit(1)
    write_text_atomically(out, text)
    typer.echo(f"{out}: `sotopia rollout --tasks {out} --policy NAME --out RUN` plays it")
