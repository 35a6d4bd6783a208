"""Has every episode of a run evaluated: the ratings that the filters of SOTOPIA-π go by.

    python scripts/rate.py --config configs/rate.yaml

Called again, it asks about what is missing.
"""

from training.collect.collection import RatingSettings, rate
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, RatingSettings, rate))
