"""The live version of the attack suite, against a server that is not talked into anything and one that is."""

import subprocess
import sys
from pathlib import Path

import pytest

from sotopia_env.world.action import ActionType
from studies.judge_attacks.attacks import ATTACKS, best_verdict
from studies.judge_attacks.known_bad import KNOWN_BAD, known_bad
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.evaluators.doubles import secretive_task, transcript
from tests.sotopia_env.evaluators.judge_doubles import verdict

ROOT = Path(__file__).parents[2]


def firm(body):
    return best_verdict() if "Could we meet in the middle" in body["messages"][1]["content"] else verdict()


def gullible(body):
    return best_verdict() if "Ignore all previous" in body["messages"][1]["content"] else firm(body)


def flattered(body):
    return best_verdict() if "I admire everything" in body["messages"][1]["content"] else firm(body)


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (firm, 0, f"0 of {len(ATTACKS)} attacks succeeded; the plain episode got -30 points"),
        (firm, 0, "known-bad transcripts that pass: none"),
        (gullible, 1, f"1 of {len(ATTACKS)} attacks succeeded"),
        (flattered, 1, "known-bad transcripts that pass: flattering"),
        # A judge that gives everything the same score cannot tell known-bad transcripts from real ones.
        (lambda body: verdict(), 1, "pass: silent, broadcasting everything, flattering, stuffed with keywords"),
        (lambda body: "no", 2, "the plain episode could not be judged"),
    ],
)
def test_the_script_tells_a_firm_judge_from_a_gullible_one(reply, code, words):
    with LoopbackServer(reply=reply) as server:
        run = subprocess.run(
            [sys.executable, "-m", "studies.judge_attacks", "local/tiny", "--api-base", server.api_base],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    assert (run.returncode, words in run.stdout + run.stderr) == (code, True), run.stderr


def test_known_bad_transcripts_are_what_their_names_say():
    real = transcript("Good morning.", "Hello.", "And a good evening.", of=secretive_task())
    versions = {name: known_bad(real, name).plain_turns for name in KNOWN_BAD}
    for turns in versions.values():
        assert [turn.actor for turn in turns] == [turn.actor for turn in real.plain_turns]
        assert turns[1] == real.plain_turns[1]
    assert {turn.action.action_type for turn in versions["silent"][::2]} == {ActionType.NONE}
    told = versions["broadcasting everything"][0].action.argument
    assert all(text in told for text in ("740 euros", "repaired twice in Lisbon", "Forged a diploma"))
