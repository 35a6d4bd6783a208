"""Proof of learning: every stage on a tiny random model, over several training seeds, and a report.

    python scripts/learn.py --config configs/learn.yaml

Takes about 25 minutes on two quiet CPU cores; `make learn` runs it. Called again, it continues where it stopped.
"""

from training.proof.learn import LearnSettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, LearnSettings, run))
