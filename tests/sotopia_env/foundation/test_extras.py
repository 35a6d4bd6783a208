"""A library that is missing, or of another version, is one sentence with the command that installs the right one."""

import importlib
import json
import sys
import warnings
from importlib.util import find_spec

import pytest

from sotopia_env.foundation import extras
from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.extras import MissingExtraError, check_extra, extra, install_command
from tests.sotopia_env.cli.test_cli import sotopia

OURS = "ours-for-a-test"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a distribution as pip leaves it: metadata, and a module if there is code."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(extras, "DISTRIBUTION", OURS)

    def add(name, version, *requires, code=None, origin=None):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {text}" for text in requires]
        (folder / "METADATA").write_text("\n".join(lines), encoding="utf-8")
        if origin is not None:
            (folder / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
        if code is not None:
            monkeypatch.delitem(sys.modules, name, raising=False)
            (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        importlib.invalidate_caches()

    return add


def test_a_missing_package_is_named_with_the_command(install):
    install(OURS, "1.0", "a_trainer_of_a_test<2,>=1; extra == 'trainer'")
    with pytest.raises(MissingExtraError) as caught, extra("trainer"):
        import a_trainer_of_a_test  # noqa: F401
    assert isinstance(caught.value, SotopiaError)
    assert caught.value.name == "a_trainer_of_a_test"
    assert str(caught.value).endswith(install_command("trainer"))


@pytest.mark.parametrize(("version", "admitted"), [("0.9", False), ("1.4", True), ("1.5.dev3", True), ("2.0", False)])
def test_another_version_is_named_beside_the_range(install, version, admitted):
    install(OURS, "1.0", "a_trainer_of_a_test<2,>=1; extra == 'trainer'", "numpy>=999; extra == 'other'")
    install("a_trainer_of_a_test", version)
    if admitted:
        check_extra("trainer")
        return
    with pytest.raises(MissingExtraError) as caught:
        check_extra("trainer")
    for part in ("a_trainer_of_a_test", ">=1", "<2", version, install_command("trainer")):
        assert part in str(caught.value)


@pytest.mark.parametrize("works", [True, False])
def test_packages_of_another_extra_that_exclude_those_of_this_one_are_named(install, works):
    install(OURS, "1.0", "a_trainer_of_a_test; extra == 'trainer'", "a_server_of_a_test; extra == 'server'")
    code = "" if works else "from a_protocol_of_a_test import new_name"
    install("a_trainer_of_a_test", "1.0", "a_protocol_of_a_test==2", code=code)
    install("a_server_of_a_test", "1.0", "a_protocol_of_a_test<2", code="")
    install("a_protocol_of_a_test", "1.5", code="")
    if works:
        with (
            pytest.warns(UserWarning, match=r"a_trainer_of_a_test 1\.0 .*a_protocol_of_a_test.* 1\.5"),
            extra("trainer"),
        ):
            importlib.import_module("a_trainer_of_a_test")
    else:
        with pytest.raises(MissingExtraError, match=r"a_protocol_of_a_test.* 1\.5") as caught, extra("trainer"):
            importlib.import_module("a_trainer_of_a_test")
        assert install_command("trainer") in str(caught.value)
    with warnings.catch_warnings(action="error"), extra("server"):
        importlib.import_module("a_server_of_a_test")


def test_an_error_of_a_package_that_has_what_it_needs_is_reported_as_it_is(install):
    install(OURS, "1.0", "a_trainer_of_a_test; extra == 'trainer'")
    install("a_trainer_of_a_test", "1.0", code="raise ImportError('a library of the system is missing')")
    with pytest.raises(ImportError, match="system") as caught, extra("trainer"):
        importlib.import_module("a_trainer_of_a_test")
    assert not isinstance(caught.value, MissingExtraError)


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "'ours-for-a-test[charts,serve]'"),
        ({"url": "file:///tmp/ours.whl", "archive_info": {}}, "'ours-for-a-test[charts,serve] @ file:///tmp/ours.whl'"),
        (
            {"url": "https://example.org/ours", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "'ours-for-a-test[charts,serve] @ git+https://example.org/ours@abc'",
        ),
    ],
)
def test_the_command_names_what_was_installed(install, monkeypatch, tmp_path, origin, requirement):
    install(OURS, "1.0", origin=origin)
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    assert install_command("charts", "serve") == f"pip install {requirement}"


def test_in_a_checkout_the_command_names_its_folder(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    assert install_command("charts") == f"pip install -e '{tmp_path}[charts]'"


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
    assert install_command(name) in str(caught.value)


@pytest.mark.skipif(find_spec("inspect_ai") is not None, reason="inspect_ai is installed")
def test_an_export_without_the_extra_says_what_to_install(tmp_path):
    result = sotopia("export", tmp_path, "--format", "inspect", "-o", tmp_path / "logs", code=2)
    assert install_command("inspect") in result.output
    assert "Traceback" not in result.output
