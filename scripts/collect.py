"""Collects episodes over generated tasks: expert with expert, a model with itself, or an agent with a partner.

    python scripts/collect.py --config configs/collect_expert.yaml

Called again, it plays the missing episodes. `sotopia compare` reads the run directory.
"""

from training.collect.collection import CollectionSettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, CollectionSettings, run))
