"""What the README and the pages of docs/ show runs as it stands there."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sotopia_env.cli.app import app

ROOT = Path(__file__).parent.parent
README, ENVIRONMENTS = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/environments.md"))


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert "You are" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::UserWarning")  # TorchRL names another release of PettingZoo
@pytest.mark.parametrize(
    ("code", "output"), list(zip(blocks("python", ENVIRONMENTS), ("You are", "reward: ", "reward: "), strict=True))
)
def test_the_environments_are_used_as_docs_say(code, output, capsys):
    exec(compile(code, "docs/environments.md", "exec"), {})
    assert output in capsys.readouterr().out


def test_the_rewards_are_as_docs_say(capsys):
    words, deals, seven = blocks("python", (ROOT / "docs/rewards.md").read_text(encoding="utf-8"))
    said = []
    for code in (words, deals, seven):
        exec(compile(code, "docs/rewards.md", "exec"), {})
        said.append(capsys.readouterr().out.splitlines())
    assert said[0] == [line.partition("  # ")[2] for line in words.splitlines() if line.startswith("print")]
    assert [line.split()[0] for line in said[1]] == ["None"] * 2 + ["share"] * 2 + ["goal"] * 2
    assert [line.count("-") for line in said[1]] == [0, 0, 1, 1, 0, 0]  # somebody loses, and only the share shows it
    assert said[2][-1].endswith("[False False False False False  True  True]")


def test_the_commands_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("sotopia ")]
    assert len(commands) >= 6
    for command in commands:
        arguments = shlex.split(command, comments=True)[1:]
        if arguments[0] == "play":
            continue  # asks a person; tests/sotopia_env/test_cli.py answers it
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (command, result.output)


def test_the_tasks_are_written_checked_played_and_selected_as_docs_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    scenarios = blocks("yaml", text)
    assert [len(scenario.splitlines()) for scenario in scenarios] == [10, 20]
    (tmp_path / "tent.yaml").write_text("".join(scenarios), encoding="utf-8")
    commands = [line for block in blocks("sh", text) for line in block.splitlines()]
    assert len(commands) == 12
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        unscored = "unscored" in result.output and command.startswith("sotopia rollout")
        assert result.exit_code == int(unscored), (command, result.output)
        assert "warning" not in result.stderr, (command, result.output)
    assert len((tmp_path / "everyday_hard.jsonl").read_text(encoding="utf-8").splitlines()) == 20


def test_the_file_tree_names_files_that_exist():
    tree = README[README.index("## Where things are") :]
    for name in re.findall(r"\b([a-z_0-9]+\.py)\b", tree):
        assert (Path(__file__).parent.parent / "sotopia_env" / name).exists(), name
