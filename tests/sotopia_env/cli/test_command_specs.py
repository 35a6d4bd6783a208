"""Best-of-N, interviews and other people's policies by the words of the command line, against a server."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sotopia_env.naming.grammar import split_names
from sotopia_env.storage import read_run
from sotopia_env.world.reward import Dimension
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.cli.test_command_models import sotopia
from tests.sotopia_env.runs.model_runs import answer, form_of, start, table_server

PLUGIN = '''
import pathlib, time
from sotopia_env.naming import make_policy as make

class Numbered:
    """Prefers the candidate with the highest number."""
    name, parameters = "numbered", {}
    async def score(self, observation, decisions):
        return [float(decision.action.argument.split()[-1]) for decision in decisions]

def silent():
    return make("silent")

def slow(marker):
    pathlib.Path(marker).touch()
    time.sleep(60)
'''


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "table_plugin", raising=False)


def views(body: dict[str, Any]) -> str:
    """Yes to every goal from inside, no from outside; plays where nothing is asked."""
    form, vote = form_of(body), "yes" if body["model"] == "tiny" else "no"
    if "answers" in form:
        return json.dumps({"answers": {n: {"reasoning": "so", "answer": vote} for n in form["answers"]["required"]}})
    return json.dumps({"answer": vote}) if "answer" in form else answer(body)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with table_server(reply=views, keep_requests=True, models=("tiny", "outside")) as running:
        yield running


def words(server: LoopbackServer, out: Path, *more: object) -> list[object]:
    place = ["--api-base", server.api_base, "--evaluator", "none", "--max-turns", 2, "--out", out]
    return ["rollout", "--tasks", "bargaining", "-n", 2, *place, *more]


def test_best_of_n_asks_n_times_and_keeps_the_best(tmp_path: Path) -> None:
    told = iter(range(1000))
    run = tmp_path / "run"
    with table_server(
        reply=lambda _: json.dumps({"action_type": "speak", "argument": f"offer {next(told)}"})
    ) as server:
        spec = "best-of-4(local/tiny:temperature=0.7,reasks=0 by table_plugin:Numbered)"
        sotopia(*words(server, run, "--policy", f"{spec},silent", "--set", "self_play=false", "--concurrency", 1))
        assert server.total == 4 * 4  # two tasks, each seat once: a turn of four candidates in each episode
    taken = [item for episode in read_run(run) for item in episode.turns if item.generation is not None]
    assert [int(item.turn.action.argument.split()[-1]) for item in taken] == [3, 7, 11, 15]
    assert {item.generation.candidates for item in taken if item.generation} == {4}
    policies = {policy.name: policy.parameters for episode in read_run(run) for policy in episode.policies}
    assert set(policies) == {"best-of-4(local/tiny by numbered)", "silent"}
    inner = policies["best-of-4(local/tiny by numbered)"]["policy"]["parameters"]
    assert (inner["temperature"], inner["reasks"]) == (0.7, 0)


def test_offer_worth_is_there_and_the_dry_run_counts_every_candidate(server: LoopbackServer, tmp_path: Path) -> None:
    command = words(server, tmp_path / "run", "--policy", "best-of-3(local/tiny:reasks=0 by offer-worth)")
    assert "agent local/tiny: 12 calls" in sotopia(*command, "--dry-run").output
    assert server.total == 0
    assert "agents: 12 answers" in sotopia(*command).output


def test_a_policy_of_another_package_plays_beside_the_others(server: LoopbackServer, tmp_path: Path) -> None:
    out = tmp_path / "run"
    sotopia(*words(server, out, "--matchup", "table_plugin:silent vs local/tiny"))
    assert {policy.name for episode in read_run(out) for policy in episode.policies} == {"silent", "local/tiny"}


VIEWS = [
    ("interview:local/outside:views=external", ["external"], 0.0, 4),
    ("interview:interviewee=local/tiny,deciding=all", ["self", "other"], 10.0, 8),
    ("interview:local/outside:interviewee=local/tiny", ["self", "other", "external"], 0.0, 12),
    ("interview:local/outside:interviewee=local/tiny,deciding=all", ["self", "other", "external"], 10.0, 12),
    ("interview:local/outside:interviewee=(agent_0=local/tiny,agent_1=local/outside),deciding=self", None, None, 12),
    ("interview:interviewee=local/tiny,views=self,deciding=self", ["self"], 10.0, 4),
    ("interview:local/outside,local/outside:interviewee=local/tiny,views=(self,external)", ["self", "external"], 0, 12),
]


@pytest.mark.parametrize(("spec", "asked", "goal", "calls"), VIEWS)
def test_goals_are_seen_from_the_sides_that_are_named(
    server: LoopbackServer, tmp_path: Path, spec: str, asked: list[str] | None, goal: float | None, calls: int
) -> None:
    run = tmp_path / "run"
    sotopia(*words(server, run, "--policy", "silent"))
    output = sotopia("evaluate", run, "--evaluator", spec, "--api-base", server.api_base).output
    assert f"judges: {calls} answers, 0 failed calls" in output
    for episode in read_run(run):
        verdict = episode.evaluations[-1]
        scores = {score.agent: score.value for score in verdict.scores if score.dimension is Dimension.GOAL}
        if asked is None:  # each for itself: one says yes, the other no
            assert scores == {"agent_0": 10.0, "agent_1": 0.0}
        else:
            assert {reply.view for reply in verdict.answers} == set(asked)
            assert set(scores.values()) == {goal}
        assert {reply.by for reply in verdict.answers} <= {"local/tiny", "local/outside"}


def test_views_join_other_evaluators_in_a_rollout(server: LoopbackServer, tmp_path: Path) -> None:
    run, both = (
        tmp_path / "run",
        [
            "--evaluator",
            "interview:local/outside:views=external,max_tokens=300,temperature=0.5+sotopia_env.testing:FixedEvaluator",
        ],
    )
    command = words(server, run, "--policy", "silent")
    at = command.index("--evaluator")
    sotopia(*command[:at], *both, *command[at + 2 :])
    for episode in read_run(run):
        sources = {score.dimension: score.source for score in episode.evaluations[-1].scores}
        assert sources[Dimension.GOAL].startswith("interview(local/outside)#")
        assert sources[Dimension.SECRET] == ""
    assert {(seen.body["max_tokens"], seen.body["temperature"]) for seen in server.requests} == {(300, 0.5)}


BAD = [
    (["--policy", "best-of-2(local/tinny by offer-worth)"], "tiny"),
    (["--policy", "best-of-2(local/tiny by offer-wort)"], "offer-worth"),
    (["--policy", "best-of-x(local/tiny by offer-worth)"], "policy: "),
    (["--policy", "best-of-2(human by offer-worth)"], "policy: "),
    (["--policy", "table_plugin:silen"], "silent"),
    (["--policy", "./adapter/"], "./adapter/"),
    (["--policy", "silent", "--evaluator", "interview:local/outsidee"], "outside"),
    (["--policy", "silent", "--evaluator", "interview:views=external"], "name a judge"),
    (["--policy", "silent", "--evaluator", "interview:local/tiny:decidig=all"], "deciding"),
    (["--policy", "silent", "--evaluator", "interview:local/tiny:interviewee=(a=x,a=y)"], "interviewee"),
    (["--policy", "silent", "--evaluator", "viewz:local/tiny"], "evaluator: "),
]


@pytest.mark.parametrize(("more", "sentence"), BAD, ids=[case[0][-1] for case in BAD])
def test_bad_words_are_one_sentence(server: LoopbackServer, tmp_path: Path, more: list[str], sentence: str) -> None:
    place = ["--tasks", "bargaining", "--api-base", server.api_base, "--out", tmp_path / "run"]
    result = sotopia("rollout", *place, *more, code=2)
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert server.total == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("best-of-2(local/m:a=1,b=2 by x:y),c", ["best-of-2(local/m:a=1,b=2 by x:y)", "c"]),
        ("c,best-of-2(best-of-2(d:a=1,b=2 by x) by p:q:r=1)", ["c", "best-of-2(best-of-2(d:a=1,b=2 by x) by p:q:r=1)"]),
        ("p.q:f:a=1,b=http://x,runs/a=b/", ["p.q:f:a=1,b=http://x", "runs/a=b/"]),
    ],
)  # fmt: skip
def test_commas_in_parentheses_separate_nothing(text: str, expected: list[str]) -> None:
    assert split_names(text) == expected


def test_the_help_says_how_policies_are_named() -> None:
    text = sotopia("policies", "--help").output
    for form in ("best-of-8(local/my-model by offer-worth)", "my_package.my_module:factory", "runs/sft/adapter/"):
        assert form in text
    output = sotopia("evaluate", "--help").output
    assert "interview:MODEL:interviewee=POLICY" in output.replace("\n", "").replace(" ", "")


def test_a_resumed_run_without_scores_names_the_command_that_scores_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with table_server(reply=lambda body: "no verdict" if form_of(body) else answer(body)) as server:
        judge = "judge:local/tiny:reasks=0,dimensions=(goal,secret)"
        more = ["--policy", "silent", "--evaluator", judge]
        command = [*words(server, out, *more)]
        command = [*command[: command.index("none") - 1], *command[command.index("none") + 1 :]]
        advice = "the same command evaluates again)"
        assert advice in sotopia(*command, code=1).output
        calls = server.total
        again = sotopia(*command, code=1).output
        assert "0 played now, 2 before; all unscored" in again
        assert advice in again
        assert server.total == calls + 2  # the judge is asked again, nobody else
        server.reply = answer
        assert "0 played now, 2 before\n" in sotopia(*command, code=0).output
        assert server.total == calls + 4


def test_ctrl_c_before_anything_is_played_is_a_sentence_and_130(tmp_path: Path) -> None:
    marker, out = tmp_path / "begun", tmp_path / "run"
    policy = f"table_plugin:slow:marker={marker}"
    process = start("rollout", "--policy", policy, "--out", out, PYTHONPATH=str(tmp_path))
    deadline = time.monotonic() + 240
    while not marker.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=240)[1]
    assert process.returncode == 130
    assert errors.strip() == "sotopia: interrupted; no recorded work is lost, the same command continues it"
    assert not out.exists()
