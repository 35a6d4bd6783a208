"""Run directories: every episode exactly once, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sotopia_env.foundation.errors import DamagedRecordError, InUseError, InvalidValueError
from sotopia_env.policies import LLMPolicy, agent_prompt
from sotopia_env.runs import evaluate_run, plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.storage import read_run
from sotopia_env.storage.directory import RunDirectory, read_failures
from sotopia_env.storage.manifest import read_manifest
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode, Evaluation, read_episodes, write_episodes
from tests.errors import raises
from tests.sotopia_env.runs.killed_run import PLANS
from tests.sotopia_env.runs.rollout_doubles import NO_VERDICT, Faulty, FixedEvaluator, Speaker, make_task

ROOT = Path(__file__).parents[3]
A, B = Speaker("a"), Speaker("b")


def plans(count: int = 4, **change: object) -> list[EpisodePlan]:
    return plan_episodes([make_task(f"s{i}") for i in range(count)], [(A, B)], **change)  # type: ignore[arg-type]


def content(episodes: Iterator[Episode] | tuple[Episode, ...]) -> dict[str, str]:
    """Everything in the episodes but the time they took, by key; fails on a duplicate key."""
    records = list(episodes)
    by_key = {e.key: e.model_copy(update={"duration": 0.0}).model_dump_json() for e in records}
    assert len(by_key) == len(records)
    return by_key


def lines(run: Path) -> list[bytes]:
    return (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished")
    asyncio.run(run_episodes(plans(), run_dir=run))
    return run


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """A finished run of its own for each test."""
    target = tmp_path / "run"
    target.mkdir()
    for file in finished_run.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def whole_lines(run: Path) -> int:
    file = run / "episodes.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_kill_at_random_moments_then_resume_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Baselines' ``kill``: a killed batch lost every episode there.

    The moments are counted in episodes written, not in seconds, so that a busy machine changes nothing.
    """
    run, generator = tmp_path / "run", random.Random(5)
    command = [sys.executable, "-m", "tests.sotopia_env.runs.killed_run", str(run)]
    counts = [0]
    for _ in range(8):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 240
        target = counts[-1] + generator.randint(1, 6)
        while whole_lines(run) < target:
            assert time.monotonic() < deadline, "no episode was written for a minute"
            time.sleep(0.001)
        time.sleep(generator.uniform(0.0, 0.004))
        process.kill()
        assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
        counts.append(whole_lines(run))
    assert counts == sorted(counts)
    assert counts[-1] < 100
    result = asyncio.run(run_episodes(PLANS, evaluator=FixedEvaluator(), run_dir=run))
    assert (result.resumed + result.played, result.failures) == (100, ())
    assert result.resumed == counts[-1]
    assert content(read_run(run)) == content(asyncio.run(run_episodes(PLANS, evaluator=FixedEvaluator())).episodes)


@pytest.mark.parametrize("cut", [1, 2, 40, 1000, -1])
def test_torn_last_line_is_removed_said_and_played_again(run: Path, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    """Baselines' ``torn``: one half-written file made the whole store unreadable there."""
    whole, before = content(read_run(run)), lines(run)
    torn = before[-1][: len(before[-1]) - cut] if cut > 0 else before[-1][:1]
    (run / "episodes.jsonl").write_bytes(b"".join(before[:-1]) + torn)
    assert len(content(read_run(run))) == 7
    assert "line 8: skipped an incomplete line" in caplog.text
    result = asyncio.run(run_episodes(plans(), run_dir=run))
    assert (result.resumed, result.played) == (7, 1)
    assert result.repaired == (f"{run / 'episodes.jsonl'}: removed an incomplete last line ({len(torn)} bytes)",)
    assert result.repaired[0] in caplog.text
    assert lines(run)[:-1] == before[:-1]
    assert content(read_run(run)) == whole


@pytest.mark.parametrize("damage", [b"{}\n", b"not json\n", b'{"key": "x"\n', b"\xff\xfe\n", b"\0\0\0\n"])
@pytest.mark.parametrize("at", [0, 3])
def test_damaged_line_in_the_middle_is_named_with_file_and_line(run: Path, damage: bytes, at: int) -> None:
    before = lines(run)
    (run / "episodes.jsonl").write_bytes(b"".join([*before[:at], damage, *before[at + 1 :]]))
    for attempt in (lambda: asyncio.run(run_episodes(plans(), run_dir=run)), lambda: list(read_run(run))):
        with raises(DamagedRecordError, file="episodes.jsonl", line=at + 1):
            attempt()
    assert lines(run)[at] == damage


def test_a_duplicate_episode_is_refused(run: Path) -> None:
    (run / "episodes.jsonl").write_bytes(b"".join([*lines(run), lines(run)[0]]))
    with raises(DamagedRecordError, field="key", file="episodes.jsonl", line=9):
        asyncio.run(run_episodes(plans(), run_dir=run))


CHANGES = {
    "key": lambda item: item.update(key="s0.forged.r0.0123456789abcdef"),
    "seed": lambda item: item.update(seed=item["seed"] + 1),
    "policies.0.parameters.speed": lambda item: item["policies"][0].update(parameters='{"speed":9}'),
    "task": lambda item: item["task"]["scenario"].update(context="Elsewhere."),
    "rules.max_turns": lambda item: item["rules"].update(max_turns=3),
}


@pytest.mark.parametrize(("field", "change"), CHANGES.items())
def test_a_record_that_does_not_match_its_key_is_refused(run: Path, field: str, change: Any) -> None:
    before = lines(run)
    item = json.loads(before[2]) | {"checksum": ""}
    change(item)
    (run / "episodes.jsonl").write_bytes(b"".join([*before[:2], json.dumps(item).encode() + b"\n", *before[3:]]))
    with raises(DamagedRecordError, file="episodes.jsonl", line=3) as caught:
        asyncio.run(run_episodes(plans(), run_dir=run))
    assert f".{caught.value.field}".endswith(f".{field}")
    assert len(lines(run)) == len(before)


def test_a_run_of_another_version_is_not_read(run: Path) -> None:
    manifest = run / "run.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": 2', '"schema_version": 99'))
    for attempt in (lambda: asyncio.run(run_episodes(plans(), run_dir=run)), lambda: list(read_run(run))):
        with raises(DamagedRecordError, file="run.json", field="schema_version", got=99):
            attempt()


def test_s4_what_is_done_is_recognised_and_not_played_again(run: Path) -> None:
    before = (run / "episodes.jsonl").read_bytes()
    seeds: list[int] = []

    class Watched(Speaker):
        async def act(self, observation, seed):  # type: ignore[no-untyped-def]
            seeds.append(seed)
            return await super().act(observation, seed)

    again = plan_episodes([make_task(f"s{i}") for i in range(4)], [(Watched("a"), Watched("b"))])
    result = asyncio.run(run_episodes(again, run_dir=run))
    assert (result.planned, result.resumed, result.played) == (8, 8, 0)
    assert seeds == []
    assert (run / "episodes.jsonl").read_bytes() == before


DIFFERENT = [
    ("seed", lambda: plans(seed=1), None),
    ("repeats", lambda: plans(repeats=2), None),
    ("rules.max_turns", lambda: plans(rules=Rules(max_turns=3)), None),
    ("tasks", lambda: plans(count=3), None),
    ("tasks_hash", lambda: plan_episodes([make_task(f"t{i}") for i in range(4)], [(A, B)]), None),
    ("policies.a.parameters.x", lambda: plan_episodes([make_task("s0")], [(replace(A, parameters={"x": 1}), B)]), None),
    ("evaluator", plans, FixedEvaluator()),
]


@pytest.mark.parametrize(("field", "other", "evaluator"), DIFFERENT, ids=[case[0] for case in DIFFERENT])
def test_another_configuration_is_refused_by_the_field_that_differs(run, field, other, evaluator) -> None:  # type: ignore[no-untyped-def]
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    with raises(InvalidValueError, field=field, file="run"):
        asyncio.run(run_episodes(other(), evaluator=evaluator, run_dir=run))
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before


C = Speaker("c")


def test_a_policy_is_added_to_a_run_and_every_command_continues(run: Path) -> None:
    before = lines(run)
    tasks = [make_task(f"s{i}") for i in range(4)]
    added = plan_episodes(tasks, [(A, C)])
    result = asyncio.run(
        run_episodes(added[:-1], run_dir=run)
    )  # as a command that plays less; the next one is another addition
    assert (result.planned, result.resumed, result.played) == (7, 0, 7)
    assert asyncio.run(run_episodes(added, run_dir=run)).played == 1
    assert lines(run)[: len(before)] == before
    for planned in (plans(), added, plan_episodes(tasks, [(A, B), (A, C)]), plans(both_seats=False)):
        result = asyncio.run(run_episodes(planned, run_dir=run))
        assert (result.played, result.resumed) == (0, len(planned))
    assert set(content(read_run(run))) == {plan.key for plan in (*plans(), *added)}
    manifest = read_manifest(run)
    assert [policy.name for policy in manifest.policies] == ["a", "b", "c"]
    assert [policy.name for policy in manifest.config.policies] == ["a", "b"]
    assert asyncio.run(evaluate_run(run, FixedEvaluator())).evaluated == 16


def test_settings_of_a_policy_that_was_added_may_not_change(run: Path) -> None:
    asyncio.run(run_episodes(plan_episodes([make_task(f"s{i}") for i in range(4)], [(A, C)]), run_dir=run))
    other = plan_episodes([make_task(f"s{i}") for i in range(4)], [(B, replace(C, parameters={"x": 1}))])
    with raises(InvalidValueError, field="policies.c.parameters.x"):
        asyncio.run(run_episodes(other, run_dir=run))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_records_of_other_matchups_are_checked_as_well(run: Path, change: Any) -> None:
    added = plan_episodes([make_task(f"s{i}") for i in range(4)], [(A, C)])
    asyncio.run(run_episodes(added, run_dir=run))
    before = lines(run)
    item = json.loads(before[2]) | {"checksum": ""}  # of a vs b, which is not in the plan
    change(item)
    (run / "episodes.jsonl").write_bytes(b"".join([*before[:2], json.dumps(item).encode() + b"\n", *before[3:]]))
    with raises(DamagedRecordError, field="key", file="episodes.jsonl", line=3):
        asyncio.run(run_episodes(added, run_dir=run))
    assert len(lines(run)) == len(before)


def test_a_run_with_an_unreadable_record_cannot_be_extended(run: Path) -> None:
    (run / "episodes.jsonl").write_bytes(b"".join([*lines(run), lines(run)[0]]))
    manifest = (run / "run.json").read_bytes()
    with raises(DamagedRecordError, field="key", file="episodes.jsonl", line=9):
        asyncio.run(run_episodes(plan_episodes([make_task(f"s{i}") for i in range(4)], [(A, C)]), run_dir=run))
    assert (run / "run.json").read_bytes() == manifest


def test_failed_episodes_are_tried_again_and_their_failures_superseded(tmp_path: Path) -> None:
    first, second = Faulty("first", broken=[True]), Faulty("second", broken=[True])
    planned = [*plans(2), EpisodePlan(make_task("x"), (first, A)), EpisodePlan(make_task("y"), (second, A))]
    result = asyncio.run(run_episodes(planned, run_dir=tmp_path))
    assert (result.played, len(result.failures)) == (4, 2)
    first.broken[0] = False
    result = asyncio.run(run_episodes(planned, run_dir=tmp_path))
    assert (result.resumed, result.played, [f.task for f in result.failures]) == (4, 1, ["y/0"])
    assert [failure.task for failure in read_failures(tmp_path)] == ["y/0"]
    second.broken[0] = False
    asyncio.run(run_episodes(planned, run_dir=tmp_path))
    assert read_failures(tmp_path) == ()
    assert set(content(read_run(tmp_path))) == {plan.key for plan in planned}
    counts = read_manifest(tmp_path).counts
    assert counts is not None
    assert counts.model_dump() == {"episodes": 6, "failed": 0, "unscored": 0}


def test_second_process_on_one_directory_is_refused(run: Path) -> None:
    code = (
        "import sys; from tests.sotopia_env.runs.test_resume import plans"
        "; from sotopia_env.runs.rollout import run_episodes\n"
        "import asyncio; asyncio.run(run_episodes(plans(), run_dir=sys.argv[1]))"
    )
    config = read_manifest(run).config
    with RunDirectory(run, config):
        with raises(InUseError, file=run.name):
            asyncio.run(run_episodes(plans(), run_dir=run))
        process = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, cwd=ROOT)
        assert process.returncode != 0
        assert "InUseError" in process.stderr
    assert asyncio.run(run_episodes(plans(), run_dir=run)).resumed == 8  # the lock went with its holder


def test_run_json_tells_what_was_played_and_when(run: Path) -> None:
    manifest = json.loads((run / "run.json").read_text())
    config = manifest["config"]
    assert [p["name"] for p in config["policies"]] == ["a", "b"]
    assert config["matchups"] == ["a vs b", "b vs a"]
    assert (config["tasks"], config["episodes"], config["repeats"], config["seed"]) == (4, 8, 1, [0])
    assert config["rules"][0]["turn_order"] == "round-robin"
    assert set(json.loads(manifest["packages"])) >= {"python", "numpy", "pydantic", "pettingzoo"}
    assert manifest["started"] <= manifest["finished"]
    assert manifest["counts"]["episodes"] == 8


@pytest.mark.parametrize(
    "prepare",
    [lambda path: path.write_text("x"), lambda path: (path.mkdir(), (path / "episodes.jsonl").write_text(""))],
)
def test_a_path_that_is_not_a_run_directory_is_refused(tmp_path: Path, prepare) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "run"
    prepare(path)
    with raises(InvalidValueError, file="run"):
        asyncio.run(run_episodes(plans(), run_dir=path))


def test_a_run_of_an_older_schema_is_refused_in_one_sentence(run: Path) -> None:
    manifest = (run / "run.json").read_text()
    (run / "run.json").write_text(manifest.replace('"schema_version": 2', '"schema_version": 1', 1))
    with raises(DamagedRecordError, field="schema_version", got=1):
        asyncio.run(run_episodes(plans(), run_dir=run))


def test_s26_files_of_a_run_are_exchanged_whole_or_not_at_all(run: Path) -> None:
    """An evaluator that takes the process down half-way leaves every byte of the run as it was."""
    before = {file.name: file.read_bytes() for file in run.iterdir()}

    class Fatal(FixedEvaluator):
        async def evaluate(self, episode: Episode) -> Evaluation:
            if episode.task.scenario.id == "s2":
                raise KeyboardInterrupt
            return await super().evaluate(episode)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(evaluate_run(run, Fatal(), concurrency=1))
    after = {file.name: file.read_bytes() for file in run.iterdir()}
    (side,) = set(after) - set(before)
    assert after[side].count(b"\n") == 4  # the verdicts that were there
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("concurrency", [1, 3, 100])
def test_deferred_evaluation_adds_verdicts_and_touches_nothing_else(run: Path, concurrency: int) -> None:
    before = list(read_run(run))
    assert all(not episode.evaluations for episode in before)
    assert asyncio.run(evaluate_run(run, FixedEvaluator(), concurrency=concurrency)).unscored == 0
    assert asyncio.run(evaluate_run(run, FixedEvaluator(name="other", fractions=(0.1, 0.2)))).unscored == 0
    after = list(read_run(run))
    assert [e.model_copy(update={"evaluations": ()}) for e in after] == before
    assert all([v.evaluator for v in e.evaluations] == ["fixed", "other"] for e in after)
    assert asyncio.run(evaluate_run(run, FixedEvaluator(fractions=(1.0, 1.0)), force=True)).unscored == 0
    redone = list(read_run(run))
    assert all(sorted(v.evaluator for v in e.evaluations) == ["fixed", "other"] for e in redone)
    assert {s.value for e in redone for s in e.evaluation("fixed").scores if s.dimension == "goal"} == {10.0}  # type: ignore[union-attr]


def test_deferred_evaluation_that_fails_is_counted_and_can_be_redone(run: Path) -> None:
    assert asyncio.run(evaluate_run(run, FixedEvaluator(fails=NO_VERDICT))).unscored == 8
    assert read_manifest(run).counts.unscored == 8  # type: ignore[union-attr]
    assert all("no JSON" in e.evaluation("fixed").unscored for e in read_run(run))  # type: ignore[union-attr, operator]
    assert (
        asyncio.run(run_episodes(plans(), run_dir=run)).unscored == 0
    )  # it has no evaluator that could be asked again
    assert asyncio.run(evaluate_run(run, FixedEvaluator())).unscored == 0
    assert read_manifest(run).counts.unscored == 0  # type: ignore[union-attr]
    assert asyncio.run(run_episodes(plans(), run_dir=run)).resumed == 8


def test_a_run_asks_its_own_evaluator_again_whatever_another_said(tmp_path: Path) -> None:
    own, other = FixedEvaluator(), FixedEvaluator(name="other")
    broken = replace(own, fails=NO_VERDICT)
    assert asyncio.run(run_episodes(plans(), run_dir=tmp_path, evaluator=broken)).unscored == 8
    assert asyncio.run(evaluate_run(tmp_path, other)).unscored == 0
    assert asyncio.run(run_episodes(plans(), run_dir=tmp_path, evaluator=broken)).unscored == 8
    assert asyncio.run(run_episodes(plans(), run_dir=tmp_path, evaluator=own)).unscored == 0
    assert asyncio.run(evaluate_run(tmp_path, replace(other, fails=NO_VERDICT), force=True)).unscored == 8
    assert asyncio.run(run_episodes(plans(), run_dir=tmp_path, evaluator=own)).unscored == 0


def test_evaluating_a_killed_run_scores_what_is_there_and_it_still_resumes(run: Path) -> None:
    (run / "episodes.jsonl").write_bytes(b"".join(lines(run)[:3]) + b'{"half')
    assert asyncio.run(evaluate_run(run, FixedEvaluator())).unscored == 0
    assert len(list(read_episodes(run / "episodes.jsonl"))) == 3
    assert asyncio.run(run_episodes(plans(), run_dir=run)).played == 5


@dataclass(frozen=True)
class Counting(FixedEvaluator):
    """Counts what it is asked, and is interrupted when told to."""

    async def evaluate(self, episode: Episode) -> Evaluation:
        calls.append(episode.task.id)
        if len(calls) == stop_at[0]:
            raise KeyboardInterrupt
        return await super().evaluate(episode)


calls: list[str] = []
stop_at = [0]


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()
    stop_at[0] = 0


@pytest.mark.parametrize("torn", [b"", b'{"key": "half'])
def test_interrupted_evaluation_continues_where_it_stopped(run: Path, torn: bytes) -> None:
    stop_at[0] = 6
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(evaluate_run(run, Counting(), concurrency=1))
    (side,) = run.glob("evaluations-*.jsonl")
    side.write_bytes(side.read_bytes() + torn)
    result = asyncio.run(evaluate_run(run, Counting(), concurrency=1))
    assert (result.episodes, result.evaluated, result.kept, result.unscored) == (8, 3, 5, 0)
    assert len(calls) == 6 + 3
    assert not list(run.glob("evaluations-*.jsonl"))
    assert all(len(e.evaluation("fixed").scores) == 14 for e in read_run(run))  # type: ignore[union-attr]


def test_verdicts_on_other_turns_under_the_same_key_are_not_taken_over(run: Path) -> None:
    stop_at[0] = 6
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(evaluate_run(run, Counting(), concurrency=1))
    changed = [line.replace(b"hello there", b"good day to") for line in lines(run)]
    write_episodes(run / "episodes.jsonl", map(Episode.model_validate_json, changed))
    assert asyncio.run(evaluate_run(run, Counting(), concurrency=1)).evaluated == 8


def test_what_is_scored_with_the_same_parameters_is_asked_again_only_when_forced(run: Path) -> None:
    asyncio.run(evaluate_run(run, Counting()))
    before = lines(run)
    assert asyncio.run(evaluate_run(run, Counting())).kept == 8
    assert (len(calls), lines(run)) == (8, before)
    assert asyncio.run(evaluate_run(run, Counting(parameters={"version": 2}))).evaluated == 8
    assert asyncio.run(evaluate_run(run, Counting(parameters={"version": 2}), force=True)).evaluated == 8


def test_a_failure_replaces_scores_only_when_forced(run: Path) -> None:
    asyncio.run(evaluate_run(run, FixedEvaluator()))
    before = lines(run)
    broken = FixedEvaluator(parameters={"model": "down"}, fails=NO_VERDICT)
    result = asyncio.run(evaluate_run(run, broken))
    assert (result.unscored, result.refused, result.reason) == (0, 8, "EvaluationError: the judge wrote no JSON")
    assert lines(run) == before
    assert asyncio.run(evaluate_run(run, broken, force=True)).unscored == 8
    assert all(e.evaluation("fixed").unscored for e in read_run(run))  # type: ignore[union-attr]


def test_evaluating_a_run_whose_episodes_are_gone_is_refused_and_writes_nothing(run: Path) -> None:
    (run / "episodes.jsonl").unlink()
    before = sorted(file.name for file in run.iterdir())
    with raises(InvalidValueError, expected="a run directory with its episodes.jsonl", file=run.name):
        asyncio.run(evaluate_run(run, FixedEvaluator()))
    assert sorted(file.name for file in run.iterdir()) == before


def test_episodes_that_are_a_directory_are_a_sentence(run: Path) -> None:
    (run / "episodes.jsonl").unlink()
    (run / "episodes.jsonl").mkdir()
    with raises(DamagedRecordError, file="episodes.jsonl"):
        list(read_run(run))
    with raises(InvalidValueError, file="episodes.jsonl"):
        asyncio.run(run_episodes(plans(), run_dir=run))


def test_the_first_difference_is_shown_where_the_whole_is_long(tmp_path: Path) -> None:
    many = [Speaker(f"p{i:02}", parameters={"text": "x" * 40, "beta": i}) for i in range(6)]
    asyncio.run(run_episodes(plan_episodes([make_task()], [(p, A) for p in many]), run_dir=tmp_path))
    many[4] = replace(many[4], parameters={"text": "x" * 40, "beta": 99})
    with raises(InvalidValueError, field="policies.p04.parameters.beta"):
        asyncio.run(run_episodes(plan_episodes([make_task()], [(p, A) for p in many]), run_dir=tmp_path))


def test_a_run_is_not_continued_with_prompts_that_say_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seats() -> list[EpisodePlan]:
        model = ScriptedChatModel(['{"action_type": "leave"}'] * 8)
        return plan_episodes([make_task("s")], [(LLMPolicy(model), B)])

    asyncio.run(run_episodes(seats(), run_dir=tmp_path / "run"))
    asyncio.run(run_episodes(seats(), run_dir=tmp_path / "run"))
    monkeypatch.setattr(agent_prompt, "sample_text", lambda format: "another text")
    with raises(InvalidValueError, field="policies.scripted/model.parameters.prompts.sample") as caught:
        asyncio.run(run_episodes(seats(), run_dir=tmp_path / "run"))
    assert "another directory" in caught.value.hint
    assert "prompts" in caught.value.hint


def test_parameters_that_are_not_json_are_refused_for_evaluators_too(tmp_path: Path) -> None:
    with raises(InvalidValueError, field="fixed"):
        asyncio.run(run_episodes(plans(1), evaluator=FixedEvaluator(parameters={"x": {1}}), run_dir=tmp_path / "run"))


def test_evaluating_a_path_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with raises(InvalidValueError, file="nothing"):
        asyncio.run(evaluate_run(tmp_path / "nothing", FixedEvaluator()))
    assert not (tmp_path / "nothing").exists()


def test_s3_nothing_a_run_holds_is_ever_deleted_by_evaluating_or_resuming(run: Path) -> None:
    keys = set(content(read_run(run)))
    for evaluator in (FixedEvaluator(fractions=(0.0, 0.0)), FixedEvaluator("broken", fails=NO_VERDICT)):
        asyncio.run(evaluate_run(run, evaluator))
        asyncio.run(run_episodes(plans(), run_dir=run))
        assert set(content(read_run(run))) == keys


def test_episodes_load_as_a_table_with_datasets(finished_run: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.load_dataset(
        "json", data_files=str(finished_run / "episodes.jsonl"), split="train", cache_dir=str(finished_run / "cache")
    )
    assert len(table) == 8
    assert set(table["key"]) == {plan.key for plan in plans()}
