"""``sotopia train relabel`` as a script, for launchers that start one; see :mod:`sotopia_training.commands`."""

import sys

from sotopia_training.commands import run_stage

if __name__ == "__main__":
    sys.exit(run_stage("relabel", sys.argv[1:]))
