"""Simulations over a WebSocket, on a real server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from sotopia_env import naming
from tests.sotopia_studio.conftest import create_tables
from tests.sotopia_studio.serving import serving


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("studio")
    url = f"sqlite:///{folder}/studio.db"
    asyncio.run(create_tables(url))
    with serving(url, folder) as address:
        yield address


def task() -> dict[str, Any]:
    return next(iter(naming.task_set("bargaining", 1, 0, "medium"))).model_dump(mode="json")


def talk(studio: tuple[str, str], **headers: str) -> ClientConnection:
    address = studio[0].replace("http", "ws")
    return connect(f"{address}/api/v1/ws/simulation", additional_headers=headers)


def bearer(studio: tuple[str, str]) -> dict[str, str]:
    return {"Authorization": f"Bearer {studio[1]}"}


def send(socket: ClientConnection, kind: str, data: dict[str, Any] | None = None, **more: str) -> None:
    socket.send(json.dumps({"type": kind, "data": data or {}, **more}))


def receive(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(socket.recv(timeout=240))
    return message


def test_every_event_is_one_message_and_the_episode_is_stored(studio: tuple[str, str]) -> None:
    with talk(studio, **bearer(studio)) as socket:
        send(socket, "START_SIM", {"task": task(), "policies": ["boulware", "conceder"]})
        messages = [receive(socket)]
        while messages[-1]["type"] != "FINISH_SIM":
            messages.append(receive(socket))
    events = messages[:-1]
    assert {message["type"] for message in events} == {"SERVER_MSG"}
    assert [message["data"]["number"] for message in events] == list(range(1, len(events) + 1))
    episode = messages[-1]["data"]["episode"]
    answer = httpx.get(f"{studio[0]}/api/v1/episodes/{episode}/record", headers=bearer(studio))
    turns = [message["data"]["event"]["turn"] for message in events if message["data"]["kind"] == "turn"]
    assert turns == answer.json()["turns"]  # each once, never the whole episode again
    assert answer.json()["evaluations"]


def test_only_a_valid_token_in_the_first_message_is_accepted(studio: tuple[str, str]) -> None:
    request = {"task": task(), "policies": ["human", "boulware"]}
    for token in ("", "demo-token"):
        with talk(studio) as socket:
            send(socket, "START_SIM", request, **({"token": token} if token else {}))
            assert receive(socket)["data"]["error"] == "NOT_AUTHORIZED"
            with pytest.raises(ConnectionClosed):  # a guesser opens a connection for each guess
                socket.recv(timeout=60)
    with talk(studio) as socket:
        send(socket, "START_SIM", request, token=studio[1])
        assert receive(socket)["data"]["kind"] == "began"
        send(socket, "START_SIM", request)
        kinds = []
        while not kinds or kinds[-1]["type"] != "ERROR":
            kinds.append(receive(socket))
        assert kinds[-1]["data"]["error"] == "SIMULATION_ALREADY_STARTED"


@pytest.mark.parametrize("word", ["FINISH_SIM", "END_SIM"])
def test_a_stop_takes_effect_at_once_even_while_a_model_thinks(studio: tuple[str, str], word: str) -> None:
    slow = "tests.sotopia_studio.slow:Pensive"
    with talk(studio, **bearer(studio)) as socket:
        send(socket, "START_SIM", {"task": task(), "policies": [slow]})
        while receive(socket)["data"]["kind"] != "waiting":
            pass
        time.sleep(0.3)  # it is being asked
        send(socket, word)
        messages = [receive(socket)]
        while messages[-1]["type"] != "FINISH_SIM":
            messages.append(receive(socket))
        assert messages[-1]["data"]["last"] == "stopped"
        send(socket, word)
        assert receive(socket)["data"]["error"] == "SIMULATION_NOT_STARTED"


def test_invalid_messages_are_reported_and_the_connection_continues(studio: tuple[str, str]) -> None:
    with talk(studio, **bearer(studio)) as socket:
        for text in ("{", "[]", '{"type": "SHOUT"}', '{"type": "CLIENT_MSG"}', '{"type": "START_SIM", "data": 3}'):
            socket.send(text)
            assert receive(socket)["data"]["error"] == "INVALID_MESSAGE"
        send(socket, "START_SIM", {"task": task(), "policies": ["boulwar"]})
        error = receive(socket)["data"]
        assert (error["error"], error["nearest"]) == ("INVALID_MESSAGE", "boulware")
        send(socket, "START_SIM", {"task": "unknown", "policies": ["boulware"]})
        assert receive(socket)["data"]["error"] == "RESOURCE_NOT_FOUND"


def test_an_episode_continues_when_its_connection_breaks(studio: tuple[str, str]) -> None:
    with talk(studio, **bearer(studio)) as socket:
        send(socket, "START_SIM", {"task": task(), "policies": ["tests.sotopia_studio.slow:Slow"]})
        episode = receive(socket)["data"]["episode"]
    for _ in range(4800):
        answer = httpx.get(f"{studio[0]}/api/v1/simulation_status/{episode}", headers=bearer(studio)).json()
        if answer["status"] == "done":
            break
        time.sleep(0.05)
    assert answer["status"] == "done"


def test_a_stream_ends_with_its_episode_and_resumes_without_gap(studio: tuple[str, str]) -> None:
    api = httpx.Client(base_url=f"{studio[0]}/api/v1", headers=bearer(studio), timeout=20)
    episode = api.post("/simulate", json={"task": task(), "policies": ["boulware"]}).json()["episodes"][0]

    def read(after: int, most: int) -> list[int]:
        numbers: list[int] = []
        with api.stream("GET", f"/episodes/{episode}/events", headers={"last-event-id": str(after)}) as answer:
            for line in answer.iter_lines():
                if line.startswith("id:"):
                    numbers.append(int(line.partition(":")[2]))
                if line == "event: closed" or len(numbers) == most:
                    return numbers
        return numbers

    first = read(0, 2)
    rest = read(first[-1], 10_000)
    assert first + rest == list(range(1, len(first + rest) + 1))
    assert read(len(first + rest), 10) == []
