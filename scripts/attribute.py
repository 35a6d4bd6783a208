"""Attributes the scores of evaluated episodes to single turns: ``python scripts/attribute.py --config configs/…``.

Writes ``attributions.jsonl`` (one reward for each turn, dimension, attributor and method) and ``report.md`` into the
output directory. The same command again continues a stage that was stopped: no answer of a language model is lost.
"""

from training.attribution.stage import AttributionSettings, run
from training.stage.script import run_script

if __name__ == "__main__":
    raise SystemExit(run_script(__doc__, AttributionSettings, run))
