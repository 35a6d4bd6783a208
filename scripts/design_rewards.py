"""Combines attributed rewards into one value for each turn: ``python scripts/design_rewards.py --config configs/…``.

Writes ``rows.jsonl`` (the reward model's training data), ``design.json`` (the combination) and ``rewards.png`` (the
distribution of the values) into the output directory.
"""

from training.reward.rows import RewardRowSettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, RewardRowSettings, run))
