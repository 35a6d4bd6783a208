"""The ``sotopia`` command: one subcommand per verb, each a thin layer over the library.

Each module of this package has a function ``register`` that adds its commands, and so has each entry point of the group
``sotopia.commands``, by which other packages add theirs: ``train`` and the studio come this way. Commands import the
library when they run, so that ``sotopia --help`` is fast. Misuse ends with one sentence on stderr and exit code 2,
failed or unscored episodes and a spent budget with exit code 1, Ctrl-C with 130, SIGTERM with 143.
"""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from sotopia_env.cli import arena, compare, evaluate, importing, models, people, play, rollout, show, tasks
from sotopia_env.cli.options import in_flags
from sotopia_env.cli.plain_help import Group, use_plain_help
from sotopia_env.foundation.errors import InvalidValueError, SotopiaError
from sotopia_env.foundation.quoting import escape
from sotopia_env.foundation.validation import invalid_part
from sotopia_env.foundation.versions import code_version


def _refused(error: typer.BadParameter) -> str | None:
    """Returns the message for a value that pydantic has refused for typer; ``None`` for any other misuse."""
    if not isinstance(error.__cause__, ValidationError) or error.param is None:
        return None
    problem = invalid_part(error.__cause__.errors(include_url=False)[0])
    return str(InvalidValueError.of(problem, field=error.param.opts[-1]))


class _Commands(Group):
    """Turns errors of this package into one sentence and exit code 2, and an early Ctrl-C into exit code 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            sentence = _refused(error)
            if sentence is None:
                raise
            typer.echo(f"sotopia: {sentence}", err=True)
            raise typer.Exit(2) from None
        except SotopiaError as error:
            typer.echo(f"sotopia: {escape(in_flags(error))}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:  # outside of the work that a signal stops gracefully (`exit_on_signals`)
            typer.echo("\nsotopia: interrupted; no recorded work is lost, the same command continues it", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="sotopia",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Social situations for language agents: play, score, record and compare episodes.",
)
# In the order of `sotopia --help`.
for module in (tasks, rollout, evaluate, show, play, compare, arena, people, importing, models):
    module.register(app)
# Commands of other packages, ours among them: each entry point is a function `register(app)`.
for entry in sorted(entry_points(group="sotopia.commands"), key=lambda entry: entry.name):
    try:
        entry.load()(app)
    except ImportError as error:  # a package that is broken must not take the other commands with it
        logging.getLogger(__name__).warning("the commands of %s cannot be imported: %s", entry.value, error)
use_plain_help(app)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"sotopia-env {code_version()}")
        raise typer.Exit


@app.callback()
def _front(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


class _HarmlessFormatter(logging.Formatter):
    """Escapes control characters in log messages, which may contain text of a server or a model."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


def main() -> None:
    """Runs the command line."""
    # The handler that Python uses in a program without logging configuration, such as this one.
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_HarmlessFormatter("%(message)s"))
    app()


if __name__ == "__main__":
    main()
