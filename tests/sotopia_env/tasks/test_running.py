"""Reading on from where a transcript was is the same as reading it whole."""

from __future__ import annotations

import random

from sotopia_env.tasks.group_decision_votes import count_votes
from sotopia_env.tasks.mutual_friend_claims import keep_ledger
from sotopia_env.tasks.running import RunningReader
from sotopia_env.world.action import Action, ActionType
from sotopia_env.world.dynamics import Turn

OPTIONS = ("science museum", "lake picnic")
PEOPLE = ("Otto Berg", "Elif Nowak")
SAYINGS = (
    "vote: museum", "vote: picnic", "I withdraw my vote.", "I might vote for the museum.", "Hm.", "claim: Otto Berg",
    "It must be Elif.", "Yes!", "It is not Otto.", "Is Elif our mutual friend?", "I know Elif too.",
)  # fmt: skip


def turns_of(seed: int, n: int) -> list[Turn]:
    rng = random.Random(seed)
    return [Turn(i, i // 2, f"agent_{i % 2}", Action(ActionType.SPEAK, rng.choice(SAYINGS))) for i in range(n)]


def test_a_growing_transcript_reads_like_a_fresh_one() -> None:
    for seed in range(20):
        turns = turns_of(seed, 30)
        for length in range(0, 31, 1 + seed % 9):
            fresh = [Turn(t.index, t.round, t.actor, t.action) for t in turns[:length]]
            assert count_votes(turns[:length], OPTIONS) == count_votes(fresh, OPTIONS)
            assert keep_ledger(turns[:length], PEOPLE) == keep_ledger(fresh, PEOPLE)


def test_interleaved_and_branching_transcripts_do_not_mix() -> None:
    shared = turns_of(1, 5)
    reader: RunningReader[tuple[str, ...]] = RunningReader((), lambda said, turn: (*said, turn.action.argument))
    for seed in (2, 3, 2):
        branch = [*shared, *turns_of(seed, 12)[5:]]
        assert reader.read(branch) == tuple(turn.action.argument for turn in branch)
    assert reader.read(branch[3:]) == tuple(turn.action.argument for turn in branch[3:])


def test_each_turn_is_read_once_while_the_transcript_grows() -> None:
    read: list[int] = []
    reader: RunningReader[int] = RunningReader(0, lambda count, turn: read.append(turn.index) or count + 1)
    turns = turns_of(4, 50)
    for length in range(1, 51):
        assert reader.read(turns[:length]) == length
    assert read == list(range(50))
