"""Evaluation: policies against partners, scored by judges, with paired tests against a baseline.

python scripts/evaluate.py --config configs/evaluate_verified.yaml [--set KEY=VALUE ...] [--check]

The same command continues an evaluation that was stopped; policies, partners and judges may be added to it.
"""

from training.evaluation.evaluation import EvaluationSettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, EvaluationSettings, run))
