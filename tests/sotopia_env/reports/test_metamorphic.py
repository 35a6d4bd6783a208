"""What must not change a comparison, on real runs: what is added, copied, split, renamed, rescaled or lost."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sotopia_env import tasks
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.reports.compare import Comparison, compare, compare_runs
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.storage.directory import FAILURES, read_run
from sotopia_env.storage.manifest import FailureRecord
from sotopia_env.world.episode import Episode
from sotopia_env.world.scenario import Task

NAMES = ("boulware", "conceder", "micro")
FOURTH = "splitter"
TASKS = list(tasks.generate("bargaining", 6, seed=1))


def played(
    *names: str, partner: str = "linear", repeats: int = 1, over: Iterable[Task] = TASKS, out: Path | None = None
) -> list[Episode]:
    matchups = [(make_policy(name), make_policy(partner)) for name in names]
    plans = plan_episodes(list(over), matchups, repeats=repeats)
    return list(asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), run_dir=out)).episodes)


def lose(run, lost: Callable[[Episode], bool]) -> int:  # type: ignore[no-untyped-def]
    """Turns recorded episodes into failures, and returns their number."""
    episodes = list(read_run(run))
    lines = (run / "episodes.jsonl").read_text().splitlines(keepends=True)
    pairs = list(zip(lines, episodes, strict=True))
    (run / "episodes.jsonl").write_text("".join(line for line, episode in pairs if not lost(episode)))
    failures = [
        FailureRecord(
            key=e.key, task=e.task.id, policies=tuple(p.name for p in e.policies), kind="Timeout", message="late"
        )
        for e in episodes
        if lost(e)
    ]
    (run / FAILURES).write_text("".join(failure.model_dump_json() + "\n" for failure in failures))
    return len(failures)


class Claims:
    """What a comparison says of some of its policies, in the main metric."""

    def __init__(self, result: Comparison, names: Collection[str] = NAMES):
        own = [d for d in result.differences if d.metric == result.main and {d.first, d.second} <= set(names)]
        self.gaps: dict[tuple[str, str], tuple[float, ...]] = {}
        for d in own:
            low, high, p = (np.nan if x is None else x for x in (d.estimate.low, d.estimate.high, d.estimate.p))
            self.gaps[d.first, d.second] = (d.estimate.mean, low, high, p)
            self.gaps[d.second, d.first] = (-d.estimate.mean, -high, -low, p)
        ranks = [rank for rank in result.ranking if rank.policy in names]
        self.order = [rank.policy for rank in ranks]
        self.places = {rank.policy: rank.places for rank in ranks}
        self.apart = {
            (rank.policy, other) for rank in ranks for other in self.order if other not in {*rank.ties, rank.policy}
        }

    def same_differences(self, other: Claims) -> bool:
        """Whether order and differences are the same, up to the rounding of sums in another order."""
        return self.order == other.order and all(
            values == pytest.approx(other.gaps[pair], abs=1e-9) for pair, values in self.gaps.items()
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    played(*NAMES, out=path)
    return path


@pytest.fixture(scope="module")
def episodes(run: Path) -> list[Episode]:
    return list(read_run(run))


@pytest.fixture(scope="module")
def fourth() -> list[Episode]:
    return played(FOURTH)


@pytest.fixture(scope="module")
def before(episodes: list[Episode]) -> Claims:
    claims = Claims(compare(episodes))
    assert claims.apart  # else nothing below could be wrong about ranks
    return claims


def in_parts(run: Path, folder: Path, parts: int) -> list[Path]:
    """The episodes of a run, dealt to several files."""
    lines = (run / "episodes.jsonl").read_text().splitlines(keepends=True)
    paths = [folder / f"{part}.jsonl" for part in range(parts)]
    for part, path in enumerate(paths):
        path.write_text("".join(lines[part::parts]))
    return paths


def test_splitting_merging_copying_and_reordering_a_run_change_nothing(run: Path, tmp_path: Path) -> None:
    whole, parts = compare_runs([run]), in_parts(run, tmp_path, 3)
    merged = tmp_path / "merged.jsonl"
    merged.write_text("".join(path.read_text() for path in parts[::-1]))
    for runs in (parts, [merged], [run, run], [run, *parts]):
        assert compare_runs(runs) == whole


def test_names_of_policies_and_tasks_decide_nothing(run: Path, before: Claims, tmp_path: Path) -> None:
    text, names = (run / "episodes.jsonl").read_text(), dict(zip(NAMES, ("zeta", "alpha", "mu"), strict=True))
    for old, new in {**names, "bargaining-medium-1-": "other-"}.items():
        assert old in text
        text = text.replace(old, new)
    # A renamed record is another one, so the old checksum does not belong to it.
    records = [json.loads(line) | {"checksum": ""} for line in text.splitlines()]
    (path := tmp_path / "renamed.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    renamed, old_names = Claims(compare_runs([path]), names.values()), {new: old for old, new in names.items()}
    assert [old_names[name] for name in renamed.order] == before.order
    assert {old_names[name]: places for name, places in renamed.places.items()} == before.places
    for (one, other), values in renamed.gaps.items():
        assert values == pytest.approx(before.gaps[old_names[one], old_names[other]], abs=1e-9)


def in_cents(task: Task) -> Task:
    """The task with every amount of money times 100; its texts, which scripts do not read, stay."""

    def times(value: Any, names: Collection[str]) -> Any:
        if isinstance(value, dict):
            money = {k: 100 * v for k, v in value.items() if k in names and isinstance(v, int | float)}
            return {k: times(v, names) for k, v in value.items()} | money
        return [times(item, names) for item in value] if isinstance(value, list) else value

    content = json.loads(task.model_dump_json())
    outcome = times(json.loads(content["scenario"]["outcome"]), ("low", "high", "step", "constant", "no_agreement"))
    return Task.model_validate_json(json.dumps(content | {"scenario": content["scenario"] | {"outcome": outcome}}))


def test_another_currency_changes_nothing(before: Claims) -> None:
    cents = Claims(compare(played(*NAMES, over=map(in_cents, TASKS))))
    assert cents.same_differences(before)
    assert (cents.places, cents.apart) == (before.places, before.apart)


@pytest.mark.parametrize(
    "added",
    [
        lambda fourth: fourth,
        lambda fourth: fourth[:3],
        lambda fourth: [e for e in fourth if e.seed % 2],
        lambda _: played(FOURTH, partner="hard-headed"),
        lambda _: played("boulware", partner="hard-headed"),
    ],
    ids=["policy", "part of a policy", "policy at random", "policy with another partner", "partner of one"],
)
def test_what_is_added_changes_no_difference_and_no_order_of_the_others(
    episodes: list[Episode], fourth: list[Episode], before: Claims, added: Callable[[list[Episode]], list[Episode]]
) -> None:
    after = Claims(compare([*episodes, *added(fourth)]))
    assert after.same_differences(before)
    # What may change: with more pairs, Holm's adjustment tells fewer of them apart.
    assert after.apart <= before.apart


def test_repeats_turn_no_difference_and_no_order(episodes: list[Episode], before: Claims) -> None:
    after = Claims(compare([*episodes, *played(*NAMES, repeats=2)]))
    assert after.order == before.order
    assert {pair for pair, (mean, *_) in after.gaps.items() if mean > 0} == {
        pair for pair, (mean, *_) in before.gaps.items() if mean > 0
    }


@pytest.fixture(scope="module")
def run_of_four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("four")
    played(*NAMES, FOURTH, repeats=2, out=path)
    return path


def goal(episode: Episode, name: str) -> float:
    (agent,) = (info.agent for info in episode.policies if info.name == name)
    (evaluation,) = episode.evaluations
    return next(s.value for s in evaluation.scores if s.agent == agent and s.dimension == "goal")


@pytest.mark.parametrize("share", [0.04, 0.3])
@pytest.mark.parametrize("badly", [False, True], ids=["at random", "where it goes badly"])
@pytest.mark.parametrize("name", [FOURTH, "micro"])
def test_lost_episodes_of_one_policy_change_nothing_of_the_others_and_turn_no_rank(
    run_of_four: Path, tmp_path: Path, name: str, badly: bool, share: float
) -> None:
    every, complete = list(read_run(run_of_four)), compare_runs([run_of_four])
    whole = Claims(complete, (*NAMES, FOURTH))
    shutil.copytree(run_of_four, tmp_path, dirs_exist_ok=True)
    own = [e for e in every if name in {info.name for info in e.policies}]
    generator = np.random.default_rng(1)
    losing = sorted(own, key=lambda e: goal(e, name) if badly else generator.random())[: max(1, int(share * len(own)))]
    assert lose(tmp_path, lambda e: e.key in {lost.key for lost in losing}) == len(losing)
    result = compare_runs([tmp_path])
    others = [other for other in (*NAMES, FOURTH) if other != name]
    assert Claims(result, others).same_differences(Claims(complete, others))
    # What may change: the policy itself, which is not ranked below 95 %; no pair is told apart the other way round.
    after = Claims(result, (*NAMES, FOURTH))
    assert not {pair[::-1] for pair in after.apart if whole.gaps[pair][0] < 0 < after.gaps[pair][0]}
    assert (name in after.order) is (share < 0.05)
    assert sum(d.missing for d in result.differences if d.metric == result.main) == 3 * len(losing)
