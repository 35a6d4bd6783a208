"""A study that is changed while people are in it: what may not change is said; who has begun goes on as they began."""

from __future__ import annotations

from typing import Any

import httpx
from sotopia_studio.store import studies

from tests.sotopia_studio.server import Studio
from tests.sotopia_studio.test_studies import PLAY, consented, joined, left, opened, run
from tests.sotopia_studio.test_study_builder import fields_of

STUDY = {**PLAY, "seats": "first", "repeats": 2}


async def progress(studio: Studio, name: str = "talks") -> dict[str, int]:
    async with studio.database.read() as connection:
        return await studies.progress(connection, (await studies.by_name(connection, name)).id)


async def edited(browser: httpx.AsyncClient, **changes: str) -> tuple[httpx.Response, dict[str, Any]]:
    page = await browser.post("/studies/talks/edit")
    return page, fields_of(page.text, **changes)


def test_who_has_begun_keeps_what_they_began_with(url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await opened(studio, STUDY)
        first = await joined(studio, "talks", "first")
        await consented(first)
        page, fields = await edited(browser, questionnaire__0__text="How lively?", repeats="3", per_person="2")
        assert "1 person has begun" in page.text
        kept = (await browser.post(f"{page.url}/keep", data=fields)).text
        assert "Questions at the end" in kept.split("Changes:")[1]
        saved = await browser.post(page.url, data={**fields, "do": "open"})
        assert str(saved.url).endswith("/studies/talks"), saved.text
        assert await progress(studio) == {"open": 2, "leased": 1}
        last = await left(first)
        assert "How natural?" in last.text  # and one conversation, as there was when this person began
        assert "COMPLETED" in (await first.post("/study/questionnaire", data={"natural": "5"})).text
        second = await joined(studio, "talks", "second")
        await consented(second)
        await left(second)
        assert "How lively?" in (await left(second)).text
        page, fields = await edited(browser, repeats="1")  # fewer than have been held
        await browser.post(page.url, data={**fields, "do": "open"})
        assert await progress(studio) == {"done": 3}

    run(url, work)


def test_what_may_not_change_is_said_and_refused(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await opened(studio, STUDY)
        page, fields = await edited(browser, partner="conceder", name="other")
        before = await browser.post(page.url, data={**fields, "do": "open"})
        assert before.status_code == 422  # nobody has begun, but the address has been given out
        assert 'id="e-name"' in before.text
        assert 'id="e-partner"' not in before.text
        await consented(await joined(studio, "talks", "first"))
        fields = fields_of(before.text, name="talks")
        refused = await browser.post(page.url, data={**fields, "do": "open"})
        assert refused.status_code == 422
        assert 'id="e-partner"' in refused.text
        assert fields_of(refused.text)["partner"] == ["conceder"]
        assert (await browser.get("/api/v1/studies/talks")).json()["settings"]["partner"] == "boulware"

    run(sqlite_url, work)


def test_before_anybody_has_begun_all_may_change(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await opened(studio, STUDY)
        page, fields = await edited(browser, partner="person")
        assert "Nobody has begun" in page.text
        await browser.post(page.url, data={**fields, "do": "open"})
        assert (await browser.get("/api/v1/studies/talks")).json()["settings"]["partner"] == "person"
        assert await progress(studio) == {"open": 4}

    run(sqlite_url, work)


def test_two_changes_at_once_lose_nothing(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await opened(studio, STUDY)
        page, fields = await edited(browser, title="One")
        other, others = await edited(browser, title="Other")
        await browser.post(page.url, data={**fields, "do": "open"})
        stale = await browser.post(other.url, data={**others, "do": "open"})
        assert "changed since this draft began" in stale.text
        assert fields_of((await browser.get(other.url)).text)["title"] == ["Other"]
        assert (await browser.get("/api/v1/studies/talks")).json()["settings"]["title"] == "One"

    run(sqlite_url, work)
