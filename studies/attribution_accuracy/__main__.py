"""Measures the accuracy of attribution with forced actions and continuations.

Writes `report.md`, `accuracy.csv` and `accuracy.png`, which compare the rewards of each method with the measured worth
of actions in states of recorded episodes. The same command continues after a stop.
"""

from __future__ import annotations

import sys

from sotopia_training.stage.script import run_script

from studies.attribution_accuracy.study import AttributionAccuracySettings, run

if __name__ == "__main__":
    sys.exit(run_script(__doc__, AttributionAccuracySettings, run, program="python -m studies.attribution_accuracy"))
