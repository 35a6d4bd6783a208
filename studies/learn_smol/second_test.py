"""A second test of the study's trained models, on more tasks than the study's own.

python -m studies.learn_smol.second_test --out runs/learn-smol

Plays the clone and the second round of self-reinforcement of every training seed on 48 tasks of task seed 8, and prints
their paired differences, which are decided over training seeds; the same command continues it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sotopia_env.foundation.errors import SotopiaError
from studies.learn_smol.report import PARTNERS, Results, decided, shown
from studies.learn_smol.stages import SHARED, Stage, Study, evaluated

# Names of their own, so that the study's own evaluation and tasks stay as they are.
EVALUATION, BETTER, BASE = "evaluation-8", "sr-2", "clone"
TASKS = Stage("generate_tasks", "tasks", {"given": "bargaining:n=48,seed=8", "output": "tasks-8"})
EVALUATE = Stage(
    "evaluate",
    "evaluate",
    {
        "policies": [evaluated(BASE), evaluated(BETTER)],
        "tasks": f"../{SHARED}/tasks-8/tasks.jsonl",
        "output": EVALUATION,
    },
)


def main() -> int:
    """Reads the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/learn-smol"), help="directory of a complete study")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    options = parser.parse_args()
    study, results = Study(options.out, False), Results()
    names = [str(seed) for seed in options.seeds]
    try:
        study.run(TASKS, SHARED)
        for name in names:
            study.run(EVALUATE, name)
            results.add(options.out / name, EVALUATION)
    except SotopiaError as error:
        sys.stderr.write(f"sotopia: {error}\n")
        return 2
    for partner in PARTNERS:
        means = results.by_seed(BETTER, BASE, partner, names)
        interval, verdict = decided(means)
        sys.stdout.write(f"{BETTER} - {BASE}, {partner}: {interval} over seeds, {verdict}; each seed {shown(means)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
