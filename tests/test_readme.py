"""What the README shows runs as it stands there."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sotopia_env.cli.app import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert "You are" in capsys.readouterr().out


def test_the_commands_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("sotopia ")]
    assert len(commands) >= 6
    for command in commands:
        arguments = shlex.split(command, comments=True)[1:]
        if arguments[0] in ("play", "train"):
            continue  # asks a person, or takes minutes; tests/sotopia_env/cli and tests/training run these
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (command, result.output)


def test_the_file_tree_names_files_that_exist():
    tree = README[README.index("## Where things are") :].partition("\ntraining/")[0]
    for name in re.findall(r"\b([a-z_0-9]+\.py)\b", tree):
        assert (Path(__file__).parent.parent / "sotopia_env" / name).exists(), name
