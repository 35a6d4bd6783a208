"""The ``sotopia`` command as a user meets it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sotopia_env.cli import options as command_options
from sotopia_env.cli.app import app
from sotopia_env.foundation.extras import install_command
from sotopia_env.naming.grammar import split_names
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage.manifest import read_manifest
from sotopia_env.tasks import FAMILIES
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.episode import read_episodes
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.taskset import TaskSet
from tests.sotopia_env.runs.rollout_doubles import FixedEvaluator, Speaker, make_task

COMMANDS = ["tasks list", "tasks show", "tasks sample", "tasks generate"]
COMMANDS += ["tasks validate", "tasks stats", "tasks hard"]
FIXED = "sotopia_env.testing:FixedEvaluator"
COMMANDS += ["policies", "rollout", "evaluate", "show", "play", "compare", "demo"]
COMMANDS += ["judge-agreement", "annotation-template", "interview-report", "import", "export"]
SOTOPIA = [sys.executable, "-m", "sotopia_env.cli.app"]


def sotopia(*arguments: object, code: int = 0, typed: str | None = None) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two fixed policies."""
    path = tmp_path_factory.mktemp("cli") / "run"
    plans = plan_episodes([make_task(f"s{i}") for i in range(3)], [(Speaker("a"), Speaker("b"))])
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), run_dir=path))
    return path


@pytest.fixture(scope="module")
def task_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    TaskSet([make_task(f"s{i}", turns=4) for i in range(3)]).save(path)
    return path


RULED = "tasks: {tasks}\nrules: {{turn_order: simultaneous, max_silent_turns: 0, max_turns: 2}}\n"


def test_a_yaml_task_file_brings_its_rules_and_options_go_before_them(task_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "simulation.yaml"
    file.write_text(RULED.format(tasks=f"[{task_file.read_text(encoding='utf-8').splitlines()[0]}]"), encoding="utf-8")
    orders = [((), "simultaneous"), *((("--set", f"turn_order={order}"), order) for order in ("random", "reactive"))]
    for options, order in orders:
        out = tmp_path / order
        sotopia("rollout", "--tasks", file, "--policy", "silent", "--evaluator", "none", "--out", out, *options)
        (episode,) = read_episodes(out / "episodes.jsonl")
        assert (episode.rules.turn_order, episode.rules.max_silent_turns) == (order, 0)
        assert len(episode.turns) == 2 or order == "reactive"
    file.write_text(RULED.replace("max_turns", "max_turn").format(tasks="[]"))
    result = sotopia("rollout", "--tasks", file, "--policy", "silent", "--out", tmp_path / "x", code=2)
    assert "simulation.yaml" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    text = sotopia(*command.split(), "--help").output
    assert "Example" in text
    assert f"sotopia {command}" in text


def test_the_front_page_lists_every_command() -> None:
    text = sotopia("--help").output
    assert all(command.split()[0] in text for command in COMMANDS)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom sotopia_env.cli.app import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "heavy = {'scipy', 'statsmodels', 'pandas', 'matplotlib', 'litellm', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ROLLOUT = ["rollout", "--policy", "silent", "--out", "x"]
WRONG = [
    (
        ["tasks", "list", "bargainin"],
        "tasks: ",
        "bargaining",
    ),
    (["tasks", "list", "no/such.jsonl"], "no/such.jsonl", ""),
    (["tasks", "show", "starter", "nobody"], "task: ", "nobody"),
    (["tasks", "show", "starter", "--seat", "9"], "--seat", "0 to 1"),
    (["tasks", "sample", "starter", "--out", "x.txt"], "--out: ", ""),
    (["tasks", "sample", "starter", "-n", "9999", "--out", "x.jsonl"], "sotopia: -n: ", "9999"),
    (["tasks", "sample", "starter", "--split", "trainn", "--out", "x.jsonl"], "--split: ", "train"),
    (["rollout", "--out", "x"], "--policy", ""),
    (["rollout", "--policy", "boulwar", "--out", "x"], "policy: ", "boulware"),
    (["rollout", "--policy", "boulware:exponnt=1", "--out", "x"], "parameter", "exponent"),
    (["rollout", "--policy", "silent", "--evaluator", "verifid", "--out", "x"], "evaluator: ", "verified"),
    (
        ["rollout", "--policy", "silent", "--set", "turn_order=randm", "--out", "x"],
        "turn_order: ",
        "random",
    ),
    (["rollout", "--policy", "silent", "--set", "timeout=-1", "--out", "x"], "timeout: ", "-1"),
    (
        ["rollout", "--policy", "silent", "--set", "turn_order=random", "--set", "orders=both", "--out", "x"],
        "orders: ",
        "",
    ),
    ([*ROLLOUT, "--tasks", "starter", "-n", "9999"], "sotopia: -n: ", "9999"),
    ([*ROLLOUT, "--seed", "-1"], "sotopia: --seed: ", ""),
    ([*ROLLOUT, "--set", "level=hrd"], "--level: ", "hard"),
    ([*ROLLOUT, "-n", "0"], "sotopia: -n: ", ""),
    ([*ROLLOUT, "-n", "many"], "sotopia: -n: ", ""),
    ([*ROLLOUT, "--temperature", "3"], "sotopia: --temperature: ", "3"),
    ([*ROLLOUT, "--matchup", "silent"], "--matchup: ", "'silent vs silent'"),
    (
        [*ROLLOUT, "--policy", "local/m:temperature=3", "--api-base", "http://localhost:1/v1"],
        "policy 'local/m'",
        "3.0",
    ),
    (["annotation-template", "x", "-n", "0", "--out", "y"], "sotopia: -n: ", "0"),
    (["tasks", "show", "starter", "--seat", "-1"], "--seat: ", "-1"),
    (["tasks", "sample", "starter", "--split", "test", "-n", "3", "--out", "x.jsonl"], "-n: ", "3"),
    (["evaluate", "nowhere", "--evaluator", "diligence"], "nowhere", ""),
    (["tasks", "list", ""], "tasks: ", ""),
    (["rollout", "--policy", "silent", "--tasks", " ", "--out", "x"], "tasks: ", " "),
    (["rollout", "--policy", "silent", "--out", ""], "--out: ", ""),
    (["play", "--out", ""], "--out: ", ""),
    (["compare", ""], "RUNS...: ", ""),
    (["rollout", "--policy", "human", "--out", "x"], "a rollout", "`sotopia play`"),
    (["rollout", "--matchup", "silent vs human", "--out", "x"], '"human"', "`sotopia play`"),
    (["tasks", "sample", "bargaining", "--out", "/proc/x.jsonl"], "/proc/x.jsonl", ""),
    (["evaluate", "nowhere", "--evaluator", "diligense"], "evaluator: ", "diligence"),
    (["show", "nowhere"], "nowhere", ""),
    (["compare", "nowhere"], "nowhere", ""),
    (["play", "--policy", "nobody"], "policy: ", ""),
    (["play", "--set", "orders=both"], "orders: ", ""),
]


@pytest.mark.parametrize(("arguments", "start", "hint"), WRONG, ids=[" ".join(case[0])[:60] for case in WRONG])
def test_misuse_is_one_sentence_on_stderr_and_exit_code_2(
    arguments: list[str], start: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = sotopia(*arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("sotopia: ")
    assert start in result.stderr
    assert hint in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # nothing written, not even half


@pytest.mark.parametrize(
    "arguments",
    [["nothing"], ["evaluate"], ["rollout", "--outt", "x"]],
)
def test_unreadable_command_lines_exit_2_too(arguments: list[str]) -> None:
    assert "Usage: " in sotopia(*arguments, code=2).stderr


def test_tasks_are_generated_from_any_index_on(tmp_path: Path) -> None:
    whole, rest = tmp_path / "whole.jsonl", tmp_path / "rest.jsonl"
    sotopia("tasks", "generate", "--from", "negotiation,division", "-n", 5, "--seed", 3, "--out", whole)
    sotopia("tasks", "generate", "--from", "negotiation,division", "-n", 2, "--seed", 3, "--start", 3, "--out", rest)
    assert rest.read_text().splitlines() == whole.read_text().splitlines()[3:]
    assert TaskSet.load(rest)[1].id == "negotiation-medium-3-2"


@pytest.mark.parametrize(("source", "n"), [("starter", 2), ("starter", 1), ("division,bargaining", 3), ("all", None)])
def test_n_tasks_are_drawn_from_the_split(source: str, n: int | None, tmp_path: Path) -> None:
    out = tmp_path / "test.jsonl"
    options = [] if n is None else ["-n", n]
    sotopia("tasks", "sample", source, "--split", "test", *options, "--out", out)
    tasks = TaskSet.load(out)
    assert len(tasks) == (5 * len(FAMILIES) if n is None else n)
    assert len(tasks.split("test")) == len(tasks)


def test_tasks_can_be_sampled_validated_listed_and_shown(tmp_path: Path, task_file: Path) -> None:
    out = tmp_path / "some.jsonl"
    assert "TaskSet(2 tasks" in sotopia("tasks", "sample", task_file, "-n", 2, "--seed", 1, "--out", out).output
    assert f"{out}: valid, 2 tasks" in sotopia("tasks", "validate", out).output
    listed = sotopia("tasks", "list", out).output.splitlines()
    assert [line.split("\t")[0] for line in listed] == [task.id for task in TaskSet.load(out)]
    shown = sotopia("tasks", "show", task_file, "s1/0", "--seat", 1).output
    assert "You are Bo Tarn." in shown
    assert json.loads(sotopia("tasks", "show", task_file, "s1/0", "--json").output)["id"] == "s1/0"
    assert "starter" in sotopia("tasks", "list").output


def test_validate_names_file_line_field_and_value(tmp_path: Path, task_file: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    lines = task_file.read_text().splitlines()
    bad.write_text("\n".join([lines[0], lines[1].replace('"stranger"', '"strangr"')]) + "\n")
    error = sotopia("tasks", "validate", bad, code=1).stderr
    assert "relationships.0.kind" in error
    assert f"{bad}, line 2" in error
    assert "stranger" in error


BIG = "[" + "9" * 5000 + "]"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("big.json", BIG, "big.json"),
        ("deep.json", "[" * 100_000 + "]" * 100_000, "deep.json"),
        ("empty.jsonl", "", "empty.jsonl"),
        ("empty.json", "[]", "empty.json"),
        ("inner.jsonl", "DEEP", "scenario.shared_data: "),
        ("half.jsonl", "HALF", "scenario.shared_data: "),
    ],
)
def test_validate_answers_strange_files_with_a_sentence(tmp_path: Path, name: str, text: str, said: str) -> None:
    raw = make_task("s0").model_dump_json()
    inner = {"DEEP": json.dumps('{"x":' * 99_000 + "1" + "}" * 99_000), "HALF": json.dumps({"x": "\ud800"})}
    if text in inner:
        text = raw.replace('"shared_data":"{}"', f'"shared_data":{inner[text]}')
    (tmp_path / name).write_text(text)
    error = sotopia("tasks", "validate", tmp_path / name, code=1).stderr
    assert said in error
    assert error.count("\n") == 1


def test_validate_continues_and_lists_refused_records(tmp_path: Path, task_file: Path) -> None:
    file = tmp_path / "some.jsonl"
    lines = task_file.read_text().splitlines()
    broken = [lines[0].replace('"stranger"', '"strangr"'), lines[1].replace('"age":', '"aeg":')]
    file.write_text("\n".join([*broken, lines[2]]) + "\n")
    result = sotopia("tasks", "validate", file, code=1)
    assert result.stderr.count("\n") == 1
    assert f"{file}: 1 task, 2 errors, 0 warnings" in result.stdout
    result = sotopia("tasks", "validate", file, "--keep-going", "--against", task_file, code=1)
    for line, number in zip(result.stderr.splitlines(), (1, 2, 3), strict=True):
        assert f"{file}, line {number}" in line
    assert "characters.0.aeg: " in result.stderr
    assert "line 3: warning: task 's2/0': scenario.context: " in result.stderr
    assert f"{file}: 1 task, 2 errors, 1 warnings" in result.stdout
    assert "starter" in sotopia("tasks", "validate", "startr", code=2).stderr


def test_warnings_are_errors_when_strict(tmp_path: Path, task_file: Path) -> None:
    file = tmp_path / "some.jsonl"
    task = json.loads(task_file.read_text().splitlines()[0])
    task["scenario"]["context"] = "A man waits."
    file.write_text(json.dumps(task) + "\n")
    assert "valid, 1 task, 0 errors, 1 warnings" in sotopia("tasks", "validate", file).stdout
    result = sotopia("tasks", "validate", file, "--strict", "--balance", code=1)
    assert "scenario.context: " in result.stderr
    assert "1 task, 1 errors, 0 warnings" in result.stdout
    assert "share verified: 0.0 %" in result.stdout


def test_validate_and_rollout_refuse_tasks_that_cannot_be_played(tmp_path: Path) -> None:
    from sotopia_env import tasks

    text = tasks.generate("bargaining", 1, 0)[0].model_dump_json()
    file = tmp_path / "t.jsonl"
    assert r"\"needs\": \"all\"" in text
    file.write_text(text.replace(r"\"needs\": \"all\"", r"\"needs\": {\"quorum\": 3}"))
    for code, *command in (
        (1, "tasks", "validate", file),
        (2, "rollout", "--policy", "silent", "--tasks", file, "--out", tmp_path / "run"),
        (2, "play", "--tasks", file),
    ):
        error = sotopia(*command, code=code).stderr
        assert f"{file}, line 1" in error
        assert "quorum" in error
    assert not (tmp_path / "run").exists()


def test_evaluate_counts_earlier_scores_and_exits_1_when_an_episode_is_unscored(
    tmp_path: Path, task_file: Path
) -> None:
    out = tmp_path / "run"
    sotopia("rollout", "--policy", "silent", "--tasks", task_file, "--evaluator", "none", "--out", out)
    assert "3 episodes evaluated by fixed, 0 unscored" in sotopia("evaluate", out, "--evaluator", FIXED).output
    assert "3 already had its scores" in sotopia("evaluate", out, "--evaluator", FIXED).output
    assert "3 episodes evaluated" in sotopia("evaluate", out, "--evaluator", FIXED, "--force").output
    text = sotopia("evaluate", out, "--evaluator", "verified", code=1).output
    assert "3 unscored; the first because of EvaluationError: verified: task" in text
    assert "scores by: fixed" in sotopia("compare", out, "--evaluator", "fixed").output
    assert "evaluator: " in sotopia("compare", out, code=2).stderr


def test_rollout_in_which_nothing_is_scored_exits_1(tmp_path: Path, task_file: Path) -> None:
    command = ["rollout", "--policy", "silent", "--tasks", task_file, "--evaluator", "verified", "--out", tmp_path]
    output = sotopia(*command, code=1).output
    assert "all unscored" in output
    assert "judge:MODEL" in output


def test_the_readmes_sequence_compares_by_the_evaluator_of_the_run(tmp_path: Path) -> None:
    sotopia("rollout", "--policy", "conceder,boulware", "--tasks", "bargaining", "-n", 2, "--out", tmp_path)
    before = sotopia("compare", tmp_path).output
    sotopia("evaluate", tmp_path, "--evaluator", "diligence")
    assert sotopia("compare", tmp_path).output == before
    assert "scores by: verified" in before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"actor":"agent_0"', '"actor":"agent_7"', "agent_7"),
        ('"shares":[0.5,0.5]', '"shares":[0.5]', "evaluations: "),
    ],
)
def test_records_that_do_not_fit_their_task_are_damaged(tmp_path: Path, old: str, new: str, said: str) -> None:
    outcome = OutcomeResult(agreed=True, reason="r", payoffs=(1.0, 1.0), shares=(0.5, 0.5), efficiency=1.0)
    plan = EpisodePlan(make_task(), (Speaker("a"), Speaker("b")))
    asyncio.run(run_episodes([plan], run_dir=tmp_path, evaluator=FixedEvaluator(outcome=outcome)))
    file = tmp_path / "episodes.jsonl"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    for command in (["show", tmp_path, 0], ["compare", tmp_path], ["evaluate", tmp_path, "--evaluator", "diligence"]):
        error = sotopia(*command, code=2).stderr
        assert f"{file}, line 1" in error
        assert said in error


@pytest.mark.parametrize("place", ["/proc/x", "file"])
def test_a_report_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, run: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    result = sotopia("compare", run, "--out", place, code=2)
    assert result.stdout == ""
    assert f"{place}/comparison.txt" in result.stderr


def test_rollout_prints_the_commands_to_use_next(tmp_path: Path, task_file: Path) -> None:
    out = tmp_path / "a run"  # a name that a shell would split
    command = ["rollout", "--policy", "silent", "--tasks", task_file, "--evaluator", "none", "--out", out]
    for part, names in (([], ["show", "compare"]), (["--part", "1/1"], ["merge"])):
        last = sotopia(*command, *part).output.splitlines()[-1]
        following = [shlex.split(quoted) for quoted in re.findall("`(.+?)`", last)]
        assert [words[:2] for words in following] == [["sotopia", name] for name in names]
        for words in following:
            sotopia(*words[1:])


def test_rollout_records_resumes_and_refuses_another_seed(tmp_path: Path, task_file: Path) -> None:
    out = tmp_path / "run"
    command = ["rollout", "--policy", "silent,leaver", "--tasks", task_file, "--evaluator", "none", "--out", out]
    assert "12 episodes planned, 12 played now, 0 before" in sotopia(*command).output
    assert "12 episodes planned, 0 played now, 12 before" in sotopia(*command).output
    refused = sotopia(*command, "--seed", 1, code=2).stderr
    assert "seed: " in refused
    assert read_manifest(out).config.evaluator is None
    sotopia("evaluate", out, "--evaluator", FIXED)
    assert "12 episodes, 2 policies" in sotopia("compare", out).output


def test_a_matchup_that_only_one_policy_had_is_added_and_turns_no_sign(tmp_path: Path) -> None:
    play = ["rollout", "--tasks", "bargaining", "-n", 12, "--out", tmp_path / "run"]
    sotopia(*play, "--policy", "micro,linear")
    before = json.loads(sotopia("compare", tmp_path / "run", "--json").stdout)
    sotopia(*play, "--matchup", "linear vs stubborn", "--matchup", "stubborn vs linear")
    after = json.loads(sotopia("compare", tmp_path / "run", "--json").stdout)

    def difference(report: dict[str, list[dict[str, object]]]) -> object:
        names = ("linear", "micro", "goal")
        return next(d["estimate"] for d in report["differences"] if (d["first"], d["second"], d["metric"]) == names)

    assert difference(after) == difference(before)
    assert after["episodes"] == before["episodes"] + 24


def test_rollout_options_reach_the_run(tmp_path: Path, task_file: Path) -> None:
    out = tmp_path / "run"
    options = [
        "--set",
        "orders=both",
        "--max-turns",
        3,
        "--repeats",
        2,
        "--set",
        "both_seats=false",
        "--evaluator",
        "none",
    ]
    sotopia("rollout", "--matchup", "silent vs leaver", "--tasks", task_file, "-n", 2, *options, "--out", out)
    config = read_manifest(out).config
    assert (config.tasks, config.episodes, config.repeats, config.matchups) == (2, 8, 2, ("silent vs leaver",))
    assert {(rules.max_turns, rules.first_seat) for rules in config.rules} == {(3, 0), (3, 1)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ["a"]),
        ("a, b", ["a", "b"]),
        ("a:x=1,y=2,b", ["a:x=1,y=2", "b"]),
        ("a:x=1,b:y=2,z=3", ["a:x=1", "b:y=2,z=3"]),
    ],
)
def test_commas_separate_policies_but_not_their_parameters(text: str, expected: list[str]) -> None:
    assert split_names(text) == expected


def test_rollout_with_failures_says_so_and_exits_1(
    tmp_path: Path, task_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sotopia_env import naming
    from tests.sotopia_env.runs.rollout_doubles import Faulty

    monkeypatch.setattr(naming, "make_policy", lambda spec, *_: Faulty(spec))
    out = tmp_path / "run"
    command = ["rollout", "--policy", "x", "--tasks", task_file, "--evaluator", "none", "--out", out]
    text = sotopia(*command, code=1).output
    assert "3 failed, the first with RuntimeError: the wire was cut (failures.jsonl)" in text
    assert "run the same command again to retry them" in text
    failure = sotopia("show", out).output.splitlines()[0].split("\t")[1]
    assert "Failed at turn #2: RuntimeError: the wire was cut\n" in sotopia("show", out, failure).output


class Whisperer(Speaker):
    async def act(self, observation: Observation, seed: int) -> Decision:
        return Decision(Action(ActionType.SPEAK, "between\nus\x1b[2J", ("agent_2",)))


def test_show_lists_finds_and_marks_private_messages(tmp_path: Path, run: Path) -> None:
    plan = EpisodePlan(make_task(seats=3, private=True), (Whisperer("w"), Speaker("a"), Speaker("b")))
    asyncio.run(run_episodes([plan], run_dir=tmp_path, evaluator=FixedEvaluator(fails=ValueError("no verdict"))))
    text = sotopia("show", tmp_path, 0).output
    assert 'Turn #1 | Ada Quill [privately to Cy Wren] said: "between\\nus\\u001b[2J"' in text
    assert "agent_0: Ada Quill, policy w" in text
    assert "Not scored by fixed: ValueError: no verdict" in text
    assert "Ended: turn limit" in text
    listed = sotopia("show", run).output.splitlines()
    assert len(listed) == 6
    key = listed[2].split("\t")[1]
    assert sotopia("show", run, key).output == sotopia("show", run, 2).output
    for name in ("s", "nope", "6"):  # matches six, and none
        assert "0 to 5" in sotopia("show", run, name, code=2).stderr


def test_compare_prints_tables_or_json_and_writes_a_report(tmp_path: Path, run: Path) -> None:
    text = sotopia("compare", run, "--out", tmp_path / "report").output
    assert "goal: partner \\ policy" in sotopia("compare", run, "--metric", "goal").output
    for part in ("mean [95 % interval] n", "overall: partner \\ policy", "paired difference", "heat_map.png"):
        assert part in text
    assert (tmp_path / "report" / "means.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(sotopia("compare", run, "--json").stdout)["episodes"] == 6
    assert sotopia("compare", run, run).stdout == sotopia("compare", run).stdout  # each episode counts once


def test_damaged_record_is_named_by_file_and_line(tmp_path: Path, run: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_bytes((run / "episodes.jsonl").read_bytes() + b"{}\n")
    assert f"{file}, line 7" in sotopia("compare", file, code=2).stderr


def test_policies_are_listed() -> None:
    assert {"boulware", "conceder", "tit-for-tat", "splitter"} <= set(sotopia("policies").output.split())


def test_play_seats_a_person_and_records_the_episode(tmp_path: Path, task_file: Path) -> None:
    options = ["--tasks", task_file, "--policy", "silent", "--evaluator", "none", "--out", tmp_path]
    text = sotopia("play", *options, typed="speak\nGood morning\nleave\n").output
    assert "You are Ada Quill." in text
    assert 'Turn #1 | Ada Quill said: "Good morning"' in text
    assert "Ended: left" in text
    assert "policy human" in sotopia("show", tmp_path, 0).output


def _started(arguments: list[object], **options: object) -> subprocess.Popen[str]:
    command = [*SOTOPIA, *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload, no-any-return]


def test_ctrl_c_exits_130_and_says_how_to_continue(tmp_path: Path, task_file: Path) -> None:
    out = tmp_path / "run"
    code = (
        "import sys; from sotopia_env import naming\n"
        "from sotopia_env.cli import app as cli\n"
        "from tests.sotopia_env.runs.rollout_doubles import Speaker\n"
        "naming.make_policy = lambda spec, *_: Speaker(spec, wait=60.0) if isinstance(spec, str) else spec\n"
        "sys.argv = ['sotopia', *sys.argv[1:]]; cli.main()"
    )
    options = ["rollout", "--policy", "x", "--tasks", str(task_file), "--evaluator", "none", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *options], text=True, stderr=subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    deadline = time.monotonic() + 240
    while not (out / "failures.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=240)[1]
    assert process.returncode == 130
    assert f"sotopia: stopped by SIGINT; the same command continues the run in {out}" in error
    assert "Traceback" not in error


def test_ctrl_c_at_the_prompt_ends_play_at_once(task_file: Path) -> None:
    arguments = ["play", "--tasks", task_file, "--policy", "silent", "--evaluator", "none"]
    with _started(arguments, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        while "is yours." not in process.stdout.readline():
            pass
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=240) == 130
        assert process.stderr is not None
        assert "interrupted; this episode was not recorded" in process.stderr.read()


def test_closed_pipe_is_quiet(run: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run([*SOTOPIA, "show", str(run), "0"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert process.stderr == ""


def test_demo_plays_every_family_compares_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    text = sotopia("demo", "--out", out, "-n", 1).output
    assert "mean [95 % interval] n" in text
    for family in ("bargaining", "division", "mutual_friend", "hiring", "group_decision"):
        assert f"\n{family} " in text
    assert (out / "report" / "heat_map.png").exists()
    assert f"sotopia show {out} 0" in text
    assert f"report:   {out / 'report'}" in text
    assert " 0 played now" in sotopia("demo", "--out", out, "-n", 1).output


@pytest.mark.parametrize("command", [["compare", "runs", "--out", "runs"], ["demo", "--out", "runs"]])
def test_a_missing_extra_is_one_sentence_before_anything_is_done(command, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(command_options, "find_spec", lambda module: None)
    said = sotopia(*command, code=2).stderr
    assert "matplotlib" in said
    assert install_command("charts") in said
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_mode_of_assistance_without_an_adviser_is_refused() -> None:
    refused = sotopia("play", "--tasks", "bargaining", "--assistance", "propose", code=2)
    assert "--adviser" in refused.output
