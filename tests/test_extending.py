"""The four files of docs/extending.md work unchanged and in the order of the page: by path, and as a package."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from sotopia_env.cli.app import app
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import make_evaluator, plugins, task_set
from sotopia_env.naming.task_sources import task_sources
from sotopia_env.outcomes import AgreementRules, register_protocol, variants
from sotopia_env.storage.manifest import read_manifest
from sotopia_env.tasks.families import registry
from sotopia_env.world.dynamics import Rules, initial_state
from sotopia_env.world.observation import observe
from tests.errors import raises

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
FILES = {code[2:].partition("\n")[0]: code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)}
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
MODULES = [name.removesuffix(".py") for name in FILES]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory without files; nothing that a test imports from it stays in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.setattr(variants, "_VARIANTS", {})
    monkeypatch.setattr(plugins, "_CODE", {})
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def folder(empty_folder: Path) -> Path:
    """The page's files in the working directory."""
    for code in FILES.values():
        write_file(empty_folder, code)
    return empty_folder


@pytest.fixture
def installed(folder: Path) -> Path:
    """The same with the page's entry points, as an installed wheel has them."""
    declare(folder, blocks("toml")[0])
    return folder


def write_file(folder: Path, code: str) -> None:
    (folder / code[2:].partition("\n")[0]).write_text(code, encoding="utf-8")


def declare(folder: Path, text: str) -> None:
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    groups = tomllib.loads(text)["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in groups.items()]
    (info / "entry_points.txt").write_text("".join(lines))
    plugins._entries_of.cache_clear()  # a package is found by processes that begin after its installation


def test_the_page_has_the_four_files_and_their_tests() -> None:
    assert MODULES == ["even", "brevity", "firm", "flat_share", "test_mine"]


def test_the_page_s_own_tests_pass(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_mine.py"]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert result.returncode == 0, result.stdout
    assert "5 passed" in result.stdout


def test_each_command_needs_only_the_files_above_it(empty_folder: Path) -> None:
    for language, code in BLOCKS:
        if language in ("python", "yaml"):
            write_file(empty_folder, code)
        elif language == "toml":
            declare(empty_folder, code)
        for command in code.splitlines() if language == "sh" else ():
            result = CliRunner().invoke(app, shlex.split(command)[1:])
            assert result.exit_code == 0, (command, result.output)
    for run, level in (("by_path", "medium"), ("by_name", "hard")):
        manifest = read_manifest(empty_folder / run)
        assert manifest.counts.episodes == 24
        assert {"even", "brevity", "flat_share"} <= set(manifest.code)
        assert level in (empty_folder / run / "episodes.jsonl").read_text(encoding="utf-8")


def test_a_game_of_roles_takes_forty_lines() -> None:
    roles, choices = blocks("yaml")
    assert len(roles.splitlines()) <= 40
    assert len(choices.partition("outcome:")[2].splitlines()) <= 10  # the game itself


def test_a_task_of_a_protocol_of_an_installed_package_is_read_without_importing_it_first(installed: Path) -> None:
    assert "firm" not in variants._VARIANTS
    assert AgreementRules(variant="firm").variant == "firm"
    (task,) = task_set("flat_share", 1, 0, "easy")
    text = task.model_dump_json()
    variants._VARIANTS.clear()
    sys.modules.pop("firm", None)
    again = type(task).model_validate_json(text)
    assert again.protocol is not None
    assert type(again.protocol).__name__ == "Firm"
    assert "Offers are firm" in observe(initial_state(again, Rules(), 0), "agent_0").text


def test_a_family_of_another_package_streams_and_mixes_with_ours(installed: Path) -> None:
    assert [family.name for family in task_sources("bargaining,flat_share").sources] == ["bargaining", "flat_share"]
    ids = [task.id for task in task_set("bargaining,flat_share:level=easy,n=4,seed=3", None, 0, "medium")]
    assert ids == ["bargaining-easy-3-0", "flat_share-easy-3-0", "bargaining-easy-3-1", "flat_share-easy-3-1"]


@pytest.mark.parametrize(
    ("spec", "error", "fields"),
    [
        ("flat_shar", UnknownNameError, {"nearest": "flat_share"}),
        ("flat_share:family:lvl=hard", UnknownNameError, {"field": "lvl"}),
        ("bargaining:levels=hard", UnknownNameError, {"field": "levels", "nearest": "level"}),
        ("flat_share:FAMILY", InvalidValueError, {"record": "tasks 'flat_share:FAMILY'"}),
        ("firm:Firm", InvalidValueError, {"record": "tasks 'firm:Firm'"}),
        ("bargaining:n=many", InvalidValueError, {"field": "n"}),
    ],
)
def test_wrong_sources_are_one_sentence(
    installed: Path, spec: str, error: type[Exception], fields: dict[str, object]
) -> None:
    with raises(error, **fields) as caught:
        task_set(spec, None, 0, "medium")
    assert "\n" not in str(caught.value)


def test_wrong_evaluators_and_protocols_are_one_sentence(installed: Path) -> None:
    with raises(UnknownNameError, nearest="brevity"):
        make_evaluator("brevty")
    with raises(InvalidValueError, field="evaluator 'even:Even'"):
        make_evaluator("even:Even")
    with raises(InvalidValueError, field="protocol"):
        register_protocol("mine", str)
    task = task_set("flat_share", 1, 0, "easy")[0]
    misspelt, without = (
        task.model_dump_json().replace('\\"variant\\": \\"firm\\"', f'\\"variant\\": \\"{change}\\"')
        for change in ("furm", "")
    )
    with raises(ValidationError, nearest="firm"):
        type(task).model_validate_json(misspelt)
    assert type(task).model_validate_json(without).protocol.__class__.__name__ == "Agreement"
