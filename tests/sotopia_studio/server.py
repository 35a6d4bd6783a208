"""A server of the studio and its workers in the test's own event loop, and browsers without a screen."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from sotopia_studio import auth
from sotopia_studio.app import create_app
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store.engine import Database
from sotopia_studio.worker import Worker

HERE = "http://127.0.0.1:8321"
OWN = {"origin": HERE, "accept": "text/html"}


@dataclass
class Studio:
    """A running studio."""

    app: object
    database: Database

    def browser(self) -> httpx.AsyncClient:
        """A client with cookies of its own, which follows redirects."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)  # type: ignore[arg-type]
        return httpx.AsyncClient(transport=transport, base_url=HERE, headers=OWN, follow_redirects=True)

    async def researcher(self) -> httpx.AsyncClient:
        """A browser that is logged in."""
        browser = self.browser()
        async with self.database.write() as connection:
            secret = await auth.add_login(connection)
        assert (await browser.post(f"/login/{secret}")).status_code == 200
        return browser


@asynccontextmanager
async def studio(url: str, workers: int = 1, **settings: object) -> AsyncIterator[Studio]:
    options = ServiceSettings(database=url, **settings)  # type: ignore[arg-type]
    app = create_app(options)
    async with app.router.lifespan_context(app):
        database = app.state.services.database
        crew = [Worker(options, database) for _ in range(workers)]
        tasks = [asyncio.create_task(worker.run()) for worker in crew]
        try:
            yield Studio(app, database)
        finally:
            for worker in crew:
                worker.stop()
            await asyncio.gather(*tasks)


def hidden(page: str, name: str) -> str:
    """The value of a hidden field of a page."""
    match = re.search(rf'name="{re.escape(name)}" value="([^"]*)"', page)
    assert match, f"no field {name!r}"
    return html.unescape(match[1])


def simulation_form(page: str) -> dict[str, str]:
    """The fields of the form of a simulation as a browser would send them."""
    form = page.split('action="/simulate" class="card setup"')[1].split("</form>")[0]
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)"[^>]*? value="([^"]*)"', form)}
    fields.pop("forecast", None)
    for name, options in re.findall(r'<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        option = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', options)
        fields[name] = "" if option is None else option[1] or option[2]
    return fields
