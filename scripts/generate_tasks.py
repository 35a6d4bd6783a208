"""Generates the tasks of a round, by verified families or by a language model from inspirations.

    python scripts/generate_tasks.py --config configs/tasks_written.yaml

Called again, it continues; used inspirations are in `scenarios.jsonl` and are not used again.
"""

from training.collect.task_generation import TaskGenerationSettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, TaskGenerationSettings, run))
