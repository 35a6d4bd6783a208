"""Runs the study: ``python -m studies.social_learning --out runs/social-learning``; the same command continues it.

One training seed, in this process and on one thread. ``report.md`` is written at the end.
"""

from __future__ import annotations

import argparse
import logging
import sys
from functools import partial
from pathlib import Path

from studies.social_learning.report import write_report
from studies.social_learning.stages import STAGES, Study
from studies.study import exit_code

logger = logging.getLogger(__name__)


def main() -> int:
    """Reads the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/social-learning"), help="directory of the study")
    parser.add_argument("--short", action="store_true", help="a run that only shows that the stages fit together")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    return exit_code(partial(run, options.out, options.short))


def run(out: Path, short: bool = False) -> None:
    """Runs the incomplete stages, and writes the report.

    Raises:
        SotopiaError: a stage fails.
    """
    study = Study(out, short)
    for stage in STAGES:
        study.run(stage)
    logger.info("report: %s", write_report(study))


if __name__ == "__main__":
    sys.exit(main())
