"""The Python client and the page about the API, on a real server; the API against its own description."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sotopia_studio.client import AsyncStudio, Studio, StudioError

from sotopia_env import naming, tasks
from sotopia_env.world import Character
from tests.sotopia_studio.conftest import create_tables
from tests.sotopia_studio.serving import serving
from tests.test_docs import ROOT, blocks


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("studio")
    url = f"sqlite:///{folder}/studio.db"
    asyncio.run(create_tables(url))
    with serving(url, folder, live_episodes=10_000) as address:
        yield address


def test_the_blocks_of_the_page_about_the_api_run(
    server: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STUDIO", server[0])
    monkeypatch.setenv("STUDIO_TOKEN", server[1])
    page = (ROOT / "docs" / "studio-api.md").read_text(encoding="utf-8")
    for block in blocks(page, "python"):
        exec(compile(block.code, "docs/studio-api.md", "exec"), {"__name__": "page"})
    output = capsys.readouterr().out
    assert "1 began" in output
    assert "409" in output
    assert "done 36 of 36 episodes" in output


def test_the_client_lists_uploads_and_raises_the_studios_errors(server: tuple[str, str]) -> None:
    with Studio(*server) as studio:
        people = tasks.starter_cast().characters[:3]
        ids = {studio.add(character, "cast") for character in people}
        listed = [item["id"] for item in studio.pages("/agents", tag="cast", limit=1)]
        assert set(listed) == ids
        assert len(listed) == 3
        task = next(iter(naming.task_set("bargaining", 1, 0, "medium")))
        (episode,) = studio.simulate(studio.add(task), ["boulware", "conceder"])
        record = studio.wait_for(episode)
        (copy,) = studio.upload(record)
        assert studio.episode(copy) == record
        numbers = [number for number, _, _ in studio.events(episode)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert [number for number, _, _ in studio.events(episode, after=numbers[-2])] == numbers[-1:]
        with pytest.raises(StudioError) as caught:
            studio.simulate(task, ["boulwar"])
        assert (caught.value.status, caught.value.problem["nearest"]) == (422, "boulware")
        with pytest.raises(StudioError) as caught:
            studio.episode("unknown")
        assert caught.value.status == 404
        assert isinstance(people[0], Character)


def test_both_clients_have_the_same_methods_with_the_same_types() -> None:
    signatures = [
        {name: inspect.signature(call) for name, call in vars(client).items() if not name.startswith("_")}
        for client in (Studio, AsyncStudio)
    ]
    assert signatures[0] == signatures[1]
    assert "wait_for" in signatures[0]


def test_the_api_answers_as_it_is_described(server: tuple[str, str], tmp_path: Path) -> None:
    address, token = server
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance"
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/api/openapi.json"]
    command += ["--header", f"Authorization: Bearer {token}", "--checks", checks, "--seed", "1"]
    command += ["--max-examples", "2", "--phases", "examples,fuzzing", "--generation-database", "none"]
    # Streams do not end by themselves; uploads are JSON Lines, which it cannot write.
    command += ["--exclude-path-regex", "/events$", "--exclude-operation-id", "upload_api_v1_episodes_post"]
    command += ["--suppress-health-check", "all", "--no-color", "--request-timeout", "20", "--max-redirects", "0"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-1000:]
