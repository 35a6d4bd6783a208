"""Every example runs as a user runs it: scripts in a process of their own, notebooks in a kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"
OPTIONS = {"learn_to_bargain.py": ["--episodes", "20"]}
# They need Stable-Baselines3 and RLlib: tests/sotopia_env/envs/test_moves_env.py runs the first as far as it goes
# without, tests/adapters/rllib the second.
ELSEWHERE = {"ppo_moves.py", "rllib_moves.py"}


@pytest.mark.parametrize("name", sorted({path.name for path in EXAMPLES.glob("*.py")} - ELSEWHERE))
def test_a_script_runs(name, tmp_path):
    command = [sys.executable, EXAMPLES / name, *OPTIONS.get(name, [])]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_example_of_a_policy_of_one_s_own_ranks_it(tmp_path):
    command = [sys.executable, EXAMPLES / "own_policy.py"]
    lines = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("rank "))
    ranks = {policy: int(rank) for rank, policy, *_ in (line.split() for line in lines[first + 2 : first + 5])}
    assert set(ranks) == {"first-good", "boulware", "conceder"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_a_notebook_runs(name, tmp_path):
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbformat.validate(notebook)
    stored_outputs = [cell.get("outputs") for cell in notebook.cells]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    # What a reader sees on a page of the notebook is what the code prints today; pictures differ between versions.
    assert [texts(cell.get("outputs")) for cell in notebook.cells] == [texts(outputs) for outputs in stored_outputs]


def texts(outputs: list[nbformat.NotebookNode] | None) -> str:
    # A kernel may send what one cell prints in several parts.
    return "".join(part.text for part in outputs or () if part.output_type == "stream" and part.name == "stdout")
