"""SOTOPIA-π from tasks to a table: generate, collect, rate, filter, train, evaluate, for any number of updates.

    python scripts/run_pi.py --config configs/run_pi_tiny.yaml

Called again, also after a kill, it continues the interrupted stage. The table is `summary.txt` in the output.
"""

from training.pi.pipeline import PipelineSettings, check, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, PipelineSettings, run, check=check))
