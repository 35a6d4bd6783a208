"""Processes that end, and processes that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sotopia_env.chat_model.spending.ledger import Ledger, read_ledger
from tests.sotopia_env.chat_model.conftest import KEY, ledger_lines

ROOT = Path(__file__).parents[3]
KILLED = """
import asyncio, sys
from sotopia_env.chat_model import ChatRequest, make_model
from sotopia_env.chat_model.spending.ledger import Ledger
async def main():
    model = make_model("local/tiny", api_base=sys.argv[1], ledger=Ledger(sys.argv[2]), concurrency=8)
    async def worker():
        while True:
            await model.complete(ChatRequest(messages=({"role": "user", "content": "hi"},), label="é" * 40))
    await asyncio.gather(*(worker() for _ in range(8)))
asyncio.run(main())
"""


@pytest.mark.parametrize("processes", [3, pytest.param(8, marks=pytest.mark.slow("starts eight processes"))])
def test_processes_that_used_litellm_end(serve, monkeypatch, processes):
    """litellm 1.80 hung at exit in 6 of 10 processes on Python 3.11, after every call had been answered."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = serve(latency=0.01)
    command = [
        sys.executable,
        "-m",
        "tests.sotopia_env.chat_model.exit_runs",
        server.api_base,
        str(processes),
        "4",
        "20",
        "240",
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
    assert json.loads(run.stdout) == ["exit 0"] * processes
    assert run.stderr == ""
    assert server.total == 20 * processes


def test_a_ledger_survives_the_death_of_its_process(serve, tmp_path):
    server = serve()
    for number in range(3):
        process = subprocess.Popen([sys.executable, "-c", KILLED, server.api_base, str(tmp_path)], cwd=ROOT)
        lines = answers(tmp_path)
        deadline = time.monotonic() + 240
        while answers(tmp_path) < lines + 20 + 7 * number:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()
        process.wait()
    with Ledger(tmp_path) as ledger:
        totals = ledger.totals()
    assert totals.answered == len(ledger_lines(tmp_path))
    assert totals.interrupted <= 3 * 8  # in flight at each death
    assert totals.answered <= server.served <= totals.answered + totals.interrupted


def answers(directory: Path) -> int:
    if not (directory / "ledger.jsonl").exists():
        return 0
    return sum(entry.outcome == "answered" for entry in read_ledger(directory))


def test_a_line_cut_short_is_removed_and_the_rest_taken_up(tmp_path, caplog):
    line = '{"role":"judge","spec":"m","prompt_tokens":5,"completion_tokens":2,"cost":0.25,"attempts":3}\n'
    (tmp_path / "ledger.jsonl").write_text(line + line + line[:30])
    with Ledger(tmp_path) as ledger:
        assert ledger.repaired == 30
        assert (ledger.totals("judge").tokens, ledger.totals("judge").cost, ledger.totals("agent").tokens) == (
            14,
            0.5,
            0,
        )
    assert (tmp_path / "ledger.jsonl").read_text() == line + line
    assert "30 bytes" in caplog.text


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_the_server_runs_as_a_process_of_its_own(kind):
    command = [sys.executable, "-m", "tests.sotopia_env.chat_model.server", "--port", "0", "--latency", "0.001"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    os.kill(process.pid, kind)
    process.wait(20)
    process.stdout.close()
