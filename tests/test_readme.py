"""The files at the top of the repository agree with it. tests/test_docs.py runs the blocks of the README."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sotopia_env.foundation.yaml_text import parse_yaml

ROOT = Path(__file__).parent.parent
README, CONTRIBUTING, CHANGELOG, LOG = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LOG.md")
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 100


def test_the_first_commands_set_up_and_do_the_main_job_and_set_up_and_test():
    block = README.split("```sh\n")[1].partition("```")[0]
    assert re.findall(r"^make (\S+)", block, re.MULTILINE) == ["demo", "test"]
    assert README.index(block) < README.index("pip install")


@pytest.mark.parametrize("text", [README, CONTRIBUTING])
def test_what_make_is_asked_for_is_a_target(text):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z-]+) +#", text, re.MULTILINE)) <= targets


@pytest.mark.parametrize("text", [README, CONTRIBUTING, CHANGELOG, LOG])
def test_links_lead_to_files(text):
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("https://")]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_version_is_written_once():
    assert re.findall(r"^## (\S+)", CHANGELOG, re.MULTILINE)[0] == PROJECT["version"]
    assert PROJECT["version"] not in README


def test_the_citation_can_be_read():
    citation = parse_yaml((ROOT / "CITATION.cff").read_text(encoding="utf-8"), "CITATION.cff")
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}
    assert citation["license"] == PROJECT["license"]
    assert "version" not in citation
    assert {entry["url"] for entry in citation["references"]} == set(PROJECT["urls"].values())


def test_the_log_is_one_table():
    rows = [line for line in LOG.splitlines() if line.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {6}
    dates = [row.split("|")[1].strip() for row in rows[2:]]
    assert dates == sorted(dates)


def test_the_file_tree_names_files_that_exist():
    tree = CONTRIBUTING[CONTRIBUTING.index("## Where things are") :].split("```")[1]
    packages = {
        "sotopia_env": tree.partition("\ntraining/")[0],
        "training/sotopia_training": tree.partition("\ntraining/")[2],
    }
    for package, part in packages.items():
        names = re.findall(r"(?<=[ (])([a-z_0-9]+(?:\.py|/))(?= )", part.partition("\nstudio/")[0])
        assert names
        assert [name for name in names if not list((ROOT / package).rglob(name.rstrip("/")))] == []
