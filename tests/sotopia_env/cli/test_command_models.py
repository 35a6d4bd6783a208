"""The ``sotopia`` command with language models: options, bad input, what is printed and what is marked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sotopia_env.cli.app import app
from sotopia_env.cli.models import per_model
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_env.storage import read_run
from sotopia_env.tasks import starter_tasks
from sotopia_env.writing.simulation import plain_task
from tests.errors import raises
from tests.sotopia_env.chat_model.server import MANNERS, LoopbackServer, obedient
from tests.sotopia_env.runs.model_runs import answer, form_of, table_server


def sotopia(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with table_server(key="secret-key") as running:
        yield running


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLE_KEY", "secret-key")
    monkeypatch.setenv("WRONG_KEY", "wrong")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def words(server: LoopbackServer, out: Path, *more: object) -> list[object]:
    place = ["--api-base", server.api_base, "--api-key-env", "TABLE_KEY"]
    return ["rollout", "--tasks", "bargaining", "-n", 2, "--max-turns", 3, *place, "--out", out, *more]


BAD = [
    (["--policy", "local/tinny"], "tiny"),
    (["--policy", "locl/tiny"], "unknown provider"),
    (["--policy", "local/tiny", "--evaluator", "judge:local/tinny"], "tiny"),
    (["--policy", "local/tiny", "--evaluator", "judge:"], "a model's name"),
    (["--policy", "local/tiny", "--evaluator", "judge:local/tiny:band=true"], "bands"),
    (["--policy", "local/tiny:temprature=1"], "temperature"),
    (["--policy", "local/tiny", "--set", "models.rpm=100", "--set", "models.tpm=10"], "each o"),
    (["--policy", "local/tiny", "--max-cost", 1], "a model with a known price"),
    (["--policy", "local/tiny", "--max-cost", 0], "--max-cost: "),
    (["--policy", "local/tiny", "--set", "models.max_tokens=0"], "models.max_tokens: "),
    (["--policy", "local/tiny", "--set", "models.price='x'"], "models.price"),
    (["--policy", "local/tiny", "--set", "models.structured=onn"], "models.structured: "),
    (
        ["--policy", "local/tiny", "--set", "models.fallbacks=[openai/gpt-4o]"],
        "--api-base: ",
    ),
    (["--policy", "local/tiny", "--executor", "rya"], "--executor: "),
    (["--policy", "local/tiny", "--executor", "ray", "--verbose"], "--verbose: "),
    (["--policy", "openai/gpt-4o"], "OPENAI_API_KEY"),
]


@pytest.mark.parametrize(("more", "sentence"), BAD, ids=[" ".join(map(str, case[0][1:])) for case in BAD])
def test_bad_input_is_one_sentence_before_any_episode(
    server: LoopbackServer, tmp_path: Path, more: list[object], sentence: str
) -> None:
    before = server.total
    arguments = words(server, tmp_path / "run", *more)
    if "openai/gpt-4o" in more:  # another provider's model has its own key and address
        arguments = [word for word in arguments if word not in ("--api-key-env", "TABLE_KEY")]
    result = sotopia(*arguments, code=2)
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert server.total == before
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (["--api-base", "http://127.0.0.1:9/v1"], "http://127.0.0.1:9/v1"),
        (["--api-base", "nowhere"], "--api-base: "),
        ([], "--api-base: "),
        (["--api-base", "URL", "--api-key-env", "WRONG_KEY"], "WRONG_KEY"),
        (["--api-base", "URL", "--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY"),
        (["--api-base", "URL", "--api-base", "URL"], "--api-base: "),
    ],
)
def test_a_server_that_is_unreachable_or_refuses_the_key(
    server: LoopbackServer, tmp_path: Path, place: list[str], sentence: str
) -> None:
    given = [server.api_base if word == "URL" else word for word in place]
    result = sotopia("rollout", "--policy", "local/tiny", *given, "--out", tmp_path / "run", code=2)
    assert sentence in result.stderr
    assert "secret-key" not in result.output
    assert not (tmp_path / "run").exists()


def test_settings_reach_the_server_and_the_record_says_who_answered(tmp_path: Path) -> None:
    with table_server(keep_requests=True, key="secret-key") as server:
        more = ["--policy", "local/tiny:reasks=1", "--temperature", 0.3, "--set", "manner.max_tokens=77"]
        output = sotopia(*words(server, tmp_path, *more, "--evaluator", "judge:local/tiny")).output
        seated = [seen.body for seen in server.requests if not form_of(seen.body)]
        judged = [seen.body for seen in server.requests if form_of(seen.body)]
    assert {(body["temperature"], body["max_tokens"]) for body in seated} == {(0.3, 77)}
    assert {(body["temperature"], body.get("max_tokens")) for body in judged} == {(0.0, None)}
    assert "agents: 6 answers, 0 failed calls" in output
    assert "judges: 2 answers, 0 failed calls" in output
    manifest = json.loads((tmp_path / "run.json").read_text())
    assert json.loads(manifest["models"]) == {
        "agent": {"local/tiny": {"tiny-2026": 6}},
        "judge": {"local/tiny": {"tiny-2026": 2}},
    }
    assert {"litellm", "aiohttp", "python"} <= set(json.loads(manifest["packages"]))
    policy, judge = manifest["config"]["policies"][0], manifest["config"]["evaluator"]
    assert len(json.loads(policy["parameters"])["prompts"]["briefing"]) == 12
    assert len(json.loads(judge["parameters"])["prompt"]) == 16
    assert "secret-key" not in (tmp_path / "run.json").read_text()
    assert "secret-key" not in (tmp_path / "ledger.jsonl").read_text()


@pytest.mark.parametrize(
    ("switch", "rejects", "agents", "judges"),
    [
        ("on", False, [1, 1, 1], [1]),
        ("off", False, [0, 0, 0], [0]),
        ("auto", False, [1, 1, 1], [1]),
        ("auto", True, [1, 1, 1, 0, 0, 0], [0]),  # json_schema, json_object with and without the schema, none
    ],
)
def test_one_switch_asks_for_the_form_of_agents_and_judges_answers(
    tmp_path: Path, switch: str, rejects: bool, agents: list[int], judges: list[int]
) -> None:
    utterance = answer({"messages": []})
    with table_server(reply=utterance, keep_requests=True, rejects_response_format=rejects) as server:
        more = [
            "--policy",
            "local/tiny",
            "--set",
            f"models.structured={switch}",
            "--evaluator",
            "judge:local/tiny:reasks=0",
            "-n",
            1,
        ]
        sotopia(*words(server, tmp_path, *more), code=1)  # the judge gets an utterance: the episode stays unscored
    counts: dict[bool, list[int]] = {True: [], False: []}
    for seen in server.requests:
        counts[seen.body["temperature"] == 0].append("response_format" in seen.body)
    assert (counts[False], counts[True]) == (agents, judges)
    policy = json.loads((tmp_path / "run.json").read_text())["config"]["policies"][0]
    assert json.loads(policy["parameters"])["model_parameters"]["structured"] == switch


def test_an_option_in_a_name_precedes_the_command_lines(tmp_path: Path) -> None:
    with table_server(keep_requests=True) as server:
        place = ["--api-base", server.api_base, "--out", tmp_path, "--tasks", "bargaining", "-n", 1]
        sotopia("rollout", "--policy", "local/tiny:temperature=0.9", "--temperature", 0.3, "--max-turns", 1, *place)
        assert [seen.body["temperature"] for seen in server.requests] == [0.9]


def test_verbose_streams_a_transcript(server: LoopbackServer, tmp_path: Path) -> None:
    output = sotopia(*words(server, tmp_path, "--policy", "local/tiny", "--verbose")).output
    assert "Turn #1 | " in output
    assert "Ended: turn limit" in output
    assert output.index("Turn #1") < output.index("2 episodes planned")


def test_show_marks_irregularities_and_gives_the_judges_reasons(tmp_path: Path) -> None:
    replies = iter(["not json", answer({"messages": []}), *["useless"] * 3])

    def reply(body: dict[str, object]) -> str:
        return answer(body) if form_of(body) else next(replies, answer({"messages": []}))

    with table_server(reply=reply) as server:
        place = ["--api-base", server.api_base, "--out", tmp_path, "--tasks", "bargaining", "-n", 1]
        more = ["--policy", "local/tiny", "--evaluator", "judge:local/tiny", "--max-turns", 4, "--concurrency", 1]
        sotopia("rollout", *more, *place)
    listing = sotopia("show", tmp_path).output
    assert "asked again 3, not an action" in listing
    text = sotopia("show", tmp_path, 0).output
    assert "(asked again once)" in text
    assert "(not an action: " in text
    assert "(asked again 2 times)" in text
    assert "    GOAL: agent_0 on goal" in text
    assert "  answered by tiny-2026" in text


def test_show_lists_failed_episodes(tmp_path: Path) -> None:
    with table_server(faults={"server_error": 1.0}) as server:
        place = [
            "--api-base",
            server.api_base,
            "--out",
            tmp_path,
            "--tasks",
            "bargaining",
            "-n",
            1,
            "--set",
            "models.retries=0",
        ]
        place += ["--set", "models.patience=0"]
        output = sotopia("rollout", "--policy", "local/tiny", *place, code=1).output
    assert "1 failed, the first with PolicyError: local/tiny: model 'local/tiny': HTTP 500" in output
    assert "failed\tbargaining-" in sotopia("show", tmp_path).output


def test_judges_answers_are_kept_shown_and_cleared(server: LoopbackServer, tmp_path: Path) -> None:
    run, cache = tmp_path / "run", tmp_path / "cache"
    sotopia("rollout", "--policy", "silent", "--tasks", "bargaining", "-n", 3, "--out", run, "--evaluator", "none")
    judging = ["evaluate", run, "--evaluator", "judge:local/tiny", "--api-base", server.api_base]
    judging += ["--api-key-env", "TABLE_KEY", "--set", f"models.cache_dir={cache}"]
    before = server.total
    assert "judges: 3 answers, 0 failed calls; " in sotopia(*judging).output
    assert server.total == before + 3
    assert "6 answers, 0 failed calls, 3 from the cache" in sotopia(*judging, "--force").output
    assert server.total == before + 3
    assert f"{cache}: 3 answers" in sotopia("cache", "show", cache).output
    assert "3 answers removed" in sotopia("cache", "clear", cache).output
    assert f"{cache}: 0 answers" in sotopia("cache", "show", cache).output
    assert "a response cache" in sotopia("cache", "show", tmp_path / "no", code=2).stderr
    assert all(episode.evaluations[-1].scores for episode in read_run(run))


def test_a_later_evaluation_scores_the_dimensions_of_the_task_file(server: LoopbackServer, tmp_path: Path) -> None:
    file, run = tmp_path / "mine.yaml", tmp_path / "run"
    warmth = {"name": "warmth", "low": 0, "high": 5, "instruction": "How warm?"}
    file.write_text(to_yaml({"tasks": [plain_task(item) for item in starter_tasks()[:2]], "dimensions": [warmth]}))
    sotopia("rollout", "--policy", "silent", "--tasks", file, "--out", run, "--evaluator", "none")
    file.unlink()  # a run needs nothing but itself
    judging = ["--evaluator", "judge:local/tiny", "--api-base", server.api_base, "--api-key-env", "TABLE_KEY"]
    sotopia("evaluate", run, *judging)
    scores = [score for episode in read_run(run) for score in episode.evaluations[-1].scores]
    assert [score.value for score in scores if score.dimension == "warmth"] == [4.0] * 4


def test_a_finished_run_makes_no_calls(server: LoopbackServer, tmp_path: Path) -> None:
    command = words(server, tmp_path, "--policy", "local/tiny")
    sotopia(*command)
    before = server.total
    assert "0 played now, 2 before" in sotopia(*command).output
    assert server.total == before


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], None),
        (["http://a:1/v1"], {"": "http://a:1/v1"}),
        (["http://a:1/v1?x=y"], {"": "http://a:1/v1?x=y"}),
        (["local/m=http://a:1/v1", "http://b/v1"], {"local/m": "http://a:1/v1", "": "http://b/v1"}),
        (["openai/gpt-4o=MY_KEY"], {"openai/gpt-4o": "MY_KEY"}),
        (["MY_KEY"], {"": "MY_KEY"}),
    ],
)
def test_values_for_all_or_one_model(texts: list[str], expected: dict[str, str] | None) -> None:
    assert per_model(texts, "--x") == expected


def test_values_that_contradict_each_other_are_refused() -> None:
    with raises(InvalidValueError, field="--api-base"):
        per_model(["http://a", "http://b"], "--api-base")


def check_models(*arguments: object, code: int = 0) -> Result:
    return sotopia("models", "check", *arguments, code=code)


def test_models_check_prints_the_features_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "")
    with LoopbackServer(manner=MANNERS["llama_cpp.server"], reply=obedient) as server:
        lines = check_models(server.api_base, "--model", "tiny").output.splitlines()
        answer = json.loads(check_models(server.api_base, "--model", "tiny", "--json").output)
    rows = {line[:12].strip(): line[13:].split()[0] for line in lines}
    assert rows == {name: row["result"] for name, row in answer["findings"].items()}
    assert (rows["plain"], rows["schema"], rows["json_object"], rows["token ids"]) == ("yes", "no", "yes", "ignored")


def test_models_check_of_a_server_that_cannot_answer(server: LoopbackServer) -> None:
    key = ["--api-key-env", "TABLE_KEY"]
    assert "tinny" in check_models(server.api_base, "--model", "tinny", *key, code=2).stderr
    assert "key" in check_models(server.api_base, "--model", "tiny", "--api-key-env", "WRONG_KEY", code=2).stderr
    assert "--api-base: " in check_models("nowhere", "--model", "tiny", code=2).stderr
    with LoopbackServer(script=["server_error"] * 3) as broken:
        output = check_models(broken.api_base, "--model", "tiny", code=1).output
    assert output.split()[:2] == ["plain", "no"]
    assert "The server had an error" in output


def test_models_check_needs_a_model_on_the_server_or_one_in_this_process() -> None:
    assert "--model" in check_models("http://127.0.0.1:1", code=2).stderr
    assert "address of a server" in check_models("boulware", code=2).stderr
    assert "nowhere" in check_models("./nowhere", code=2).stderr


def test_a_log_message_cannot_write_to_the_terminal() -> None:
    code = (
        "import logging, sys; from sotopia_env.cli import app; app.app = lambda: None; app.main(); "
        "logging.getLogger('sotopia_env').warning('a server says %s', '\\x1b]0;owned\\x07')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr.startswith("a server says ")
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("raw_status", [400, 200])
def test_a_server_whose_first_answers_fail_stops_the_run_and_the_same_command_continues_it(
    tmp_path: Path, raw_status: int
) -> None:
    page = b"<!doctype html><title>Sign in</title>"
    with table_server(raw=page, raw_status=raw_status, key="secret-key") as server:
        command = words(server, tmp_path / "run", "--policy", "local/tiny", "-n", 8, "--concurrency", 1)
        result = sotopia(*command, code=2)
        assert "this is a web page, not an API ('Sign in')" in result.stderr
        assert "after the problem is fixed" in result.stderr
        assert server.total <= 3
        server.raw = b""
        sotopia(*command)
    assert len(list(read_run(tmp_path / "run"))) == 8


@pytest.mark.parametrize(("usable", "code"), [(0, 1), (2, 0), (4, 0)])
def test_a_run_says_when_most_turns_of_a_policy_were_not_actions(tmp_path: Path, usable: int, code: int) -> None:
    texts = iter(['{"action_type": "speak", "argument": "Hm."}'] * usable)
    with table_server(reply=lambda body: next(texts, "I would rather not."), key="secret-key") as server:
        more = ["--policy", "local/tiny:reasks=0", "--evaluator", "none", "--set", "models.structured=off"]
        result = sotopia(*words(server, tmp_path, *more), code=code)
    line = f'sotopia: local/tiny: {6 - usable} of 6 turns were not an action (most often: "no JSON object'
    assert (line in result.stderr) == (usable < 3)
    assert "were not an action" not in result.stdout


def test_settings_of_the_request_in_a_models_name_are_sent_and_part_of_the_run(tmp_path: Path) -> None:
    with table_server(keep_requests=True, key="secret-key") as server:
        names = [
            "--policy",
            'local/tiny:reasoning_effort=low,top_p=0.9,chat_template_kwargs={"enable_thinking": false}',
        ]
        sotopia(*words(server, tmp_path / "a", *names, "--evaluator", "none"))
        [*bodies] = [seen.body for seen in server.requests]
        other = ["--policy", "local/tiny:reasoning_effort=high", "--evaluator", "none"]
        assert "parameters.request" in sotopia(*words(server, tmp_path / "a", *other), code=2).stderr
        for wrong in ("local/tiny:messages=x", "local/tiny:max_completion_tokens=9", "local/tiny:request={stream: 1}"):
            assert "Traceback" not in sotopia(*words(server, tmp_path / "b", "--policy", wrong), code=2).stderr
    assert bodies
    for body in bodies:
        assert (body["reasoning_effort"], body["top_p"]) == ("low", 0.9)
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
    [recorded, *_] = next(iter(read_run(tmp_path / "a"))).policies
    assert recorded.parameters["request"]["reasoning_effort"] == "low"
