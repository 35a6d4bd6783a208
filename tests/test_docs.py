"""Every block of the README and of each page in docs/ runs as printed, or says on the line before why it does not.

The blocks of a page build on one another, so that a page is one test. Runners with a test for each block (sybil,
pytest-markdown-docs) give those of one page to different workers of pytest-xdist, where they fail.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sotopia_env import tasks
from sotopia_env.cli.app import app
from sotopia_env.foundation.json_text import decode_json
from sotopia_env.foundation.yaml_text import parse_yaml
from sotopia_env.outcomes import OutcomeSpec
from studies.family_pages import pages, stale
from tests.sotopia_env.importers.test_published_set import mirror

ROOT = Path(__file__).parent.parent
# tests/test_extending.py runs the first, whose files are modules that import each other; tests/sotopia_studio/
# test_client.py the second, beside a server.
ELSEWHERE = {"extending.md", "studio-api.md"}
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")} | {
    path.relative_to(ROOT / "docs").as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.name not in ELSEWHERE
}
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S
)
PORT = "8077"
LANGUAGES = ("sh", "bash", "python")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; ``reason`` says why it is not run."""

    language: str
    code: str
    reason: str


def blocks(text: str, *languages: str) -> list[Block]:
    all_blocks = [Block(m["language"], m["code"], m["reason"] or "") for m in _BLOCK.finditer(text)]
    return [block for block in all_blocks if not languages or block.language in languages]


def command_lines(code: str) -> list[str]:
    joined = code.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]


# --- what pages need beside themselves ---
def tent(folder: Path, text: str) -> None:
    records = [block.code for block in blocks(text, "yaml")]
    assert [len(record.splitlines()) for record in records] == [10, 20, 10]
    (folder / "tent.yaml").write_text("".join(records), encoding="utf-8")


def published_files(folder: Path, _: str) -> None:
    mirror(folder, None)


NEEDS = {"tasks.md": tent, "formats.md": published_files}


class Shell:
    """Runs the lines of sh blocks: ours in this process, the stand-in in another, assignments as they are."""

    patience = 240  # seconds until a server of a page must listen

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.output = ""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def run(self, line: str) -> None:
        line = line.replace(PORT, self.port)
        for name, value in self.variables.items():
            line = line.replace(f"${name}", value)
        words = shlex.split(line, comments=True)
        if re.fullmatch(r"[A-Z]+=.*", words[0]):
            name, _, value = words[0].partition("=")
            self.variables[name] = value
        elif words[0] == "sotopia":
            self.sotopia(line, words[1:])
        else:
            assert (words[0], words[-1]) == ("python", "&"), (
                f"{line!r}: write <!-- not run: REASON --> before its block"
            )
            self.processes.append(subprocess.Popen([sys.executable, *words[1:-1]]))
            self.wait()

    def sotopia(self, line: str, words: list[str]) -> None:
        result = CliRunner().invoke(app, words)
        unscored = words[0] == "rollout" and "unscored" in result.output  # tasks without an outcome, as the page says
        assert result.exit_code == int(unscored), (line, result.output, result.exception)
        assert "warning" not in result.stderr, (line, result.output)
        self.output += result.output

    def wait(self) -> None:
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", int(self.port)), timeout=1):
                return
            time.sleep(0.05)
        raise AssertionError("no server")


@contextmanager
def shell() -> Iterator[Shell]:
    running = Shell()
    try:
        yield running
    finally:
        for process in running.processes:
            process.terminate()
            process.wait()


def script(code: str, folder: Path) -> None:
    """Runs a block with documents in it, which is a script and not a list of commands, in a shell of its own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", code]
    result = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert result.returncode == 0, (code, result.stderr)


def run_page(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Runs the sh, bash and python blocks of a page in order, in ``folder``; returns what they print, python first."""
    (folder / "docs").symlink_to(ROOT / "docs")
    NEEDS.get(name, lambda *_: None)(folder, PAGES[name])
    output = ""
    with shell() as running:
        for block in blocks(PAGES[name], *LANGUAGES):
            if block.reason:
                continue
            if block.language == "python":
                exec(compile(block.code, f"docs/{name}", "exec"), {})
                output += capsys.readouterr().out
            if block.language == "bash":
                script(block.code, folder)
            for line in command_lines(block.code) if block.language == "sh" else ():
                running.run(line)
        return output + running.output


def runs_beside_a_library(name: str) -> bool:
    """Whether tests/adapters runs the page, in the virtual environment of a library."""
    return (ROOT / "tests" / name).with_suffix("").is_dir()


RUN = [
    name
    for name, text in PAGES.items()
    if not runs_beside_a_library(name) and any(not block.reason for block in blocks(text, *LANGUAGES))
]


@pytest.mark.filterwarnings("ignore::UserWarning")  # TorchRL names another release of PettingZoo
@pytest.mark.parametrize("name", RUN)
def test_the_blocks_of_a_page_run_in_order(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    output = run_page(name, tmp_path, capsys)
    if name == "environments.md":
        assert output.index("You are") < output.index("reward: ")
    if name == "index.md":  # what it shows is printed by the commands above it
        expected = [line for block in blocks(PAGES[name], "text") for line in block.code.splitlines()]
        assert [line for line in expected if line not in output] == []
    if name == "rewards.md":
        check_rewards(output.splitlines())
    if name == "tasks.md":
        assert len((tmp_path / "everyday_hard.jsonl").read_text(encoding="utf-8").splitlines()) == 20
    if name == "writing.md":
        counts = {file: len(tasks.load(tmp_path / file)) for file in WRITTEN}
        assert counts == WRITTEN
    if name == "formats.md":
        for copy, original in COPIES.items():
            copied, published = decode_lines(tmp_path / copy), decode_lines(ROOT / "docs" / "samples" / original)
            assert as_imported(copied) == as_imported(published)


def check_rewards(output: list[str]) -> None:
    comments = [line.partition("  # ")[2] for line in PAGES["rewards.md"].splitlines() if line.startswith("print(")]
    assert output[:2] == comments[:2]
    deals = output[2:8]
    assert [line.split()[0] for line in deals] == ["None"] * 2 + ["share"] * 2 + ["goal"] * 2
    assert [line.count("-") for line in deals] == [0, 0, 1, 1, 0, 0]  # one seat loses, and only the share shows it
    assert output[-1].endswith("[False False False False False  True  True]")


WRITTEN = {"round1/tasks.jsonl": 8, "round2/tasks.jsonl": 10, "play/tasks.jsonl": 5, "flat.yaml": 1}
COPIES = {"exported/episodes.jsonl": "sotopia/episodes.jsonl", "exported/agents.json": "sotopia/agents.json"}


def decode_lines(path: Path) -> object:
    text = path.read_text(encoding="utf-8")
    return decode_json(text) if path.suffix == ".json" else [decode_json(line) for line in text.splitlines()]


def as_imported(entries: Any) -> list[list[object]]:
    """What an export says as the imported file said it."""
    names = (
        "episode_id",
        "environment_id",
        "agent_ids",
        "social_interactions",
        "rewards",
        "pk",
        "first_name",
        "secret",
    )
    return [[entry.get(name) for name in names] for entry in entries]


@pytest.mark.parametrize("name", PAGES)
def test_a_block_has_a_language_if_it_can_be_run(name):
    assert PAGES[name].count("\n```") == 2 * len(blocks(PAGES[name])), "a fence is not closed, or is indented"
    for block in blocks(PAGES[name], ""):
        assert not re.search(r"^(sotopia|python|pip|make) ", block.code, re.MULTILINE), block.code


@pytest.mark.parametrize("code", [block.code for text in PAGES.values() for block in blocks(text, "json")])
def test_json_blocks_are_json_and_their_outcomes_can_be_played(code):
    value = decode_json(code if code.startswith("{") else f"{{{code}}}")
    if "outcome" in value:
        OutcomeSpec.model_validate(value["outcome"])


@pytest.mark.parametrize("code", [block.code for text in PAGES.values() for block in blocks(text, "yaml")])
def test_yaml_blocks_are_yaml(code):
    assert parse_yaml(code, "docs")


def test_the_pages_of_the_families_are_what_the_code_says():
    assert stale(pages()) == [], "run python -m studies.family_pages"


def test_the_site_is_built_without_the_environment_of_the_tests() -> None:
    command = ["make", "--dry-run", "--always-make", "docs"]
    steps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ".venvs/docs/bin/zensical build" in steps
    assert not [word for word in ("[dev]", " .venv/", "-e ") if word in steps]
