"""``sotopia tasks write`` and ``draft``: a model writes, our checks decide, and what is saved runs without a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sotopia_env import tasks
from sotopia_env.cli.app import app
from sotopia_env.storage import read_run
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.writing.test_script import ANSWERS, SCRIPT
from tests.sotopia_env.writing.test_simulation import simulation
from tests.sotopia_env.writing.test_writer import answer as scenario_answer
from tests.sotopia_env.writing.test_writer import example, inspiration_files, person

STEPS = {
    "Divide them into scenes": "scenes",
    "One paragraph in the third person": "background",
    "What does each of them want": "goals",
    "play afresh": "rewrite",
    "Is the goal fit": "filter",
    "Is there anything that one of them knows": "private",
    "Write three wrong answers": "negatives",
    "shall recognise it": "leakage",
    "who could be in each seat": "slots",
}


def reply(body: dict[str, Any]) -> str:
    """Answers every prompt of the writing room."""
    text = body["messages"][0]["content"]
    if "impossible" in text:
        return "I cannot."
    if "You turn one sentence" in text:
        return json.dumps(simulation())
    if "invent people" in text:
        return json.dumps(person(["Ida", "Noor"]["theme 1" in text]))
    if "Two people, as a JSON list" in text:
        people = [one["first_name"] for one in json.loads(text[text.index("[{") : text.index("}]") + 2])]
        kind = text.split("kind of the relationship is, as a JSON string: ")[1].splitlines()[0]
        return json.dumps({"kind": json.loads(kind), "backstory": f"{' and '.join(people)} met at a market."})
    if '"outcome": what the seats' in text:
        return json.dumps(example())
    if "You invent situations" in text:
        return scenario_answer(SimpleNamespace(messages=body["messages"]))
    return json.dumps(ANSWERS[next(step for sign, step in STEPS.items() if sign in text)])


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(reply=reply) as running:
        yield running


def sotopia(server: LoopbackServer, *arguments: object, code: int = 0, typed: str | None = None) -> Result:
    model = ["--model", "local/tiny", "--api-base", server.api_base]
    result = CliRunner().invoke(app, ["tasks", *map(str, [*arguments, *model])], input=typed)
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def test_people_ties_and_scenarios_are_written_and_played_by_each_other(server: LoopbackServer, tmp_path: Path) -> None:
    (jobs,) = inspiration_files(tmp_path, {"jobs": 2})
    people, ties, new = (tmp_path / name for name in ("people", "ties", "new"))
    sotopia(server, "write", "characters", "--inspirations", jobs, "-n", 2, "--out", people)
    sotopia(server, "write", "relationships", "--cast", people / "cast.json", "-n", 1, "--out", ties)
    cast = tasks.read_cast(str(ties / "cast.json"))
    assert cast is not None
    assert (len(cast.characters), len(cast.relationships)) == (2, 1)
    options = ["--inspirations", jobs, "-n", 2, "--castings", 3, "--evaluation", "starter", "--cast", "starter"]
    result = sotopia(server, "write", "scenarios", *options, "--out", new)
    assert len(tasks.load(new / "tasks.jsonl")) == 6
    assert f"{new / 'tasks.jsonl'}: TaskSet(6 tasks, 2 scenarios" in result.output
    before = server.total
    sotopia(server, "write", "scenarios", *options, "--out", new)
    assert server.total - before <= 1  # the list of models; nothing is asked twice
    result = sotopia(server, "write", "outcomes", "--inspirations", jobs, "-n", 2, "--out", tmp_path / "same")
    assert "refused: jobs: jobs theme" in result.output
    assert "this situation already exists" in result.output


def test_a_directory_continues_with_its_own_people_only(server: LoopbackServer, tmp_path: Path) -> None:
    jobs, people, ties = tmp_path / "jobs.txt", tmp_path / "people", tmp_path / "ties"
    jobs.write_text("theme 0\ntheme 1", encoding="utf-8")
    result = sotopia(server, "write", "characters", "--inspirations", jobs, "-n", 2, "--out", people)
    assert "2 asked" in result.output  # the last line, which has no end, is one
    sotopia(server, "write", "relationships", "--cast", "starter", "-n", 1, "--out", ties)
    file = ties / "relationships.jsonl"
    before = (ties / "cast.json").read_bytes()
    for cast in (people / "cast.json", ties / "cast.json"):
        result = sotopia(server, "write", "relationships", "--cast", cast, "-n", 1, "--out", ties, code=2)
        assert str(file) in result.stderr
        assert "seats: " in result.stderr
    assert (ties / "cast.json").read_bytes() == before
    line = {"source": "jobs", "text": "theme 0", "result": {"first_name": "Ida"}}
    (people / "characters.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    result = sotopia(server, "write", "characters", "--inspirations", jobs, "--out", people, code=2)
    assert "result.gender: " in result.stderr


def test_a_script_becomes_a_directory(server: LoopbackServer, tmp_path: Path) -> None:
    script = tmp_path / "The Mill.txt"
    script.write_text(SCRIPT, encoding="utf-8")
    result = sotopia(server, "write", "templates", "--script", script, "--castings", 2, "--out", tmp_path / "mill")
    assert "2 scenes, 2 templates, 2 tasks each" in result.output
    assert len(tasks.load(tmp_path / "mill" / "tasks.jsonl")) == 4


def test_a_sentence_becomes_a_file_that_runs_without_a_model(server: LoopbackServer, tmp_path: Path) -> None:
    file, out = tmp_path / "flat.yaml", tmp_path / "run"
    result = sotopia(server, "draft", "Three flatmates want one room.", "-o", file, code=1, typed="n\n")
    assert "Save this as" in result.output
    assert "Nothing was written" in result.output
    assert not file.exists()
    sotopia(server, "draft", "Three flatmates want one room.", "-o", file, typed="y\n")
    for command in (["tasks", "validate", file], ["rollout", "--tasks", file, "--policy", "random", "--out", out]):
        result = CliRunner().invoke(app, list(map(str, command)))
        assert result.exit_code == 0, result.output
    assert {episode.rules.turn_order for episode in read_run(out)} == {"simultaneous"}
    assert "a new .yaml file" in sotopia(server, "draft", "Three.", "-o", file, "--yes", code=2).output
    result = sotopia(server, "draft", "Something impossible.", "-o", tmp_path / "no.yaml", "--yes", code=1)
    assert "the answer was refused" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flat.yaml", "run"]


@pytest.mark.parametrize("kind", ["characters", "relationships", "scenarios", "outcomes", "templates"])
def test_without_accepted_results_nothing_is_written_and_the_exit_code_is_1(
    server: LoopbackServer, tmp_path: Path, kind: str
) -> None:
    out, source, cast = tmp_path / "out", tmp_path / "source.txt", tmp_path / "cast.json"
    source.write_text("an impossible theme\n", encoding="utf-8")
    people = [{**one, "occupation": "impossible"} for one in (person("Ida"), person("Noor"))]
    cast.write_text(json.dumps({"characters": people, "relationships": []}), encoding="utf-8")
    options = {"relationships": ["--cast", cast], "templates": ["--script", source]}
    result = sotopia(server, "write", kind, *options.get(kind, ["--inspirations", source]), "--out", out, code=1)
    assert f"no {kind} were accepted, so nothing is written" in result.stderr
    assert not {"tasks.jsonl", "cast.json", "templates.json", "leakage.json"} & {path.name for path in out.iterdir()}
    before = server.total
    sotopia(server, "write", kind, *options.get(kind, ["--inspirations", source]), "--out", out, code=1)
    assert server.total - before <= 1  # the refusal is on disk; nothing is asked twice


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["scenario"], "kind: "),
        (["scenarios"], "--inspirations: "),
        (["relationships"], "--cast: "),
        (["templates"], "--script: "),
        (["templates", "--script", "x.txt", "--evaluation", "starter"], "--evaluation: "),
        (["characters", "--script", "x.txt"], "--script: "),
        (["scenarios", "--evaluation", "startr"], "starter"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_asked(
    server: LoopbackServer, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    before = server.total
    result = sotopia(server, "write", *arguments, "--out", tmp_path / "out", code=2)
    assert sentence in result.stderr
    assert server.total == before
    assert not (tmp_path / "out").exists()
