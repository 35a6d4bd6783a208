"""Several judges on a run: what each has answered is kept, and only who has not is asked again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sotopia_env.evaluators import Composite, Ensemble, VerifiedOutcome
from sotopia_env.foundation.errors import BudgetExceededError, EvaluationError, ModelRefusedError
from sotopia_env.reports import compare_runs
from sotopia_env.runs import evaluate_run, plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.runs.rollout import RunResult
from sotopia_env.storage import read_run
from sotopia_env.world.episode import Episode, Evaluation, Evaluator
from tests.sotopia_env.runs.rollout_doubles import FixedEvaluator, Speaker, make_task

EPISODES = 3
A, B = Speaker("a"), Speaker("b")


@dataclass(frozen=True)
class Judge(FixedEvaluator):
    """Counts its transcripts; fails while the table says so."""

    failures: dict[str, Exception] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    async def evaluate(self, episode: Episode) -> Evaluation:
        self.calls[self.name] += 1
        if self.name in self.failures:
            raise self.failures[self.name]
        return await super().evaluate(episode)


@dataclass
class Bench:
    """Judges of these names, who share a table of failures and the counts of their calls."""

    names: tuple[str, ...] = ("j1", "j2", "j3")
    failures: dict[str, Exception] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    def ensemble(self, quorum: int | None = None, versions: Mapping[str, int] = {}) -> Ensemble:
        judges: list[Evaluator] = [
            Judge(name, {"version": versions.get(name, 1)}, failures=self.failures, calls=self.calls)
            for name in self.names
        ]
        return Ensemble(judges, quorum=quorum)


def plans() -> list[EpisodePlan]:
    return plan_episodes([make_task(f"s{i}") for i in range(EPISODES)], [(A, B)], both_seats=False)


def rollout(run: Path, ensemble: Evaluator | None) -> RunResult:
    return asyncio.run(run_episodes(plans(), evaluator=ensemble, run_dir=run))


def names(episode: Episode) -> list[str]:
    return [evaluation.evaluator for evaluation in episode.evaluations]


DEAD = EvaluationError("the line is dead")


@pytest.mark.parametrize("later", [False, True])
def test_the_verdicts_of_the_others_are_kept_and_only_the_missing_judge_is_asked(tmp_path: Path, later: bool) -> None:
    bench = Bench(failures={"j3": DEAD})
    ensemble = bench.ensemble()
    result = rollout(tmp_path, None if later else ensemble)
    if later:
        assert asyncio.run(evaluate_run(tmp_path, ensemble)).unscored == EPISODES
    else:
        assert result.unscored == EPISODES
    for episode in read_run(tmp_path):
        assert names(episode) == ["j1", "j2", ensemble.name]
        verdict = episode.evaluation()
        assert verdict is not None
        assert verdict.members == ("j1", "j2", "j3")
        assert verdict.unscored == "2 of 3 judges answered, 3 needed; j3 failed: EvaluationError: the line is dead"
    bench.failures.clear()
    assert asyncio.run(evaluate_run(tmp_path, ensemble)).unscored == 0
    assert bench.calls == {"j1": EPISODES, "j2": EPISODES, "j3": 2 * EPISODES}
    for episode in read_run(tmp_path):
        assert names(episode) == ["j1", "j2", "j3", ensemble.name]
        assert len(episode.evaluation().scores) == 14  # type: ignore[union-attr]


def test_a_quorum_scores_with_those_who_answered(tmp_path: Path) -> None:
    bench = Bench(failures={"j3": DEAD})
    assert rollout(tmp_path, bench.ensemble(quorum=2)).unscored == 0
    assert {tuple(names(episode)) for episode in read_run(tmp_path)} == {
        ("j1", "j2", "ensemble-mean(j1, j2, j3, 2 needed)")
    }


def test_a_judge_with_other_parameters_is_another_judge(tmp_path: Path) -> None:
    bench = Bench()
    rollout(tmp_path, bench.ensemble())
    asyncio.run(evaluate_run(tmp_path, bench.ensemble(versions={"j2": 2})))
    assert bench.calls == {"j1": EPISODES, "j2": 2 * EPISODES, "j3": EPISODES}
    asyncio.run(evaluate_run(tmp_path, bench.ensemble(versions={"j2": 2}), force=True))
    assert bench.calls == {"j1": 2 * EPISODES, "j2": 3 * EPISODES, "j3": 2 * EPISODES}


def test_a_failure_replaces_no_judge_s_scores(tmp_path: Path) -> None:
    bench = Bench()
    rollout(tmp_path, bench.ensemble())
    bench.failures["j2"] = DEAD
    assert asyncio.run(evaluate_run(tmp_path, bench.ensemble(versions={"j2": 2, "j3": 2}))).refused == EPISODES
    for episode in read_run(tmp_path):
        assert [evaluation.unscored for evaluation in episode.evaluations] == [None] * 4
        assert {e.evaluator: e.parameters.get("version") for e in episode.evaluations[:-1]} == {
            "j1": 1,
            "j2": 1,
            "j3": 2,
        }
        assert names(episode)[-1] == bench.ensemble().name


@pytest.mark.parametrize(
    "fatal", [BudgetExceededError("spent"), ModelRefusedError("no such model", kind="bad_request")]
)
def test_what_ends_the_evaluation_loses_no_verdict_that_was_paid_for(tmp_path: Path, fatal: Exception) -> None:
    bench = Bench(failures={"j2": fatal})
    rollout(tmp_path, None)
    if isinstance(fatal, ModelRefusedError):
        with pytest.raises(ModelRefusedError):
            asyncio.run(evaluate_run(tmp_path, bench.ensemble()))
    else:
        assert asyncio.run(evaluate_run(tmp_path, bench.ensemble())).stopped == "spent"
    assert {tuple(names(episode)) for episode in read_run(tmp_path)} == {()}
    bench.failures.clear()
    assert asyncio.run(evaluate_run(tmp_path, bench.ensemble())).unscored == 0
    assert (bench.calls["j1"], bench.calls["j3"]) == (EPISODES, EPISODES)
    assert not list(tmp_path.glob("evaluations-*.jsonl"))


def test_compare_reads_the_ensemble_and_each_judge(tmp_path: Path) -> None:
    bench = Bench()
    rollout(tmp_path, None)
    ensemble = bench.ensemble()
    asyncio.run(evaluate_run(tmp_path, ensemble))
    assert compare_runs([tmp_path]).evaluator == ensemble.name
    assert compare_runs([tmp_path / "episodes.jsonl"]).evaluator == ensemble.name
    assert compare_runs([tmp_path], evaluator="j2").evaluator == "j2"


def test_a_judge_that_takes_too_long_costs_no_verdict_of_the_others(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Slow(FixedEvaluator):
        async def evaluate(self, episode: Episode) -> Evaluation:
            await asyncio.sleep(60)
            raise AssertionError

    rollout(tmp_path, None)
    result = asyncio.run(evaluate_run(tmp_path, Ensemble([FixedEvaluator("quick"), Slow("slow")]), timeout=0.05))
    assert result.reason == "1 of 2 judges answered, 2 needed; slow failed: Timeout: not finished within 0.05 s"
    assert {names(episode)[0] for episode in read_run(tmp_path)} == {"quick"}


def test_a_rollout_stopped_between_judges_keeps_what_they_answered_and_every_turn(tmp_path: Path) -> None:
    bench = Bench(failures={"j3": BudgetExceededError("nothing is left")})
    result = rollout(tmp_path, bench.ensemble())
    assert (result.played, result.unfinished, result.stopped) == (0, EPISODES, "nothing is left")
    calls = Counter(bench.calls)
    assert calls["j1"] == calls["j2"] == EPISODES
    bench.failures.clear()
    assert rollout(tmp_path, bench.ensemble()).played == EPISODES
    assert bench.calls["j1"] == bench.calls["j2"] == EPISODES
    assert all(names(episode) == ["j1", "j2", "j3", bench.ensemble().name] for episode in read_run(tmp_path))


@pytest.mark.parametrize("later", [False, True])
def test_a_judges_scores_survive_a_failed_interview_and_are_not_asked_for_again(tmp_path: Path, later: bool) -> None:
    bench = Bench(("judge", "interview"), {"interview": DEAD})
    composite = Composite([VerifiedOutcome(), *bench.ensemble().judges])
    result = rollout(tmp_path, None if later else composite)
    unscored = asyncio.run(evaluate_run(tmp_path, composite)).unscored if later else result.unscored
    assert unscored == EPISODES
    for episode in read_run(tmp_path):
        judge, interview, both = episode.evaluations
        assert (judge.evaluator, interview.evaluator, both.evaluator) == ("judge", "interview", composite.name)
        assert (judge.unscored, len(judge.scores)) == (None, 14)
        assert interview.unscored == "the line is dead"
        assert both.unscored == "MemberFailedError: interview failed: the line is dead"
    bench.failures.clear()
    assert asyncio.run(evaluate_run(tmp_path, composite)).unscored == 0
    assert bench.calls == {"judge": EPISODES, "interview": 2 * EPISODES}
    asyncio.run(evaluate_run(tmp_path, composite, force=True))
    assert bench.calls == {"judge": 2 * EPISODES, "interview": 3 * EPISODES}


def test_a_composite_without_failures_records_only_itself(tmp_path: Path) -> None:
    composite = Composite(Bench(("a", "b")).ensemble().judges)
    rollout(tmp_path, composite)
    assert {tuple(names(episode)) for episode in read_run(tmp_path)} == {("a+b",)}


def test_a_failing_member_does_not_replace_its_earlier_scores(tmp_path: Path) -> None:
    bench = Bench(("judge", "interview"))
    _, interview = bench.ensemble(versions={"interview": 0}).judges
    rollout(tmp_path, interview)
    bench.failures["interview"] = DEAD
    asyncio.run(evaluate_run(tmp_path, Composite(bench.ensemble().judges)))
    for episode in read_run(tmp_path):
        assert episode.evaluation("interview").scores  # type: ignore[union-attr]
