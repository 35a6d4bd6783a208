"""Options and arguments shared by several commands of ``sotopia``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sotopia_env.cli.plain_help import PACE
from sotopia_env.foundation.errors import FieldError, InvalidValueError, SotopiaError
from sotopia_env.foundation.extras import install_command

if TYPE_CHECKING:
    from sotopia_env.reports.sheet import Report


def path_option(help: str, name: str = "--out", panel: str | None = None) -> Any:
    """Returns an option that takes a path."""
    return typer.Option(name, parser=_path_of(name), metavar="PATH", help=help, rich_help_panel=panel)


def path_argument(help: str, name: str) -> Any:
    """Returns an argument that takes one or several paths; ``name`` appears in messages and in the help."""
    return typer.Argument(parser=_path_of(name), metavar=name, help=help)


def _path_of(name: str) -> Callable[[str], Path]:
    def path(text: str) -> Path:
        # ``Path("")`` would silently be the working directory.
        if not str(text).strip():
            # Not a ValueError, which typer would show as "invalid value" without the expected value.
            raise SotopiaError(str(InvalidValueError(field=name, expected="a path", got=str(text))))
        return Path(text)

    return path


SOURCE_HELP = (
    "A shipped set ('starter', 'everyday', 'everyday-groups'), one or more task families joined by commas, 'all' "
    "families, or a .json, .jsonl or .yaml file of tasks or of scenarios, which are cast. Options may follow: "
    "my_scenarios.yaml:n=40,cast=everyday."
)
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Leave out records that cannot be read, and list them; exit code 1.")
]
Source = Annotated[str, typer.Argument(help=SOURCE_HELP)]
SourceOption = Annotated[str, typer.Option("--tasks", help=SOURCE_HELP, metavar="SOURCE")]
Number = Annotated[
    int | None,
    typer.Option("-n", min=1, help="Number of tasks; by default 5 per family or scenario, else all."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of generated tasks and of the episodes.")]
LevelName = Annotated[str, typer.Option(metavar="LEVEL", help="Difficulty of generated tasks: easy, medium or hard.")]
EVALUATOR_HELP = (
    "'verified', 'diligence', 'facts:probe=turns', 'judge:MODEL:option=value,…', "
    "'spoken-outcome:MODEL', 'interview', 'interview:MODEL:interviewee=POLICY,…', or several of them: "
    "'a+b', 'mean(a+b):quorum=1'."
)
EvaluatorName = Annotated[str, typer.Option("--evaluator", metavar="NAME", help=f"{EVALUATOR_HELP[:-1]}; or 'none'.")]
Probe = Annotated[
    str | None,
    typer.Option(
        metavar="end|turns|none",
        help="When the evaluator 'facts' asks seats what they believe: at the end, or also after every turn.",
        show_default="as in the evaluator's name",
    ),
]
Concurrency = Annotated[int, typer.Option(min=1, help="Episodes in flight at once.", rich_help_panel=PACE)]
ChartFormats = Annotated[
    str, typer.Option("--format", metavar="FORMATS", help="Formats of charts: png, svg, pdf, or several with commas.")
]


def no_facts(source: str) -> InvalidValueError:
    """The error of a probe where there is nothing to ask about."""
    return InvalidValueError(
        field="--probe",
        expected="tasks with facts, such as mini_mafia or briefing",
        got=source,
        hint="leave it out, or play such tasks",
    )


def chart_formats(text: str) -> list[str]:
    """Returns the formats in a :data:`ChartFormats` text; raises :class:`UnknownNameError` for an unknown one."""
    from sotopia_env.reports.charts import check_formats

    formats = [form.strip() for form in text.split(",")]
    check_formats(formats)
    return formats


__all__ = [
    "EVALUATOR_HELP",
    "SOURCE_HELP",
    "ChartFormats",
    "Concurrency",
    "EvaluatorName",
    "KeepGoing",
    "LevelName",
    "Number",
    "Seed",
    "Source",
    "SourceOption",
    "chart_formats",
    "in_flags",
    "path_argument",
    "path_option",
    "put_out",
]


FLAGS: Mapping[str, str] = {
    "policies": "--policy",
    "matchup": "--matchup",
    "evaluator": "--evaluator",
    "n": "-n",
    "seed": "--seed",
    "repeats": "--repeats",
    "concurrency": "--concurrency",
    "max_turns": "--max-turns",
    "inspirations": "--inspirations",
    "cast": "--cast",
    "script": "--script",
    "out": "--out",
    "level": "--level",
    "sources": "--from",
    "split": "--split",
    "metric": "--metric",
    "baseline": "--baseline",
    "runs": "RUNS",
    "by": "--by",
    "format": "--format",
    "measure": "--measure",
    "seat": "--seat",
    "min_scores": "--min-score",
    "workers": "--executor",
    "part": "--part",
    "api_base": "--api-base",
    "api_key_env": "--api-key-env",
    "max_cost": "--max-cost",
    "models.max_cost": "--max-cost",
    "models.api_base": "--api-base",
    "models.api_key_env": "--api-key-env",
    "tpm": "models.tpm",
}
"""The fields of the library's errors, with the options of the command line that set them."""


def put_out(report: Report, out: Path | None, formats: Sequence[str], as_json: bool) -> None:
    """Writes a report into the folder ``out``, if given, and prints it as tables or as JSON."""
    files = [] if out is None else report.write(out, formats)
    typer.echo(report.json() if as_json else report.text(), nl=False)
    # With --json, stdout must contain the JSON only.
    for path in files:
        typer.echo(f"wrote {path}", err=as_json)


def in_flags(error: SotopiaError) -> str:
    """Returns the message of an error, with its field replaced by the option of the command line."""
    # The field of a record, such as a parameter in a policy's name, is not an option, even if the names are equal.
    if isinstance(error, FieldError) and error.field in FLAGS and not error.where.record:
        return str(type(error).of(error, field=FLAGS[error.field]))
    return str(error)


def need(command: str, *modules: str) -> None:
    """Raises a :class:`SotopiaError` that names the extra to install when ``scipy`` or ``matplotlib`` is missing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        install = install_command("analysis" if "scipy" in missing else "charts")
        raise SotopiaError(f"{command} needs {' and '.join(missing)}, not installed; {install}")
