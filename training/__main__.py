"""``python -m training STAGE --config NAME``; see :mod:`training.commands`."""

import sys

from training.commands import main

if __name__ == "__main__":
    sys.exit(main())
