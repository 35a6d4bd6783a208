"""Prints rows of behaviour cloning as the model reads them, with the trained tokens marked.

python scripts/inspect_rows.py --config bc_tiny [--row 3] [--count 2]

Trained tokens are green in a terminal, and between [[ and ]] elsewhere.
"""

import argparse
import itertools
import sys

from sotopia_training.fitting.behavior_cloning import BehaviorCloningSettings, marked, training_rows
from sotopia_training.fitting.loop import begin_from
from sotopia_training.models.tokenizers import load_tokenizer
from sotopia_training.stage.configurations import find_configuration

from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.settings import read_settings


def show(settings: BehaviorCloningSettings, first: int, count: int) -> int:
    """Prints up to ``count`` rows, starting with number ``first``, and returns the number of printed rows."""
    # The stage's own functions, so that the rows are exactly those of a training run.
    base = begin_from(settings.model, settings.start_from, settings.prompt).base
    tokenizer = load_tokenizer(base, settings.prompt)
    _, rows = training_rows(settings, tokenizer)
    printed = 0
    for number, (row, tokens) in enumerate(itertools.islice(rows, first, first + count), start=first):
        # Labels of tokens without loss are negative (-100).
        trained = sum(label >= 0 for label in tokens.labels)
        print(
            f"row {number}: {row.episode}, {row.seat}, turn {row.turn}, scenario {row.scenario}, partner {row.partner}"
        )
        print(f"{len(tokens.input_ids)} tokens, {trained} of them trained; {row.dropped} oldest turns left out")
        print(marked(tokenizer, tokens, sys.stdout.isatty()), end="\n\n")
        printed += 1
    return printed


def main() -> int:
    """Reads the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="settings of behaviour cloning: a name or a YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting (a.b=3)")
    parser.add_argument("--row", type=int, default=0, help="number of the first row, from 0")
    parser.add_argument("--count", type=int, default=1, help="number of rows")
    options = parser.parse_args()
    try:
        settings = read_settings(find_configuration(options.config), BehaviorCloningSettings, options.set)
        printed = show(settings, max(0, options.row), options.count)
    except SotopiaError as error:
        print(f"sotopia: {error}", file=sys.stderr)
        return 2
    if not printed:
        print(f"sotopia: --row {options.row}: the data has fewer rows", file=sys.stderr)
    return 0 if printed else 2


if __name__ == "__main__":
    raise SystemExit(main())
