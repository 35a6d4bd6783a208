"""Episodes with language models over real HTTP: makespan over the ideal, and over bare loops that make the same calls.

The server is another process with 50 ms latency. A bare loop posts the same bodies as an episode of the package, turn
after turn, and reads the answers; all measurements of a size are made in one run. Every measurement has a process of
its own, for its peak memory.

``python -m benchmarks models`` measures 1, 16, 128 and 512 episodes, and with ``SOTOPIA_BENCH_LARGE=1`` also 2,048.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure
from benchmarks.server import server_process
from sotopia_env import naming, tasks
from sotopia_env.chat_model import ChatReply, ChatRequest
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.transports.form import RequestForm, response_format
from sotopia_env.runs.plan import EpisodePlan, plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.world.dynamics import Rules
from tests.sotopia_env.runs.model_runs import answer

TURNS, LATENCY, ROUNDS = 20, 0.05, 3
IDEAL = (TURNS + 1) * LATENCY
SIZES = (1, 16, 128, 512, *([2048] if os.environ.get("SOTOPIA_BENCH_LARGE") else []))
HOSTED = 16


class Clock:
    """Seconds, and CPU seconds of this process, from construction to :meth:`stop`."""

    def __init__(self) -> None:
        self.seconds, self.cpu = -time.perf_counter(), -time.process_time()

    def stop(self) -> Clock:
        """Ends the measurement."""
        self.seconds += time.perf_counter()
        self.cpu += time.process_time()
        return self


class _Recorder:
    """Answers as the server does and records the requests."""

    name = "local/tiny"

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}
        self.bodies: list[dict[str, Any]] = []

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Records the body that the direct path would post."""
        body: dict[str, Any] = {"model": "tiny", "messages": list(request.messages)}
        body["temperature"] = request.temperature
        if request.schema is not None:
            body["response_format"] = response_format(request.schema, RequestForm())
        self.bodies.append(body)
        return ChatReply(answer(body), model="tiny-2026")

    async def close(self) -> None:
        """Nothing is open."""


def plans(count: int, make: Callable[[str], Any], spec: str) -> list[EpisodePlan]:
    """Episodes of two seats and 20 turns."""
    task_set = tasks.generate("bargaining", count, seed=7)
    policy = naming.make_policy(spec, make)
    return plan_episodes(task_set, [(policy,)], rules=Rules(max_turns=TURNS), both_seats=False)


def bodies() -> list[dict[str, Any]]:
    """The bodies of the requests of one episode and its judge."""
    recorder = _Recorder()
    judge = naming.make_evaluator("judge:local/tiny", model_factory=lambda *_, **__: recorder)
    asyncio.run(run_episodes(plans(1, lambda _: recorder, "local/tiny"), evaluator=judge, progress=False))
    if len(recorder.bodies) != TURNS + 1:
        raise RuntimeError(f"expected {TURNS + 1} calls, got {len(recorder.bodies)}")
    return recorder.bodies


async def package(url: str, count: int, spec: str, folder: Path) -> Clock:
    """The time of ``count`` concurrent episodes, played, judged and recorded by this package."""
    # Built before the clock starts, as a user's run builds them once for many episodes.
    models = ModelPool(ModelOptions(api_base=url, concurrency=count))
    episode_plans = plans(count, models, spec)
    judge = naming.make_evaluator(f"judge:{spec}", model_factory=models.judge)
    models.open(folder)
    clock = Clock()
    result = await run_episodes(
        episode_plans, evaluator=judge, run_dir=folder, concurrency=count, progress=False, ledger=models.ledger
    )
    clock.stop()
    await models.close()
    if result.played != count or result.unscored:
        raise RuntimeError(f"expected {count} scored episodes, got {result}")
    return clock


async def bare_aiohttp(url: str, count: int, requests: list[dict[str, Any]]) -> Clock:
    """The time of the same calls in a loop over aiohttp."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=count)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def episode() -> None:
            for body in requests:
                async with session.post(f"{url}/chat/completions", json=body) as response:
                    json.loads(await response.read())

        clock = Clock()
        await asyncio.gather(*(episode() for _ in range(count)))
        return clock.stop()


async def bare_litellm(url: str, count: int, requests: list[dict[str, Any]]) -> Clock:
    """The time of the same calls in a loop over litellm."""
    from sotopia_env.chat_model.transports.hosted import load_litellm

    litellm = load_litellm()

    async def episode() -> None:
        for body in requests:
            await litellm.acompletion(**{**body, "model": "openai/tiny"}, api_base=url, num_retries=0, max_retries=0)

    clock = Clock()
    await asyncio.gather(*(episode() for _ in range(count)))
    clock.stop()
    await litellm.close_litellm_async_clients()
    # Otherwise the next call would use a closed client.
    litellm.in_memory_llm_clients_cache.flush_cache()
    return clock


def _work(kind: str, url: str, count: int, folder: Path) -> Callable[[int], Awaitable[Clock]]:
    if kind in ("direct", "hosted"):
        spec = "local/tiny" if kind == "direct" else "openai/tiny"
        return lambda size: package(url, size, spec, folder / str(size) / kind)
    requests, bare = bodies(), bare_aiohttp if kind == "aiohttp" else bare_litellm
    return lambda size: bare(url, size, requests)


def child(kind: str, url: str, count: int) -> None:
    """Measures once and prints seconds, CPU seconds per call and peak MiB; warm-up in the same process first."""
    with tempfile.TemporaryDirectory() as folder:
        work = _work(kind, url, count, Path(folder))

        async def run() -> tuple[float, float]:
            # Warm-up: imports, caches and first connections.
            await work(2)
            # The directory of the warm-up exists, and a run in it would resume instead of playing.
            clock = await (work(count) if count != 2 else work(1))
            return clock.seconds, clock.cpu / (count * (TURNS + 1))

        seconds, cpu = asyncio.run(run())
    # Linux reports kilobytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([seconds, cpu, peak]))


def measure(kind: str, url: str, count: int) -> tuple[float, float, float]:
    """Seconds, CPU seconds per call and peak MiB in a process of its own."""
    code = f"from benchmarks.models import child; child({kind!r}, {url!r}, {count})"
    environment = {**os.environ, "OPENAI_API_KEY": "none"}
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    if process.returncode:
        raise RuntimeError(process.stderr)
    seconds, cpu, peak = json.loads(process.stdout.splitlines()[-1])
    return seconds, cpu, peak


def best(kinds: tuple[str, ...], url: str, count: int) -> dict[str, tuple[float, float, float]]:
    """The fastest of some interleaved rounds for each kind, because the machine is shared."""
    rounds = [{kind: measure(kind, url, count) for kind in kinds} for _ in range(ROUNDS)]
    return {kind: min(results[kind] for results in rounds) for kind in kinds}


def figures(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """Makespans over the ideal and over the bare loops, CPU per call, memory."""
    # litellm needs a key, the server does not.
    os.environ.setdefault("OPENAI_API_KEY", "none")
    limits = {128: 3}  # with more, the bare loop is no faster than its core, and only the ratio says something
    with server_process(LATENCY) as url:
        for count in sizes:
            results = best(("direct", "aiohttp"), url, count)
            (ours, cpu, peak), (bare, bare_cpu, _) = results["direct"], results["aiohttp"]
            note = f"bare loop {bare / IDEAL:.2f}; CPU a call {cpu * 1e3:.2f} ms, bare {bare_cpu * 1e3:.2f} ms"
            target = limits.get(count, float("inf"))
            yield Figure(f"{count} episodes + judge: makespan / ideal", ours / IDEAL, "x", target, note=note)
            above = 3 if count == 512 else float("inf")
            yield Figure(f"{count} episodes + judge: makespan / bare aiohttp", ours / bare, "x", above)
            if count >= 512:
                most = 400 if count == 512 else float("inf")
                yield Figure(f"{count} episodes + judge: peak memory", peak, "MiB", most)
        results = best(("hosted", "litellm"), url, HOSTED)
        ratio = results["hosted"][0] / results["litellm"][0]
        note = f"{results['hosted'][0] / IDEAL:.2f} and {results['litellm'][0] / IDEAL:.2f} times the ideal"
        yield Figure(f"{HOSTED} episodes + judge: litellm path / bare litellm", ratio, "x", 1.15, note=note)
