"""From templates to AgentSense's measures by commands, without a key: scripts, a server of one's own, a person."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sotopia_env.cli.app import app
from sotopia_env.storage import read_run
from sotopia_env.world.taskset import TaskSet
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.factories import task
from tests.sotopia_env.interviewed import RIGHT, fair, question_of
from tests.sotopia_env.runs.model_runs import form_of


def sotopia(*arguments: object, code: int = 0, typed: str | None = None) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interviews") / "tasks.jsonl"
    TaskSet([fair(f"{name}/{n}", template=name) for name in ("fair", "feast") for n in range(2)]).save(path)
    return path


def test_scripted_policies_from_templates_to_the_report(tasks: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    play = [
        "rollout",
        "--tasks",
        tasks,
        "--policy",
        "sharer,random",
        "--set",
        "by_role=true",
        "--evaluator",
        "interview",
    ]
    assert "16 episodes planned" in sotopia(*play, "--out", run).output
    seatings = {tuple(info.name for info in episode.policies) for episode in read_run(run)}
    assert seatings == {(s, r, r) for s in ("sharer", "random") for r in ("sharer", "random")}
    output = sotopia("interview-report", run, "--out", tmp_path / "report").output
    for words in ("sender \\ receiver", "private information", "against the exact outcome", "PSI"):
        assert words in output
    assert (tmp_path / "report" / "roles.png").exists()
    data = json.loads(sotopia("interview-report", run, "--json", "--measure", "exact").output)
    assert (data["measure"], data["mixed"], data["templates"]) == ("exact", 0, 2)
    assert "measure: " not in sotopia("interview-report", run, "--measure", "exakt", code=2).output.split("--")[0]


def test_a_recorded_run_is_interviewed_afterwards_and_only_once(tasks: Path, tmp_path: Path) -> None:
    sotopia("rollout", "--tasks", tasks, "--policy", "random", "--evaluator", "none", "--out", tmp_path)
    assert (
        "4 episodes evaluated by interview, 0 unscored"
        in sotopia("evaluate", tmp_path, "--evaluator", "interview").output
    )
    first = [episode.evaluation("interview") for episode in read_run(tmp_path)]
    assert {answer.value for evaluation in first if evaluation for answer in evaluation.answers} == {True, False}
    assert "0 episodes evaluated" in sotopia("evaluate", tmp_path, "--evaluator", "interview").output
    sotopia("evaluate", tmp_path, "--evaluator", "interview", "--force")
    assert [episode.evaluation("interview") for episode in read_run(tmp_path)] == first


def test_the_commands_of_the_docs_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "docs" / "measures.md").read_text(encoding="utf-8")
    by_hand = re.compile(r"<!-- not run: .*? -->\n```.*?```", re.DOTALL)
    commands = [line for line in by_hand.sub("", text).splitlines() if line.startswith("sotopia ")]
    monkeypatch.chdir(tmp_path)
    for command in commands:
        arguments = shlex.split(command, comments=True)[1:]
        few = ["-n", 10] if arguments[0] == "rollout" else []
        sotopia(*arguments, *few)
    assert {"list", "rollout", "compare"} <= {word for command in commands for word in command.split()}
    assert len(list((tmp_path / "runs" / "groups" / "report").glob("*.png"))) == 4


def reply(body: dict[str, Any]) -> str:
    """Speaks, answers for a participant (always right, always yes), or judges (the first goal alone)."""
    schema = form_of(body)
    if "answers" in schema:
        numbers = schema["answers"]["required"]
        votes = {n: {"reasoning": "so", "answer": "yes" if n == "1" else "no"} for n in numbers}
        return json.dumps({"answers": votes})
    if "answer" in schema:
        options = question_of(body["messages"][-1]["content"])
        return json.dumps({"answer": next((key for key, text in options.items() if text == RIGHT), "yes")})
    return json.dumps({"action_type": "speak", "argument": "Let us see."})


def test_models_in_seats_and_judges_of_a_server_of_ones_own(tasks: Path, tmp_path: Path) -> None:
    with LoopbackServer(reply=reply, keep_requests=False, models=("tiny", "a", "b", "c")) as server:
        place = ["--api-base", server.api_base]
        play = ["rollout", "--tasks", tasks, "--policy", "local/tiny", "--max-turns", 3, "--evaluator", "interview"]
        forecast = sotopia(*play, "--out", tmp_path / "run", *place, "--dry-run").output
        assert "judge local/tiny: 56 calls, 168 with every re-ask" in forecast  # 14 questions in 4 episodes, 2 re-asks
        sotopia(*play, "--out", tmp_path / "run", *place)
        judges = "interview:local/a,local/b,local/c"
        output = sotopia("evaluate", tmp_path / "run", "--evaluator", judges, *place).output
    assert "4 episodes evaluated by interview(local/a, local/b, local/c)#" in output
    assert "judges: 148 answers" in output  # in 4 episodes twice 14 by participants and once 9 by judges
    message = sotopia("interview-report", tmp_path / "run").output
    assert "answers by: interview\n" in message  # the run was started with it
    name = next(e.evaluator for e in next(iter(read_run(tmp_path / "run"))).evaluations if e.evaluator != "interview")
    data = json.loads(sotopia("interview-report", tmp_path / "run", "--evaluator", name, "--json").output)
    means = {cell["measure"]: cell["estimate"]["mean"] for cell in data["completion"]}
    third = pytest.approx((0.5 + 1 + 1) / 3)
    assert means == {
        "judge majority": third, "judge average": third, "self": 1, "other": 1, "exact": 0,
            "information": 1, "information_answered": 1, "information_coverage": 1,
    }  # fmt: skip


def test_a_person_is_interviewed_at_the_terminal(tasks: Path) -> None:
    # agent_1: leaves, then answers on 1 goal of its own, on 3 of the others', and on the hall.
    typed = "leave\nyes\nno\nno\nno\nA\n"
    play = ["play", "--tasks", tasks, "--policy", "leaver", "--seat", 1, "--evaluator", "interview"]
    output = sotopia(*play, typed=typed).output
    assert "As Bram Testa: A / B / C / D? (Enter for none)" in output
    assert "Did you reach it?" in output


def test_roles_are_of_tasks_that_have_them(tmp_path: Path) -> None:
    TaskSet([task()]).save(tmp_path / "tasks.jsonl")
    play = ["rollout", "--tasks", tmp_path / "tasks.jsonl", "--policy", "random,silent", "--set", "by_role=true"]
    output = sotopia(*play, "--out", tmp_path / "run", code=2).output
    assert "by_role: " in output
