"""Planning and playing: identity, isolation of failures, concurrency, seeds."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import EpisodePlan, all_matchups
from sotopia_env.runs.play import play_episode
from sotopia_env.storage.directory import read_failures
from sotopia_env.storage.manifest import FailureRecord
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Rules, StopReason, TurnOrder
from sotopia_env.world.episode import EpisodeError, read_episodes, replay
from sotopia_env.world.observation import Observation
from sotopia_env.world.play.policy import Decision, turn_seed
from tests.errors import raises
from tests.sotopia_env.runs.rollout_doubles import NO_VERDICT, Faulty, FixedEvaluator, Speaker, make_task

A, B, C = Speaker("a"), Speaker("b"), Speaker("c")


def seatings(plans: list[EpisodePlan]) -> list[str]:
    return ["".join(policy.name for policy in plan.policies) for plan in plans]


@pytest.mark.parametrize(
    ("seats", "matchup", "both_seats", "expected"),
    [
        (2, (A, B), True, ["ab", "ba"]),
        (2, (A, B), False, ["ab"]),
        (2, (A,), True, ["aa"]),
        (2, (A, A), True, ["aa"]),
        (3, (A, B), True, ["abb", "bab", "bba"]),
        (3, (A, B), False, ["abb"]),
        (3, (A, B, C), True, ["abc", "cab", "bca"]),
        (3, (A, B, C), False, ["abc"]),
        (4, (A,), True, ["aaaa"]),
    ],
)
def test_matchup_is_seated_in_every_seat_in_turn(
    seats: int, matchup: tuple[Speaker, ...], both_seats: bool, expected: list[str]
) -> None:
    plans = plan_episodes([make_task(seats=seats)], [matchup], both_seats=both_seats)
    assert seatings(plans) == expected


def test_both_orders_lets_every_seat_begin_once_and_is_really_played() -> None:
    plans = plan_episodes([make_task()], [(A, B)], orders="both")
    assert [(s, p.rules.first_seat) for s, p in zip(seatings(plans), plans, strict=True)] == [
        ("ab", 0),
        ("ab", 1),
        ("ba", 0),
        ("ba", 1),
    ]
    assert [e.turns[0].turn.actor for e in asyncio.run(run_episodes(plans)).episodes] == ["agent_0", "agent_1"] * 2


def test_all_matchups_with_both_seats_holds_no_episode_twice() -> None:
    plans = plan_episodes([make_task()], all_matchups([A, B]))
    assert sorted(seatings(plans)) == ["aa", "ab", "ba", "bb"]
    assert sorted(seatings(plan_episodes([make_task()], all_matchups([A, B], self_play=False)))) == ["ab", "ba"]


BASE = EpisodePlan(make_task(), (A, B))


@pytest.mark.parametrize(
    "other",
    [
        EpisodePlan(make_task(turns=5), (A, B)),
        EpisodePlan(make_task(cast=1), (A, B)),
        EpisodePlan(make_task(), (B, A)),
        EpisodePlan(make_task(), (A, replace(B, parameters={"beta": 2}))),
        replace(BASE, rules=Rules(max_turns=3)),
        replace(BASE, rules=Rules(first_seat=1)),
        replace(BASE, seed=1),
        replace(BASE, repeat=1),
    ],
    ids=["task", "characters", "seats", "parameters", "max_turns", "first_seat", "seed", "repeat"],
)
def test_key_changes_with_everything_that_changes_the_episode(other: EpisodePlan) -> None:
    assert other.key != BASE.key
    assert replace(BASE, seed=0).key == BASE.key


def test_key_is_the_same_in_another_process_and_begins_readably() -> None:
    code = (
        "from tests.sotopia_env.runs.rollout_doubles import Speaker, make_task"
        "; from sotopia_env.runs.plan import EpisodePlan;"
        "print(EpisodePlan(make_task(), (Speaker('a'), Speaker('b'))).key)"
    )
    root = Path(__file__).parents[3]
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert process.stdout.strip() == BASE.key
    assert BASE.key.startswith("s0-0.a+b.r0.")


def test_episode_seed_does_not_depend_on_the_policies() -> None:
    assert EpisodePlan(make_task(), (B, C)).episode_seed == BASE.episode_seed
    assert replace(BASE, repeat=1).episode_seed != BASE.episode_seed


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"repeats": 0}, "repeats"),
        ({"seed": -1}, "seed"),
        ({"orders": "both", "rules": Rules(turn_order=TurnOrder.RANDOM)}, "orders"),
        ({"rules": Rules(first_seat=2)}, "first_seat"),
    ],
)
def test_wrong_plan_arguments_are_refused(change: dict[str, object], field: str) -> None:
    with raises(InvalidValueError, field=field):
        plan_episodes([make_task()], [(A, B)], **change)  # type: ignore[arg-type]


def test_matchups_that_fit_no_task_are_refused() -> None:
    for seats in (2, 4):
        with raises(InvalidValueError, field="matchup", got=3):
            plan_episodes([make_task(seats=seats)], [(A, B, C)])
    with raises(InvalidValueError, field="tasks, matchups"):
        plan_episodes([], [(A, B)])
    with raises(InvalidValueError, field="a.parameters"):
        EpisodePlan(make_task(), (replace(A, parameters={"x": {1, 2}}), B))


@pytest.mark.parametrize(
    "change", [{"concurrency": 0}, {"timeout": 0.0}, {"timeout": float("nan")}, {"plans": [BASE, BASE]}]
)
def test_wrong_run_arguments_are_refused(change: dict[str, object]) -> None:
    with raises(InvalidValueError, field=next(iter(change))):
        asyncio.run(run_episodes(**{"plans": [BASE], **change}))  # type: ignore[arg-type]


def test_turn_seeds_differ_for_neighbouring_turns_seats_and_episodes() -> None:
    grid = [(e, t, s) for e in range(20) for t in range(40) for s in range(5)]
    seeds = {turn_seed(*point) for point in grid}
    assert len(seeds) == len(grid)
    assert all(0 <= seed < 2**63 for seed in seeds)
    low_bits = sum(seed & 1 for seed in seeds) / len(seeds)
    assert 0.45 < low_bits < 0.55


@pytest.mark.parametrize("order", list(TurnOrder))
@pytest.mark.parametrize("seats", [2, 3])
def test_episodes_replay_and_end_at_the_limit(order: TurnOrder, seats: int) -> None:
    plans = plan_episodes([make_task(seats=seats, turns=7)], [(A, B)], rules=Rules(turn_order=order))
    for episode in asyncio.run(run_episodes(plans, evaluator=FixedEvaluator())).episodes:
        assert replay(episode).stop is StopReason.TURN_LIMIT
        assert len(episode.turns) == (-(-7 // seats) * seats if order is TurnOrder.SIMULTANEOUS else 7)
        assert [info.name for info in episode.policies].count("a") == 1
        assert {score.agent for score in episode.evaluation().scores} == set(episode.task.agents)  # type: ignore[union-attr]


class Witness(Speaker):
    """Says how many turns it has witnessed."""

    async def act(self, observation: Observation, seed: int) -> Decision:
        await asyncio.sleep(0)
        assert observation.acting
        return Decision(Action(ActionType.SPEAK, str(len(observation.turns))))


def test_simultaneous_seats_are_asked_at_once_and_see_only_earlier_rounds() -> None:
    plan = EpisodePlan(make_task(seats=3, turns=6), (Witness(), Witness(), Witness()), Rules(turn_order="simultaneous"))  # type: ignore[arg-type]
    (episode,) = asyncio.run(run_episodes([plan])).episodes
    assert [item.turn.action.argument for item in episode.turns] == ["0"] * 3 + ["3"] * 3


def test_result_does_not_depend_on_the_concurrency() -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(6)], [(A, B)], rules=Rules(turn_order=TurnOrder.RANDOM))
    one, many = (asyncio.run(run_episodes(plans, concurrency=c, evaluator=FixedEvaluator())).episodes for c in (1, 50))
    assert [e.key for e in one] == [plan.key for plan in plans]
    assert [e.model_copy(update={"duration": 0.0}) for e in one] == [
        e.model_copy(update={"duration": 0.0}) for e in many
    ]


def test_s13_a_run_neither_reads_nor_moves_global_randomness() -> None:
    plans = plan_episodes([make_task()], [(A, B)], rules=Rules(turn_order=TurnOrder.RANDOM))
    outcomes = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
        outcomes.append([[t.turn for t in e.turns] for e in asyncio.run(run_episodes(plans)).episodes])
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
    assert outcomes[0] == outcomes[1]
    other = plan_episodes([make_task()], [(A, B)], seed=1, rules=Rules(turn_order=TurnOrder.RANDOM))
    assert [[t.turn for t in e.turns] for e in asyncio.run(run_episodes(other)).episodes] != outcomes[0]


BAD_RECIPIENT = Decision(Action(ActionType.SPEAK, "psst", ("agent_9",)))


class Misdirected(Speaker):
    """Addresses an agent that is not in the episode."""

    async def act(self, observation: Observation, seed: int) -> Decision:
        return BAD_RECIPIENT


def test_s29_a_policy_that_names_an_invalid_recipient_costs_its_own_episode_only(tmp_path: Path) -> None:
    plans = plan_episodes([make_task(f"s{i}", private=True) for i in range(5)], [(A, B)], both_seats=False)
    plans[2] = EpisodePlan(plans[2].task, (A, Misdirected("lost")))
    result = asyncio.run(run_episodes(plans, run_dir=tmp_path / "run", concurrency=5))
    assert {e.key for e in result.episodes} == {p.key for p in plans} - {plans[2].key}
    (failure,) = result.failures
    assert (failure.kind, failure.key) == ("InvalidActionError", plans[2].key)
    assert '"agent_9"' in failure.message


class Unlucky(Speaker):
    """Survives a failure in its first turn."""

    async def act(self, observation: Observation, seed: int) -> Decision:
        decision = await super().act(observation, seed)
        return replace(decision, errors=(EpisodeError(kind="rate_limit", message="later"),))


def test_a_failed_episode_records_earlier_failures(tmp_path: Path) -> None:
    plan = EpisodePlan(make_task(), (Unlucky("u"), Faulty("f", at=2)))
    asyncio.run(run_episodes([plan], run_dir=tmp_path))
    (failure,) = read_failures(tmp_path)
    assert [(error.kind, error.turn) for error in failure.errors] == [("rate_limit", 0)]


def test_a_round_that_fails_ends_only_when_all_its_seats_have_ended() -> None:
    ended = []

    class Booking(Speaker):
        async def act(self, observation: Observation, seed: int) -> Decision:
            try:
                return await super().act(observation, seed)
            finally:
                await asyncio.sleep(0)  # as one that books what it has spent
                ended.append(self.name)

    plan = EpisodePlan(
        make_task(), (Faulty("f", at=1), Booking("b", wait=30)), Rules(turn_order=TurnOrder.SIMULTANEOUS)
    )

    async def play() -> list[str]:
        assert isinstance(await play_episode(plan), FailureRecord)
        return list(ended)

    assert asyncio.run(play()) == ["b"]


class WrongType(Speaker):
    async def act(self, observation: Observation, seed: int) -> Decision:
        return "hello"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("policy", "kind", "message", "turns"),
    [
        (Faulty("f"), "RuntimeError", "the wire was cut", 2),
        (Faulty("f", error=RecursionError("too deep"), at=1), "RecursionError", "too deep", 0),
        (Faulty("f", error=TimeoutError("its own")), "TimeoutError", "its own", 2),
        (Speaker("slow", wait=30), "Timeout", "not finished within 3 s", 0),
        (WrongType("w"), "PolicyError", "str", 0),
    ],
    ids=["error", "recursion", "own timeout", "time limit", "wrong type"],
)
@pytest.mark.parametrize("order", [TurnOrder.ROUND_ROBIN, TurnOrder.SIMULTANEOUS, TurnOrder.REACTIVE])
def test_failed_episode_is_recorded_with_its_turns_and_leaves_its_siblings_alone(
    tmp_path: Path, policy: Speaker, kind: str, message: str, turns: int, order: TurnOrder
) -> None:
    rules = Rules(turn_order=order)
    plans = plan_episodes([make_task(f"s{i}") for i in range(4)], [(A,), (B,)], rules=rules)
    broken = EpisodePlan(make_task("broken"), (policy, A), rules)
    result = asyncio.run(run_episodes([*plans[:4], broken, *plans[4:]], run_dir=tmp_path, timeout=3.0, concurrency=3))
    assert {e.key for e in result.episodes} == {p.key for p in plans}
    (failure,) = read_failures(tmp_path)
    assert result.failures == (failure,)
    assert (failure.key, failure.task, failure.policies) == (broken.key, "broken/0", (policy.name, "a"))
    assert failure.kind == kind
    assert message in failure.message
    assert kind in failure.traceback or kind == "Timeout"
    if order is TurnOrder.ROUND_ROBIN:
        assert [item.turn.actor for item in failure.turns] == ["agent_0", "agent_1"][:turns]
    counts = json.loads((tmp_path / "run.json").read_text())["counts"]
    assert counts == {"episodes": 8, "failed": 1, "unscored": 0}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()])
def test_interruption_is_not_swallowed_and_loses_nothing_finished(tmp_path: Path, error: BaseException) -> None:
    plans = plan_episodes([make_task(f"s{i}") for i in range(3)], [(A,)])
    stopper = EpisodePlan(make_task("stop"), (Faulty("f", error=error), A))
    with pytest.raises(type(error)):
        asyncio.run(run_episodes([*plans, stopper], run_dir=tmp_path, concurrency=1))
    assert [e.key for e in read_episodes(tmp_path / "episodes.jsonl")] == [p.key for p in plans]
    assert read_failures(tmp_path) == ()


@pytest.mark.parametrize("error", [NO_VERDICT, ZeroDivisionError("no words"), TimeoutError("judge is slow")])
def test_failing_evaluator_leaves_the_episode_recorded_and_unscored(tmp_path: Path, error: Exception) -> None:
    plans = plan_episodes([make_task()], [(A, B)])
    result = asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(fails=error), run_dir=tmp_path))
    assert (result.unscored, result.failures, len(result.episodes)) == (2, (), 2)
    for episode in result.episodes:
        evaluation = episode.evaluation("fixed")
        assert evaluation is not None
        assert evaluation.unscored == f"{type(error).__name__}: {error}"
        assert evaluation.scores == ()
        assert len(episode.turns) == 4
    assert json.loads((tmp_path / "run.json").read_text())["counts"]["unscored"] == 2


def test_no_more_than_the_allowed_episodes_are_in_flight() -> None:
    running: set[int] = set()
    most = [0]

    class Counter(Speaker):
        async def act(self, observation: Observation, seed: int) -> Decision:
            running.add(id(asyncio.current_task()))
            most[0] = max(most[0], len(running))
            await asyncio.sleep(0.001)
            if observation.turn == 4:
                running.discard(id(asyncio.current_task()))
            return await super().act(observation, seed)

    plans = plan_episodes([make_task(f"s{i}") for i in range(20)], [(Counter(),)])
    assert asyncio.run(run_episodes(plans, concurrency=7)).played == 20
    assert most[0] == 7


def test_workers_are_as_many_as_the_concurrency_not_as_the_plans() -> None:
    peak = [0]

    class Census(Speaker):
        async def act(self, observation: Observation, seed: int) -> Decision:
            peak[0] = max(peak[0], len(asyncio.all_tasks()))
            return await super().act(observation, seed)

    asyncio.run(run_episodes(plan_episodes([make_task(f"s{i}") for i in range(60)], [(Census(),)]), concurrency=4))
    assert peak[0] == 6  # four workers, the main task, and the one that waits for a stop


def test_policies_that_never_wait_do_not_starve_the_event_loop() -> None:
    async def both() -> tuple[int, int]:
        ticks = [0]

        async def tick() -> None:
            while True:
                ticks[0] += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        result = await run_episodes(plan_episodes([make_task(f"s{i}") for i in range(30)], [(A,)]), concurrency=1)
        ticker.cancel()
        return result.played, ticks[0]

    played, ticks = asyncio.run(both())
    assert played == 30
    assert ticks >= 30


def test_a_full_disk_ends_the_run_with_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sotopia_env.foundation.errors import SotopiaError
    from sotopia_env.storage import directory as run_directory

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_directory.os, "write", full)
    with pytest.raises(SotopiaError, match=r"unfinished\.jsonl"):
        asyncio.run(run_episodes([BASE], run_dir=tmp_path))


def test_s25_importing_the_rollout_sets_up_no_process_wide_state() -> None:
    code = (
        "import logging, sys; before = (list(logging.root.handlers), logging.root.level)\n"
        "import sotopia_env.runs.rollout, sotopia_env.reports.compare, sotopia_env.cli.app\n"
        "assert (list(logging.root.handlers), logging.root.level) == before\n"
        "heavy = {'litellm', 'torch', 'matplotlib', 'scipy', 'statsmodels', 'tqdm', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_two_runs_in_one_process_do_not_touch_each_other(tmp_path: Path) -> None:
    async def both() -> None:
        plans = [plan_episodes([make_task(f"s{i}") for i in range(5)], [(p,)]) for p in (A, B)]
        runs = [run_episodes(p, run_dir=tmp_path / str(i), concurrency=2) for i, p in enumerate(plans)]
        for result, planned in zip(await asyncio.gather(*runs), plans, strict=True):
            assert {e.key for e in result.episodes} == {p.key for p in planned}

    asyncio.run(both())


def test_failures_are_logged_not_printed(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        asyncio.run(run_episodes([EpisodePlan(make_task(), (Faulty("f"), A))]))
    assert "failed: RuntimeError: the wire was cut" in caplog.text
    assert capsys.readouterr() == ("", "")


def test_progress_bar_appears_only_when_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(run_episodes([BASE], progress=True))
    captured = capsys.readouterr()
    assert "1/1" in captured.err
    assert captured.out == ""


def test_policies_may_be_named_and_nonsense_is_refused() -> None:
    named = plan_episodes([make_task("s")], [("silent", "leaver")])
    assert [policy.name for policy in named[0].policies] == ["silent", "leaver"]
    with raises(UnknownNameError, field="policy", nearest="silent"):
        plan_episodes([make_task("s")], [("silnt", "leaver")])
    with raises(InvalidValueError, field="policy", got=3):
        plan_episodes([make_task("s")], [(3, "leaver")])  # type: ignore[list-item]


def test_an_invalid_evaluator_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    with raises(InvalidValueError, field="evaluator"):
        asyncio.run(
            run_episodes(
                plan_episodes([make_task()], [(A, B)]), evaluator=SimpleNamespace(name="x"), run_dir=tmp_path / "run"
            )
        )  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
