"""Self-reinforcement: fine-tunes a cloned model on its own best turns.

python scripts/train_sr.py --config configs/sr_tiny.yaml [--set KEY=VALUE ...] [--check | --dry-run]

The same command continues a run that was stopped. With several GPUs:
accelerate launch --config_file configs/accelerate/ddp.yaml scripts/train_sr.py --config ...
"""

from training.fitting.behavior_cloning import BehaviorCloningSettings, forecast, run, trainer_arguments
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, BehaviorCloningSettings, run, check=trainer_arguments, forecast=forecast))
