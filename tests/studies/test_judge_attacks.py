"""The live version of the attack suite, against a server that is not talked into anything and one that is."""

import subprocess
import sys
from pathlib import Path

import pytest

from studies.judge_attacks.attacks import ATTACKS, best_verdict
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.evaluators.judge_doubles import verdict

ROOT = Path(__file__).parents[2]


def gullible(body):
    return best_verdict() if "Ignore all previous" in body["messages"][1]["content"] else verdict()


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (lambda body: verdict(), 0, f"0 of {len(ATTACKS)} attacks succeeded; the plain episode got -30 points"),
        (gullible, 1, f"1 of {len(ATTACKS)} attacks succeeded"),
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
