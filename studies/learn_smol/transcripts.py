"""Three conversations before and after: the first test tasks, chosen by no result."""

from __future__ import annotations

from pathlib import Path

from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.reports.transcript import to_text
from sotopia_env.storage import read_run
from sotopia_env.world.episode import Episode
from studies.learn_smol.stages import EVALUATION, MET

TASKS = 3
"""The number of test tasks."""
_BEFORE, _AFTER = "clone", "grpo"


def write_transcripts(folder: Path, seed: int) -> Path:
    """Writes ``transcripts.md``: the clone's episodes and those after GRPO, partners in turn; returns its path.

    Args:
        folder: the directory of the study.
        seed: the training seed whose models played.
    """
    parts = [
        f"# Before and after: three conversations of training seed {seed}\n\n"
        "The first three test tasks, chosen before they were played. `clone` is the model before GRPO, `grpo` the one "
        "after.\n"
    ]
    runs = folder / str(seed) / EVALUATION / "runs"
    partners = [partner for partner in MET if any(runs.glob(f"{_BEFORE}-vs-{partner}-*"))]
    played = [policy for policy in (_BEFORE, _AFTER) if any(runs.glob(f"{policy}-vs-*"))]
    for number in range(TASKS):
        partner = partners[number % len(partners)]
        for policy in played:
            episode = _episode(runs, policy, partner, number)
            heading = f"## Task {number + 1}, against {partner}, {'before' if policy == _BEFORE else 'after'}"
            parts.append(f"{heading}\n\n```text\n{_conversation(episode)}\n```\n")
    path = folder / "transcripts.md"
    write_text_atomically(path, "\n".join(parts))
    return path


def _episode(runs: Path, policy: str, partner: str, number: int) -> Episode:
    """Returns the policy's episode of the ``number``-th task."""
    (run,) = runs.glob(f"{policy}-vs-{partner}-*")
    return sorted(read_run(run), key=lambda episode: _order(episode.task.id))[number]


def _order(task: str) -> tuple[str, int]:
    name, _, number = task.rpartition("-")
    return name, int(number)


def _conversation(episode: Episode) -> str:
    """Returns the transcript up to its scores in words."""
    return to_text(episode).partition("\n  not measured:")[0].strip()
