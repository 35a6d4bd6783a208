"""Runs the study: ``python -m studies.learn_smol --out runs/learn-smol``; the same command continues it.

Seeds run in parallel, each on one thread, one stage after the other. Every stage is a script with a YAML file of this
folder, run in the directory of its seed; its output is the input of the next one. ``report.md`` is written at the end.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sotopia_training.stage.script import ended_by_sigterm

from sotopia_env.foundation.errors import SotopiaError
from studies.learn_smol.report import write_report
from studies.learn_smol.stages import REFERENCES, SHARED, SHORT, TASKS, Overrides, Study, seed_stages

logger = logging.getLogger(__name__)


def main() -> int:
    """Reads the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/learn-smol"), help="directory of the study")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    parser.add_argument(
        "--processes", type=int, default=3, help="number of seeds at a time, each with about 5 GB of memory"
    )
    parser.add_argument(
        "--short", action="store_true", help="a short run of minutes, which only tests that the stages fit together"
    )
    parser.add_argument(
        "--tasks",
        default="",
        metavar="SET",
        help="other test tasks, to choose a recipe on, e.g. bargaining:n=16,seed=50",
    )
    options = parser.parse_args()
    changes = dict(SHORT) if options.short else {}
    if options.tasks:
        changes["tasks"] = {"given": options.tasks}
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        with ended_by_sigterm():
            run(options.out, options.seeds, options.processes, changes)
    except KeyboardInterrupt:
        sys.stderr.write("stopped; the same command continues after the last complete stage\n")
        return 130
    except SotopiaError as error:
        sys.stderr.write(f"sotopia: {error}\n")
        return 2
    return 0


def run(out: Path, seeds: list[int], processes: int, changes: Mapping[str, Overrides] | None = None) -> None:
    """Runs the incomplete stages, and writes the report.

    Raises:
        SotopiaError: a stage fails; raised after the other seeds have finished.
    """
    study = Study(out, changes)
    study.run(TASKS, SHARED)

    def train(seed: int) -> None:
        for stage in seed_stages(seed):
            study.run(stage, str(seed))

    with ThreadPoolExecutor(processes) as pool:
        jobs = [pool.submit(train, seed) for seed in seeds]
        jobs.append(pool.submit(study.run, REFERENCES, SHARED))
        try:
            for job in jobs:
                job.result()
        except KeyboardInterrupt:
            # Threads cannot be interrupted, but they end when the processes that they wait for are terminated.
            pool.shutdown(wait=False, cancel_futures=True)
            study.stop()
            raise
    logger.info("report: %s", write_report(study.out, seeds))


if __name__ == "__main__":
    sys.exit(main())
