"""A trained model plays beside folders of the user that have the names of our own source folders."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, sys
import training.models, studio, configs
from sotopia_env import naming, tasks
from sotopia_env.world.play.table import Table

assert training.models.MINE
trained = naming.make_policy(sys.argv[1])
table = Table(tasks.generate("bargaining", 1, seed=1)[0], seed=1)
policies = [trained, naming.make_policy("linear")]
asyncio.run(table.play(dict(zip(table.task.agents, policies, strict=True))))
print(table.state.stop.value)
"""


@pytest.fixture(params=[True, False], ids=["packages", "plain folders"])
def folder(tmp_path, request):
    for name in ("training", "studio", "tests", "configs"):
        (tmp_path / name).mkdir()
        if request.param:
            (tmp_path / name / "__init__.py").touch()
    (tmp_path / "training" / "models.py").write_text("MINE = True\n")
    (tmp_path / "play.py").write_text(SCRIPT)
    return tmp_path


def run(folder, *command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    return subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)


def test_a_script_beside_them_plays_a_trained_model(folder, cloned):
    done = run(folder, "play.py", str(cloned))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_command_plays_a_trained_model_beside_them(folder, cloned):
    options = ["--policy", f"{cloned},linear", "--tasks", "bargaining", "-n", "1", "--max-turns", "4", "--out", "run"]
    done = run(folder, "-m", "sotopia_env.cli.app", "rollout", *options)
    assert done.returncode == 0, done.stderr
    assert (folder / "run" / "episodes.jsonl").read_text()
