"""A loopback server that plays and judges, in a process of its own or of the test's, and runs against it.

As a process of its own it prints its base URL::

    python -m tests.sotopia_env.runs.model_runs --latency 0.02
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sotopia_env.storage import read_run
from sotopia_env.world.reward import RANGES
from tests.sotopia_env.chat_model.server import LoopbackServer

ROOT = Path(__file__).parents[3]
SOTOPIA = [sys.executable, "-m", "sotopia_env.cli.app"]
SCORES = {dimension.value: high if high > 0 else low for dimension, (low, high) in RANGES.items()}
"""What the server's judge gives; never 0, so that a 0 in a record came from nowhere."""


def form_of(body: dict[str, Any]) -> dict[str, Any]:
    """The properties of the verdict or answer that a request asks for; none where it asks for an action."""
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    properties: dict[str, Any] = schema.get("properties", {})
    return {} if "action" in properties else properties  # the object around the alternatives of an action


def answer(body: dict[str, Any]) -> str:
    """A verdict where one is asked for, an utterance otherwise."""
    if "verdicts" not in form_of(body):
        return json.dumps({"action_type": "speak", "argument": f"I have read {len(body['messages'])} messages."})
    verdicts = form_of(body)["verdicts"]
    agents = verdicts["required"]
    names = verdicts["properties"][agents[0]]["required"]
    return json.dumps(
        {"verdicts": {a: {n: {"reasoning": f"{a} on {n}", "score": SCORES.get(n, 4)} for n in names} for a in agents}}
    )


def table_server(**options: Any) -> LoopbackServer:
    """A server that plays and judges."""
    return LoopbackServer(**{"reply": answer, "keep_requests": False, **options})


@contextmanager
def server_process(*arguments: str) -> Iterator[str]:
    """Such a server in another process; gives its base URL."""
    command = [sys.executable, "-m", "tests.sotopia_env.runs.model_runs", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def stats(api_base: str) -> dict[str, Any]:
    """What a server in another process has counted."""
    with urllib.request.urlopen(api_base.removesuffix("/v1") + "/stats", timeout=5) as response:
        counts: dict[str, Any] = json.loads(response.read())
    return counts


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Starts the ``sotopia`` command in a process of its own."""
    command = [*SOTOPIA, *(str(argument) for argument in arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def keys_of(run: Path) -> Counter[str]:
    """The number of records of each key in a run."""
    return Counter(episode.key for episode in read_run(run))


def main() -> None:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--fault", action="append", default=[], metavar="KIND=PROBABILITY")
    arguments = parser.parse_args()
    faults = {kind: float(share) for kind, _, share in (item.partition("=") for item in arguments.fault)}
    server = table_server(latency=arguments.latency, faults=faults)

    async def serve() -> None:
        await server.start()
        print(server.api_base, flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
