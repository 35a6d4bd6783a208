"""Runs every stage on a tiny model that is built from scratch, over several training seeds, and writes a report.

    python -m studies.learn --config studies/learn/learn.yaml

Took 42 minutes on two CPU cores with other work beside it; `make learn` runs it. The same command continues an
interrupted study.
"""

import sys

from sotopia_training.stage.script import run_script

from studies.learn.learn import LearnSettings, run

if __name__ == "__main__":
    sys.exit(run_script(__doc__, LearnSettings, run, program="python -m studies.learn"))
