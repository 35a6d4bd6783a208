"""Measures the accuracy of ``spoken-outcome:MODEL`` on dialogues whose outcome is known.

    python scripts/measure_spoken_outcome.py local/NAME dialogues.jsonl --api-base http://localhost:8000/v1

``sotopia_env.people.spoken_outcomes`` documents the two forms of a line and the printed numbers.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from sotopia_env.chat_model import make_model
from sotopia_env.evaluators import SpokenOutcome
from sotopia_env.foundation.errors import SotopiaError
from sotopia_env.foundation.files import write_text_atomically
from sotopia_env.people import known_cases, read_case, spoken_report


async def main() -> int:
    """Reads all dialogues at the same time and prints the report; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="local/NAME for your own server, or PROVIDER/NAME")
    parser.add_argument("file", type=Path, help="JSON Lines of episodes or dialogues")
    parser.add_argument("--api-base", help="base URL of the server")
    parser.add_argument("--cache", type=Path, help="directory that stores the model's answers")
    parser.add_argument(
        "--reasks", type=int, default=2, help="maximum number of further requests after an invalid answer"
    )
    parser.add_argument("--out", type=Path, help="write one row for each dialogue to this JSON Lines file")
    options = parser.parse_args()
    try:
        dialogues = list(known_cases(options.file))
        # All dialogues at once: the model's own limit decides how many calls run concurrently.
        async with make_model(options.model, api_base=options.api_base, cache_dir=options.cache) as model:
            evaluator = SpokenOutcome(model, reasks=options.reasks)
            results = await asyncio.gather(*(read_case(evaluator, case) for case in dialogues))
        if options.out:
            rows = [json.dumps(result.to_json(), ensure_ascii=False) for result in results]
            write_text_atomically(options.out, "".join(f"{row}\n" for row in rows))
    except SotopiaError as error:
        print(f"measure_spoken_outcome: {error}", file=sys.stderr)
        return 2
    print(spoken_report(results))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
