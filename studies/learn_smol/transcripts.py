"""Three conversations before training, after cloning and after GRPO: the first test tasks, chosen by no result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.reports.transcript import to_text
from sotopia_env.storage import read_run
from sotopia_env.world.episode import Episode
from studies.learn_smol.stages import EVALUATION, MET, SHARED

TASKS = 3
"""The number of test tasks."""
_STAGES = {
    "base-constrained": "the model as it is, held to legal moves",
    "clone": "the model after cloning",
    "grpo": "the model after GRPO",
}


def write_transcripts(folder: Path, seed: int) -> Path:
    """Writes ``transcripts.md``: each task's episodes of the models that played, partners in turn; returns its path.

    Args:
        folder: the directory of the study.
        seed: the training seed whose models played.
    """
    folders = [folder / name / EVALUATION / "runs" for name in (SHARED, str(seed))]
    partners = [partner for partner in MET if _run(folders, "clone", partner)]
    played = [policy for policy in _STAGES if any(_run(folders, policy, partner) for partner in partners)]
    parts = [
        f"# Before and after: three conversations of training seed {seed}\n\n"
        "The first three test tasks, chosen before they were played. "
        + "; ".join(f"`{policy}` is {_STAGES[policy]}" for policy in played)
        + ".\n"
    ]
    for number in range(TASKS if partners else 0):
        partner = partners[number % len(partners)]
        for policy in played:
            if run := _run(folders, policy, partner):
                heading = f"## Task {number + 1}, against {partner}: {_STAGES[policy]}"
                parts.append(f"{heading}\n\n```text\n{_conversation(_episode(run, number))}\n```\n")
    path = folder / "transcripts.md"
    write_text_atomically(path, "\n".join(parts))
    return path


def _run(folders: Sequence[Path], policy: str, partner: str) -> Path | None:
    """Returns the run of the two; ``None`` if they did not play."""
    runs = [run for folder in folders for run in folder.glob(f"{policy}-vs-{partner}-*")]
    if not runs:
        return None
    (run,) = runs
    return run


def _episode(run: Path, number: int) -> Episode:
    """Returns the episode of the ``number``-th task."""
    return sorted(read_run(run), key=lambda episode: _order(episode.task.id))[number]


def _order(task: str) -> tuple[str, int]:
    name, _, number = task.rpartition("-")
    return name, int(number)


def _conversation(episode: Episode) -> str:
    """Returns the transcript up to its scores in words."""
    return to_text(episode).partition("\n  not measured:")[0].strip()
