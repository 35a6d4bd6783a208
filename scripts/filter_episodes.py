"""Selects episodes to train on by the filters of SOTOPIA-π; writes selections and a report per task.

python scripts/filter_episodes.py --config configs/filter_bc.yaml
"""

from training.collect.filtering import FilteringSettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, FilteringSettings, run))
