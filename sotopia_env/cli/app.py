"""The ``sotopia`` command: one subcommand per verb, each a few lines over the library.

The commands are in files by noun (``command_tasks``, ``command_runs``, …), each with a ``register`` that adds its own.
What a command needs is imported when it runs, so that ``sotopia --help`` answers at once. Misuse ends with one sentence
on stderr and exit code 2; failed or unscored episodes and a spent budget with 1; Ctrl-C with 130, SIGTERM with 143.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from sotopia_env.cli import compare as command_compare
from sotopia_env.cli import models as command_models
from sotopia_env.cli import people as command_judging
from sotopia_env.cli import play as command_play
from sotopia_env.cli import runs as command_runs
from sotopia_env.cli import tasks as command_tasks
from sotopia_env.errors import SotopiaError


class _Commands(TyperGroup):
    """Turns the package's own errors into a sentence and exit code 2, and an early Ctrl-C into one and 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SotopiaError as error:
            typer.echo(f"sotopia: {error}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:  # before or after the part that comes to an end by itself (`stopping`)
            typer.echo("\nsotopia: interrupted; nothing on disk is lost, the same command goes on from there", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="sotopia",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Social situations for language agents: play, score, record and compare episodes.",
)
for module in (command_tasks, command_runs, command_play, command_compare, command_judging, command_models):
    module.register(app)


def main() -> None:
    """Runs the command line."""
    app()


if __name__ == "__main__":
    main()
