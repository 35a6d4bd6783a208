"""A run as a file: read, overridden, kept in ``run.json``, and played again from there."""

import json
from pathlib import Path

import pytest

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.runs import RunSpec
from sotopia_env.runs.spec import read_specs
from sotopia_env.storage import read_run
from tests.errors import raises
from tests.sotopia_env.cli.test_command_models import sotopia

SPEC = """\
policies: [boulware, conceder]
tasks: bargaining
n: 2
max_turns: 6
orders: both
models: {rpm: 60, price: "1,2"}
"""


def keys(run: Path) -> set[str]:
    return {episode.key for episode in read_run(run)}


def test_a_run_is_played_from_a_file_and_again_from_its_own_record(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(SPEC)
    sotopia("rollout", "--config", tmp_path / "run.yaml", "--out", tmp_path / "a", "--set", "repeats=2")
    run_keys = keys(tmp_path / "a")
    assert len(run_keys) == 2 * 4 * 2 * 2  # tasks, pairings, orders, repeats
    sotopia("rollout", "--config", tmp_path / "a" / "run.json", "--out", tmp_path / "b")
    assert keys(tmp_path / "b") == run_keys
    again = sotopia("rollout", "--config", tmp_path / "a" / "run.json").output
    assert "0 played now" in again


def test_the_record_holds_what_was_added_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for policies in ("boulware,conceder", "boulware,linear"):
        sotopia("rollout", "--policy", policies, "--tasks", "bargaining", "-n", 1, "--out", run)
    specs = read_specs(run / "run.json", {})
    assert [spec.policies for spec in specs] == [("boulware,conceder",), ("boulware,linear",)]
    sotopia("rollout", "--config", run / "run.json", "--out", tmp_path / "again")
    assert keys(tmp_path / "again") == keys(run)


def test_flags_replace_what_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(SPEC)
    more = ["--policy", "silent", "-n", 1, "--evaluator", "none", "--max-cost", 3]
    sotopia("rollout", "--config", tmp_path / "run.yaml", "--out", tmp_path / "run", *more)
    (spec,) = read_specs(tmp_path / "run" / "run.json", {})
    assert (spec.policies, spec.n, spec.evaluator, spec.max_turns) == (("silent",), 1, "none", 6)
    assert (spec.models.max_cost, spec.models.rpm) == (3, 60)


@pytest.mark.parametrize(
    ("text", "error"),
    [("policy: [boulware]", UnknownNameError), ("repeats: 0", InvalidValueError), ("- boulware", InvalidValueError),
     ("models: {rpn: 1}", UnknownNameError), ("timeout: 5\nmodels: {timeout: 6}", InvalidValueError)],
)  # fmt: skip
def test_a_mistake_in_the_file_names_the_file(tmp_path: Path, text: str, error: type[Exception]) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with raises(error, file="run.yaml"):
        read_specs(path, {})


def test_requests_are_as_short_as_episodes_unless_a_length_is_given() -> None:
    assert settings_of({"timeout": 5}, RunSpec, "").models.timeout == 5
    assert settings_of({"timeout": 90}, RunSpec, "").models.timeout == 60


def test_a_spec_survives_json() -> None:
    spec = settings_of({"policies": ["a"], "models": {"price": "1,2"}, "timeout": 5}, RunSpec, "")
    text = json.dumps(spec.model_dump(mode="json", exclude_defaults=True))
    assert settings_of(json.loads(text), RunSpec, "") == spec
