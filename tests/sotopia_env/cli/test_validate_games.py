"""``sotopia tasks validate`` on games with mistakes: one sentence each, with the field and the mend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sotopia_env.cli.app import app
from sotopia_env.tasks.families.registry import FAMILIES


def changed(name: str, change: dict[str, Any], folder: Path) -> Path:
    """A file with a generated task in which keys of the outcome, by dotted path, have other values."""
    task = FAMILIES[name].generate(0, 0, "easy").model_dump(mode="json")
    parts = {field: json.loads(task["scenario"][field]) for field in ("outcome", "facts")}
    for path, value in change.items():
        *keys, last = path.split(".")
        node: Any = parts
        for key in keys:
            node = node[int(key) if isinstance(node, list) else key]
        if value is None:
            node.pop(next(iter(node)) if last == "*" else last)
        else:
            node[int(last) if isinstance(node, list) else last] = value
    task["scenario"] |= parts
    path_of_file = folder / "game.json"
    path_of_file.write_text(json.dumps([task]), encoding="utf-8")
    return path_of_file


STAGES = [["agent_0"], ["agent_1", "agent_0"]]


@pytest.mark.parametrize(
    ("name", "change", "problem", "mend"),
    [
        ("dilemma", {"outcome.worth.0.payoffs.*": None}, "the table has a hole", "add it"),
        ("commons", {"outcome.protocol.stock.growth": 1}, "the stock cannot regrow", "raise it, or play one round"),
        ("trust", {"outcome.protocol.stages": STAGES}, "a seat is in two stages", "leave it out of one stage"),
        ("dilemma", {"facts.variables.1.of": "agent_0"}, "two choices of one seat", "leave out one of them"),
        ("volunteer", {"outcome.worth.0.counts.*": None}, "the table has a hole", "add it"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_mend(
    name: str, change: dict[str, Any], problem: str, mend: str, tmp_path: Path
) -> None:
    good = CliRunner().invoke(app, ["tasks", "validate", str(changed(name, {}, tmp_path))])
    assert good.exit_code == 0, good.output
    result = CliRunner().invoke(app, ["tasks", "validate", str(changed(name, change, tmp_path))])
    output = " ".join(result.output.split())
    assert result.exit_code != 0
    assert problem in output
    assert mend in output
    assert "Traceback" not in output
