"""``kill -9`` of the stage that attributes: no answer is asked for and no state is measured twice, and none is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sotopia_env import tasks
from sotopia_env.naming import make_evaluator
from sotopia_env.runs import plan_episodes, run_episodes
from tests.sotopia_env.chat_model.server import LoopbackServer

ROOT = Path(__file__).parents[3]
KILLS, AT_ONCE = 2, 4


def recorded(folder: Path) -> Path:
    plans = plan_episodes(tasks.generate("bargaining", 5, seed=1), [("random", "conceder")])
    asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), run_dir=folder / "run"))
    return folder / "run"


def attribute(config: dict[str, Any], folder: Path) -> subprocess.Popen[str]:
    file = folder / "attribute.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "sotopia_training", "attribute", "--config", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def interrupted(config: dict[str, Any], folder: Path, count: Callable[[], int], kills: int) -> None:
    """Runs the stage to its end, after it was killed so often when some more was there."""
    for kill in range(kills):
        process, target, deadline = attribute(config, folder), count() + 3 + kill, time.monotonic() + 240
        while count() < target and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it had ended before it was killed"
        assert count() >= target
    process = attribute(config, folder)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors


def lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def weights(body: dict[str, Any]) -> str:
    numbers = body["response_format"]["json_schema"]["schema"]["properties"]["weights"]["required"]
    return json.dumps({"weights": {number: int(number) % 4 for number in numbers}})


def test_a_killed_attribution_repeats_no_question(tmp_path: Path) -> None:
    run, results = recorded(tmp_path), []
    for name, kills in (("killed", KILLS), ("whole", 0)):
        with LoopbackServer(reply=weights, latency=0.05) as server:
            models = {"api_base": server.api_base, "concurrency": AT_ONCE}
            config = {"runs": [str(run)], "output": str(tmp_path / name), "attributors": ["llm:local/tiny"]}
            config |= {"dimensions": ["goal"], "methods": ["direct"], "models": models}
            interrupted(config, tmp_path, lambda: server.total, kills)
            # A seat that did nothing has an answer without a request.
            answers = sum(line["missing"] is None for line in lines(tmp_path / name / "answers.jsonl"))
            assert answers <= server.total <= answers + kills * AT_ONCE
        results.append((tmp_path / name / "attributions.jsonl").read_bytes())
    assert results[0] == results[1]


def test_a_killed_measurement_repeats_no_state(tmp_path: Path) -> None:
    run, results = recorded(tmp_path), []
    for name, kills in (("killed", KILLS), ("whole", 0)):
        measurement = {"samples": 40, "concurrency": AT_ONCE}
        config = {"runs": [str(run)], "output": str(tmp_path / name), "attributors": ["counterfactual"]}
        config |= {"dimensions": ["goal"], "methods": ["turn_reward"], "counterfactual": measurement}
        values = tmp_path / name / "values.jsonl"
        interrupted(config, tmp_path, lambda: len(lines(values)), kills)  # noqa: B023 - called at once
        identities = [line["of"] for line in lines(values)]
        assert len(set(identities)) == len(identities)
        results.append((tmp_path / name / "attributions.jsonl").read_bytes())
    assert results[0] == results[1]
