"""Measures how right attribution is: ``python scripts/credit_accuracy.py --config configs/credit_accuracy.yaml``.

Forces actions in states of recorded episodes, measures what they are worth by playing on, and compares the rewards that
each method gives them. Writes ``report.md``, ``accuracy.csv`` and ``accuracy.png``; the same command again continues.
"""

from training.attribution.credit_accuracy import CreditAccuracySettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, CreditAccuracySettings, run))
