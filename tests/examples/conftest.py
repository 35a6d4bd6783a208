"""The example's package of negotiation corpora, installed for the tests of its formats."""

import tomllib
from pathlib import Path

import pytest

from sotopia_env.importers.registry import formats

EXAMPLE = Path(__file__).parents[2] / "examples" / "negotiation_corpora"


@pytest.fixture(scope="module")
def negotiation_package(tmp_path_factory):
    """The example's package as pip would install it: importable, with its entry points in metadata."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    ((group, names),) = project["entry-points"].items()
    info = site / "negotiation_corpora-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.syspath_prepend(EXAMPLE)
        formats.cache_clear()
        yield
    formats.cache_clear()
