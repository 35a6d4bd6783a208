"""Compares models on benchmarks of lm-eval: ``python -m studies.harm --config studies/harm/sotopia_rl.yaml``."""

from __future__ import annotations

import sys

from sotopia_training.stage.script import run_script

from studies.harm import stage
from studies.harm.settings import HarmSettings

if __name__ == "__main__":
    sys.exit(run_script(__doc__, HarmSettings, stage.run, program="python -m studies.harm"))
