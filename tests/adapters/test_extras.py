"""A missing library is one sentence that says what to install."""

import importlib
from importlib.util import find_spec

import pytest

from sotopia_env.adapters.extras import MissingExtraError, extra
from sotopia_env.errors import SotopiaError
from tests.sotopia_env.cli.test_cli import sotopia


def test_a_missing_package_names_the_extra():
    with pytest.raises(MissingExtraError) as caught, extra("inspect"):
        import a_package_that_does_not_exist  # noqa: F401
    assert isinstance(caught.value, SotopiaError)
    assert caught.value.name == "a_package_that_does_not_exist"
    assert "sotopia-env[inspect]" in str(caught.value)


@pytest.mark.parametrize(
    ("module", "library", "name"),
    [
        ("inspect_tasks", "inspect_ai", "inspect"),
        ("openenv_server", "openenv", "openenv"),
        ("openenv_types", "openenv", "openenv"),
        ("verifiers_env", "verifiers", "verifiers"),
    ],
)
def test_an_adapter_without_its_library_says_what_to_install(module, library, name):
    if find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module(f"sotopia_env.adapters.{module}")
    assert f"sotopia-env[{name}]" in str(caught.value)


@pytest.mark.skipif(find_spec("inspect_ai") is not None, reason="inspect_ai is installed")
def test_an_export_without_the_extra_says_what_to_install(tmp_path):
    result = sotopia("export", tmp_path, "--format", "inspect", "-o", tmp_path / "logs", code=2)
    assert "sotopia-env[inspect]" in result.output
    assert "Traceback" not in result.output
