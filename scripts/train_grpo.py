"""Group-relative policy optimisation: single-turn with a reward model, or multi-turn in the environment.

    python scripts/train_grpo.py --config configs/grpo_tiny.yaml

Called again, it continues from the last complete checkpoint. Several processes: `accelerate launch` or `torchrun`.
"""

from training.grpo.settings import check
from training.grpo.stage import GRPOSettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, GRPOSettings, run, check=check))
