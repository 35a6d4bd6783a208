"""What the help says, the version, and the list of policies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sotopia_env.cli.app import app
from sotopia_env.foundation.versions import code_version
from sotopia_env.naming import POLICY_NAMES, described_policies
from tests.sotopia_env.cli.test_cli import COMMANDS, sotopia


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_h_is_help_and_shows_placeholders_instead_of_types(command: str) -> None:
    text = sotopia(*command.split(), "-h").output
    assert text == sotopia(*command.split(), "--help").output
    assert not [word for word in ("<str>", "<int", "<float", "<list", "INTEGER") if word in text]


def test_rollout_shows_common_options_before_groups_of_others() -> None:
    text = sotopia("rollout", "-h").output
    places = [
        text.index(word) for word in ("--policy NAME", "--seed N", "Order of play:", "--max-turns N", "--api-base URL")
    ]
    assert places == sorted(places)
    assert text.index("Language models:") < text.index("--max-cost DOLLARS")


def paths(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from paths(child, *path, name)


@pytest.mark.parametrize("path", list(paths(typer.main.get_command(app))), ids=" ".join)
def test_no_help_text_is_cut_in_a_terminal_of_80_columns(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"}, terminal_width=80)
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.output.splitlines() if not line.lower().startswith("usage:")]
    assert lines
    assert not [line for line in lines if line.endswith(("...", "…"))]


def test_lists_of_commands_have_whole_sentences() -> None:
    text = " ".join(sotopia("--help").output.split())
    assert "Show a transcript with private messages and failures marked; without an episode, list all episodes." in text
    assert "Show a task on a card, with all secrets; or as the agent in one seat sees it." in " ".join(
        sotopia("tasks", "--help").output.split()
    )


def test_the_version_is_printed() -> None:
    assert sotopia("--version").output.split() == ["sotopia-env", code_version()]


def test_policies_are_listed_with_a_line_and_their_parameters() -> None:
    policies = list(described_policies())
    assert [line.name for line in policies][: len(POLICY_NAMES)] == list(POLICY_NAMES)
    assert len({line.about for line in policies}) == len(policies)  # a line tells its policy from the others
    lines = sotopia("policies").output.splitlines()
    place = lines.index("boulware")
    assert lines[place + 1].strip().endswith(".")
    assert "exponent=0.2" in lines[place + 2].split(",")[0]
    assert "SmolLM2" in lines[lines.index("smol") + 1]  # a plug-in that can be named alone, with its line
    assert "trained" not in lines  # one that opens directories


def test_a_missing_key_is_reported_before_litellm_is_imported() -> None:
    code = (
        "import os, sys\nos.environ.pop('OPENAI_API_KEY', None)\n"
        "from typer.testing import CliRunner\nfrom sotopia_env.cli.app import app\n"
        "result = CliRunner().invoke(app, ['rollout', '--policy', 'openai/gpt-4o', '--out', 'x'])\n"
        "assert result.exit_code == 2 and 'OPENAI_API_KEY' in result.output, result.output\n"
        "assert 'litellm' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
