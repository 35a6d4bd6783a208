"""A studio in this process, with a worker and a real browser."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright
from sotopia_studio import auth, live
from sotopia_studio.app import create_app
from sotopia_studio.entrance.connections import server_config
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import studies
from sotopia_studio.store.engine import Database
from sotopia_studio.store.event_records import LiveSpec
from sotopia_studio.store.migrations import upgrade
from sotopia_studio.worker import Worker

from sotopia_env import naming
from sotopia_env.world import Action, Rules, Task
from tests.sotopia_studio.conftest import act, free_port

T = TypeVar("T")
PATIENCE = 25_000
"""Milliseconds that a browser waits: machines that test are busy."""
expect.set_options(timeout=PATIENCE)


@dataclass
class Studio:
    """A running studio: its address, its database in the server's loop, and the cookie of an administrator."""

    address: str
    database: Database
    loop: asyncio.AbstractEventLoop
    cookie: str
    browser: Browser
    problems: list[str] = field(default_factory=list)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def begin(self, **changes: Any) -> str:
        """Begins a live episode; ``agent_0`` is a person's seat, the administrator's."""
        task = changes.pop("task", bargaining())
        policies = changes.pop("policies", {"agent_0": "human", "agent_1": "boulware"})
        people = {agent: "admin" for agent, policy in policies.items() if policy == "human"} | changes.pop("people", {})
        spec = LiveSpec(task=task, rules=changes.pop("rules", Rules(max_turns=8)), policies=policies, **changes)

        async def work() -> str:
            async with self.database.write() as connection:
                return await live.begin(connection, spec, owner="admin", participants=people)

        return self.do(work())

    def act(self, episode: str, action: Action, turn: int) -> None:
        self.do(act(self.database, episode, "agent_0", action, turn=turn, key=f"{episode}-{turn}"))

    def wait(self, episode: str, *statuses: str, turns: int = 0) -> None:
        async def row() -> Any:
            async with self.database.read() as connection:
                return await live.LiveEpisode.load(connection, episode)

        for _ in range(4800):
            state = self.do(row())
            if state.status in statuses and len(state.table.turns) >= turns:
                return
            time.sleep(0.05)
        raise AssertionError(f"{state.status} after {len(state.table.turns)} turns")

    def person(self, width: int = 1280, *, here: bool = True) -> tuple[str, Page]:
        """The id of a person who is invited to a seat, and their browser; they have come unless ``here`` is false."""

        async def work() -> tuple[str, str]:
            async with self.database.write() as connection:
                identity = await studies.add_participant(connection, None)
                if here:
                    await studies.change_participant(connection, identity, state="active")
                return identity, await auth.open_session(connection, identity, "participant")

        identity, cookie = self.do(work())
        page = self.guest(width)
        page.context.add_cookies([{"name": "studio", "value": cookie, "url": self.address}])
        return identity, page

    def page(self, width: int = 1280) -> Page:
        """A page of the administrator."""
        page = self.guest(width)
        page.context.add_cookies([{"name": "studio", "value": self.cookie, "url": self.address}])
        return page

    def guest(self, width: int = 1280) -> Page:
        """A page in a browser without a login."""
        context = self.browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        page = context.new_page()
        page.on("console", lambda message: self.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.set_default_timeout(PATIENCE)
        return page

    def check(self, page: Page) -> None:
        """Nothing serious for people with assistive technology, light or dark; nothing too wide; no errors."""
        violations = Axe().run(page).response["violations"]
        page.emulate_media(color_scheme="dark")
        violations += Axe().run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
        page.emulate_media(color_scheme="light")
        serious = [
            (item["id"], item["nodes"][0]["any"], item["nodes"][0]["html"])
            for item in violations
            if item["impact"] in ("serious", "critical")
        ]
        assert not serious, (page.url, serious)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert page.viewport_size is not None
        assert width <= page.viewport_size["width"], page.url
        assert not self.problems, (page.url, self.problems)


def bargaining() -> Task:
    return next(iter(naming.task_set("bargaining", 1, 0, "medium")))


@contextmanager
def running(folder: Path, **changes: Any) -> Iterator[Studio]:
    """Serves a studio with its data in ``folder``."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    port = free_port()
    settings = ServiceSettings(database=f"sqlite:///{folder}/studio.db", data=folder, **changes)
    loop, ready, holder = asyncio.new_event_loop(), threading.Event(), {}
    server = uvicorn.Server(server_config(create_app(settings), settings, port=port))

    async def serve() -> None:
        database = Database(settings.database)
        await upgrade(database)
        async with database.write() as connection:
            holder["cookie"] = await auth.open_session(connection, "admin", "admin")
        holder["database"] = database
        worker = Worker(settings, database)
        working, serving = asyncio.create_task(worker.run()), asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.05)
        ready.set()
        await serving
        worker.stop()
        await working
        await database.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable)
            yield Studio(f"http://127.0.0.1:{port}", holder["database"], loop, holder["cookie"], browser)
            browser.close()
    finally:  # also after an error, or the process would wait for the thread for ever
        server.should_exit = True
        thread.join(20)
