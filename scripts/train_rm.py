"""Reward model: learns the value of an utterance by regression.

python scripts/train_rm.py --config configs/rm_tiny.yaml [--set KEY=VALUE ...] [--check | --dry-run]

The same command continues a run that was stopped. With several GPUs:
accelerate launch --config_file configs/accelerate/ddp.yaml scripts/train_rm.py --config ...
"""

from training.reward.model import RewardModelSettings, forecast, run, trainer_arguments
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, RewardModelSettings, run, check=trainer_arguments, forecast=forecast))
