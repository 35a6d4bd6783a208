"""The pages of adapters install what their commands, and the tests of `make adapters`, need."""

import re
import tomllib

import pytest

from tests.test_docs import ROOT

NAMES = re.search(r"^ADAPTERS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split()
TESTERS = {"pytest", "pytest-xdist", "pytest-timeout"}


def lines(path):
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_installs_what_its_tests_have_and_nothing_that_they_lack(name):
    """Guards a test environment with a package that the reader of the page does not have."""
    page = (ROOT / "docs" / "adapters" / f"{name}.md").read_text(encoding="utf-8")
    commands = [line.split("#")[0].split()[2:] for line in page.splitlines() if line.startswith("pip install ")]
    installed = {word.strip("'") for words in commands for word in words if not word.startswith("-")}
    folder = ROOT / "tests" / "adapters"
    required = set(lines(folder / name / "requirements.txt")) - {"-r ../requirements.txt"}
    assert installed == {f".[{name}]"} | required
    assert set(lines(folder / "requirements.txt")) == TESTERS


def test_the_image_of_the_openenv_server_leaves_out_what_git_ignores():
    """`COPY . /src` would otherwise bring gigabytes of virtual environments, and runs of yours, into the image."""
    ignored = {line.strip("/") for line in lines(ROOT / ".gitignore")}
    left_out = {line.removeprefix("**/") for line in lines(ROOT / ".dockerignore")}
    assert ignored <= left_out
    assert left_out - ignored == {".git"}


def test_the_image_has_what_the_wheel_is_built_from():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = packages["tool"]["hatch"]["build"]["targets"]["wheel"]
    left_out = {line.removeprefix("**/") for line in lines(ROOT / ".dockerignore")}
    for path in (*wheel["packages"], *wheel["force-include"], "examples/openenv", "README.md", "LICENSE"):
        assert not left_out.intersection(path.split("/"))
