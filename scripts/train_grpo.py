"""Group-relative policy optimisation: single-turn with a reward model, or multi-turn in the environment.

    python scripts/train_grpo.py --config configs/grpo_tiny.yaml

`--check` reads the settings and stops; `--dry-run` says what the stage would take. The same command
continues from the last complete checkpoint. Several processes: `accelerate launch` or `torchrun`.
"""

from training.grpo.forecast import forecast
from training.grpo.settings import GRPOSettings, check, trainer_arguments
from training.grpo.stage import run
from training.stage.script import run_script


def check_all(settings: GRPOSettings) -> None:
    """Checks for contradictions, and that the trainer's arguments exist."""
    check(settings)
    trainer_arguments(settings)


if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, GRPOSettings, run, check=check_all, forecast=forecast))
