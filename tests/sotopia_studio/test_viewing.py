"""``sotopia view``: a run as one file, and as read-only pages."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from sotopia_env.storage import read_run
from tests.sotopia_studio.conftest import free_port

COMMAND = [sys.executable, "-m", "sotopia_env.cli.app", "view"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view") / "run"
    options = ["--policy", "boulware,conceder", "--tasks", "bargaining", "-n", "2", "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "sotopia_env.cli.app", "rollout", *options], check=True, capture_output=True)
    return folder


def test_one_file_has_every_episode_and_needs_no_network(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    subprocess.run([*COMMAND, str(run), "--out", str(out)], check=True, capture_output=True)
    text = out.read_text(encoding="utf-8")
    assert text.count('<details class="card episode">') == len(list(read_run(run)))
    assert not re.search(r'(src|href)="(?!#)', text)


def test_pages_of_a_run_cannot_change_anything(run: Path) -> None:
    port = free_port()
    process = subprocess.Popen([*COMMAND, str(run), "--port", str(port)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"accept": "text/html"}) as browser:
            for _ in range(4800):
                try:
                    browser.get("/login")
                    break
                except httpx.ConnectError:
                    time.sleep(0.1)
            origin = {"origin": f"http://127.0.0.1:{port}"}
            assert browser.post(address, headers=origin, follow_redirects=True).status_code == 200
            page = browser.get("/episodes")
            link = re.search(r'href="(/episodes/[0-9a-f]+)"', page.text)
            assert link is not None
            assert browser.get(link[1]).status_code == 200
            assert browser.post(f"{link[1]}/star", headers=origin).status_code == 403
    finally:
        process.terminate()
        process.wait(20)
