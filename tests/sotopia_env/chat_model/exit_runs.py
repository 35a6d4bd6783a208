"""Many processes that call a model through litellm and end; the import, which takes seconds, is paid once.

``python -m tests.sotopia_env.chat_model.exit_runs API_BASE PROCESSES AT_ONCE CALLS SECONDS`` forks the processes after
the import, each with an event loop, connections, threads and an interpreter exit of its own. Prints how each ended.
"""

import asyncio
import json
import os
import signal
import sys
import time

from sotopia_env.chat_model import ChatRequest, make_model
from sotopia_env.chat_model.transports.hosted import load_litellm


async def talk(api_base: str, calls: int) -> None:
    model = make_model("openai/gpt-4o-mini", api_base=api_base)
    request = ChatRequest(messages=({"role": "user", "content": "Good morning."},))
    replies = await asyncio.gather(*(model.complete(request) for _ in range(calls)))
    assert all(reply.text for reply in replies)
    await model.close()


def reap(running: dict[int, float], ended: list[str], limit: float) -> None:
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid:
        del running[pid]
        ended.append(f"exit {os.waitstatus_to_exitcode(status)}")
    for late in [pid for pid, started in running.items() if time.monotonic() - started > limit]:
        os.kill(late, signal.SIGKILL)
        os.waitpid(late, 0)
        del running[late]
        ended.append("hung")
    time.sleep(0.01)


def main() -> None:
    api_base, processes, at_once, calls, limit = sys.argv[1], *map(int, sys.argv[2:6])
    load_litellm()
    running: dict[int, float] = {}
    ended: list[str] = []
    for _ in range(processes):
        while len(running) >= at_once:
            reap(running, ended, limit)
        pid = os.fork()
        if pid == 0:
            asyncio.run(talk(api_base, calls))
            return  # and out through the interpreter's own exit, with every handler that litellm registered
        running[pid] = time.monotonic()
    while running:
        reap(running, ended, limit)
    print(json.dumps(ended))


if __name__ == "__main__":
    main()
