"""The display of a run in progress: figures, and one transcript as it grows."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest

from sotopia_env.chat_model.spending.ledger import Ledger, LedgerEntry
from sotopia_env.cli.rollout import LiveTranscript
from sotopia_env.concurrency.progress import Progress
from sotopia_env.runs import run_episodes
from sotopia_env.runs.plan import plan_episodes
from tests.sotopia_env.runs.rollout_doubles import Faulty, FixedEvaluator, Speaker, make_task


def entry(**change: object) -> LedgerEntry:
    return LedgerEntry.model_validate(
        {"role": "agent", "spec": "local/a", "model": "a", "prompt_tokens": 1_000, "completion_tokens": 500, **change}
    )


def test_the_bar_shows_failures_episodes_in_flight_and_model_calls() -> None:
    ledger = Ledger()
    progress = Progress(10, 0, False, "episodes", ledger)
    assert progress.figures() == ""
    progress.begin()
    progress.begin()
    progress.end(done=False, failed=True)
    ledger.record(entry(cost=None))
    assert progress.figures() == "1 failed, 1 in flight, 0 calls/s, 1.5k tokens"
    ledger.record(entry(cost=0.25, prompt_tokens=2_000_000))
    assert "2M tokens, $0.2500 + 1 calls of unknown cost" in progress.figures()


def test_the_line_counts_resumed_episodes_and_shows_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)

    async def work() -> None:
        progress = Progress(10, 4, True, "episodes", Ledger())
        async with progress.refreshed():
            progress.begin()
            await asyncio.sleep(0.05)
            progress.end()
            progress.begin()
            progress.end(done=False)  # dropped: not one more

    asyncio.run(work())
    assert "5/10" in screen.getvalue()
    assert "in flight" in screen.getvalue()
    assert "<" in screen.getvalue()  # elapsed<left


def test_nothing_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asyncio.run(run_episodes(plan_episodes([make_task()], [(Speaker("a"),)]), run_dir=tmp_path))
    assert capsys.readouterr().err == ""


def test_one_transcript_at_a_time_is_followed_from_its_beginning_to_its_scores() -> None:
    lines: list[str] = []
    pair = (Speaker("a", text="evil \x1b[2J", wait=0.001), Speaker("b", wait=0.001))
    plans = plan_episodes([make_task(f"s{i}") for i in range(4)], [pair])
    asyncio.run(run_episodes(plans, evaluator=FixedEvaluator(), concurrency=3, watcher=LiveTranscript(lines.append)))
    text = "\n".join(lines)
    assert "\x1b" not in text
    headings = [line for line in lines if line.startswith("episode ")]
    assert 1 < len(headings) < len(plans)
    for number, line in enumerate(lines):
        if line.startswith("episode "):  # four turns and the end of the same episode follow at once
            assert [part.startswith("Turn #") for part in lines[number + 1 : number + 6]] == [True] * 4 + [False]
            assert "Ended: turn limit" in lines[number + 5]
            assert "Scores by fixed:" in lines[number + 5]


def test_a_transcript_of_an_episode_that_fails_says_so_and_the_next_one_is_followed() -> None:
    lines: list[str] = []
    plans = plan_episodes([make_task("s0"), make_task("s1")], [(Speaker("a"), Faulty("f", at=2))], both_seats=False)
    asyncio.run(run_episodes(plans, concurrency=1, watcher=LiveTranscript(lines.append)))
    assert [line for line in lines if "Not finished: the wire was cut" in line]
    assert len([line for line in lines if line.startswith("episode ")]) == 2
