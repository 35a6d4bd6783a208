"""``python -m sotopia_training STAGE --config NAME``; see :mod:`sotopia_training.commands`."""

import sys

from sotopia_training.commands import main

if __name__ == "__main__":
    sys.exit(main())
