"""A studio as a user starts it, ``sotopia serve`` on a free port, and a real browser."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.sotopia_studio.conftest import free_port

ARGUMENTS = ["--disable-quic", "--no-first-run"]


class Served:
    """``sotopia serve`` with one worker, which can be killed and started again on the same data.

    Attributes:
        address: of the studio.
        login: the one-time address that the command printed.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.login = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "sotopia_env.cli.app", "serve", "--port", str(self.port), *self.options]
        command += ["--database", f"sqlite:///{self.folder}/studio.db", "--set", f"data={self.folder}"]
        log = open(self.folder / "serve.log", "a")  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, cwd=self.folder
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.login = next((word for word in line.split() if "/login/" in word), "")
        for _ in range(4800):
            try:
                urllib.request.urlopen(f"{self.address}/login", timeout=2)
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError((self.folder / "serve.log").read_text())

    def kill(self) -> None:
        """Kills the server and its workers at once, as a power failure does."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ends the server as Ctrl-C does, and makes sure that nothing is left of it."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        finally:
            with suppress(ProcessLookupError):  # nothing is left
                os.killpg(self.process.pid, signal.SIGKILL)


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Served]:
    server = Served(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def chromium() -> Iterator[Any]:
    """A real browser; it is closed before another test runs, since its event loop would be in that test's way."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is not installed; CI installs it")
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def watched(page: Any) -> list[str]:
    """Collects what a page complains about in its console; it must be empty in the end."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return complaints
