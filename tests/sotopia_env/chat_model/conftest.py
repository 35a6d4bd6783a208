import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sotopia_env.chat_model import ChatRequest, make_model
from sotopia_env.chat_model.remote import RemoteModel
from sotopia_env.chat_model.retries import RetryPolicy
from tests.sotopia_env.chat_model.server import LoopbackServer

KEY = "sk-loopback-0123456789abcdef"
QUICK = RetryPolicy(retries=3, base=0.001, cap=0.002, patience=0)
ASK = ChatRequest(messages=({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Good morning."}))


@dataclass(frozen=True)
class Way:
    """One of the two ways to a model: the name of a model on it and the variable its key comes from."""

    spec: str
    variable: str

    def make(self, server: LoopbackServer, **options) -> RemoteModel:
        options.setdefault("retries", QUICK)
        return make_model(self.spec, api_base=server.api_base, **options)


WAYS = {
    "direct": Way("local/tiny", "OPENAI_COMPATIBLE_API_KEY"),
    "hosted": Way("openai/gpt-4o-mini", "OPENAI_API_KEY"),
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch) -> Way:
    """Both paths; a test that takes it is part of their common contract."""
    monkeypatch.setenv(WAYS[request.param].variable, KEY)
    return WAYS[request.param]


@pytest.fixture
def direct(monkeypatch) -> Way:
    monkeypatch.delenv("OPENAI_COMPATIBLE_API_KEY", raising=False)
    return WAYS["direct"]


@pytest.fixture
def serve() -> Iterator[Callable[..., LoopbackServer]]:
    running: list[LoopbackServer] = []

    def start(**options) -> LoopbackServer:
        running.append(LoopbackServer(**options).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__()


def ledger_lines(directory: Path) -> list[dict]:
    """The calls that have ended, as they are in the file; the notes of requests are left out."""
    lines = [json.loads(line) for line in (directory / "ledger.jsonl").read_text().splitlines()]
    return [line for line in lines if "sent" not in line]
