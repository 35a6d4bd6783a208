"""Plain-text help of commands: options in named groups, the common ones first, with placeholders instead of types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

COMMON = "Options"
"""The group of options without another group."""
ORDER, PACE, MODELS = "Order of play", "Pace and place", "Language models"
"""Other groups of options, given as ``rich_help_panel``."""
_LONGEST_SENTENCE = 1_000
"""Characters of a command's first sentence in a list of commands: more than any has, so that none is cut."""
_PLACEHOLDERS: Mapping[type, str] = {int: "N", float: "NUMBER", str: "TEXT"}


class Command(TyperCommand):
    """A command with help in plain text, which can be copied, grouped by ``rich_help_panel``."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and the groups of options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], COMMON: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            is_argument = parameter.param_type_name == "argument"
            name = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or COMMON
            if record is not None:
                label = record[0].partition(" <")[0] if is_argument else record[0]  # without the type
                sections.setdefault(name, []).append((label, record[1]))
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class Group(TyperGroup):
    """A group whose list of commands has the whole first sentence of each, over several lines where it is long."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of commands."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        records = [
            (name, command.get_short_help_str(_LONGEST_SENTENCE))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if records:
            with formatter.section("Commands"):
                formatter.write_dl(records)


def use_plain_help(app: typer.Typer) -> None:
    """Makes every command of ``app`` and of its groups use this help."""
    for command in app.registered_commands:
        command.cls = Command
        if command.callback is not None:
            _name_values(command.callback)
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance is not None:
            use_plain_help(group.typer_instance)


def _name_values(command: Callable[..., Any]) -> None:
    """Sets a placeholder that describes the value for all options without one."""
    signature = inspect.signature(command, eval_str=True)
    for parameter in signature.parameters.values():
        value, *settings = get_args(parameter.annotation) or (None,)
        kinds = [kind for kind in _PLACEHOLDERS if kind in (value, *get_args(value))]
        for option in settings:
            if isinstance(option, OptionInfo) and option.metavar is None and kinds:
                option.metavar = _PLACEHOLDERS[kinds[0]]
    # typer would evaluate quoted annotations again, which gives other objects than those changed above.
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: item.annotation for name, item in signature.parameters.items()}
