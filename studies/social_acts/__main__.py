"""Measures five social acts of policies: truth-telling, promise-keeping, persuasion, asking and secrecy.

Prints one table with 95 % intervals over scenarios and the closed forms beside, and writes it as `report.md`,
`acts.csv` and `closed_forms.csv`. The episodes are runs in the directory; the same command continues them after a stop.
"""

from __future__ import annotations

import sys

from sotopia_training.stage.script import run_script

from studies.social_acts.study import SocialActsSettings, run

if __name__ == "__main__":
    sys.exit(run_script(__doc__, SocialActsSettings, run, program="python -m studies.social_acts"))
