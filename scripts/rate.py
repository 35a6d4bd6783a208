"""Evaluates every episode of a run: the ratings for the filters of SOTOPIA-π.

    python scripts/rate.py --config configs/rate.yaml

Called again, it evaluates the missing episodes.
"""

from training.collect.collection import RatingSettings, rate
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, RatingSettings, rate))
