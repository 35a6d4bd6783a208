"""A researcher tries a study as a participant: marked on every page, counted nowhere, and deleted on request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sotopia_studio.store import studies, tables
from sqlalchemy import func, select

from tests.sotopia_studio.server import Studio
from tests.sotopia_studio.test_studies import PLAY, consented, left, my_turn, opened, run
from tests.sotopia_studio.test_study_builder import begun, fields_of

STUDY = {**PLAY, "interview": [{"name": "why", "text": "What did you try?", "required": False}]}


def assert_marked(page: httpx.Response) -> httpx.Response:
    assert page.status_code == 200, page.text
    assert "Nothing here counts" in page.text, page.url
    return page


async def rows(studio: Studio) -> dict[str, int]:
    """The number of rows of each table that a trial fills."""
    filled = (
        "study",
        "participant",
        "assignment",
        "episode",
        "event",
        "document",
        "seat",
        "submission",
        "session",
        "tag",
    )
    async with studio.database.read() as connection:
        counts = [await connection.execute(select(func.count()).select_from(getattr(tables, name))) for name in filled]
    return {name: count.scalar_one() for name, count in zip(filled, counts, strict=True)}


async def results(browser: httpx.AsyncClient) -> dict[str, Any]:
    study = (await browser.get("/api/v1/studies/talks")).json()
    people = (await browser.get("/api/v1/studies/talks/participants")).json()
    export = (await browser.get("/api/v1/studies/talks/export.csv")).text
    return {"progress": study["progress"], "people": people, "export": export}


def test_a_trial_is_the_whole_study_and_leaves_nothing(url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await opened(studio, STUDY)
        before, nothing = await results(browser), await rows(studio)
        page = assert_marked(await browser.post("/studies/talks/try"))
        assert "I agree" in page.text
        page = assert_marked(await browser.post("/study/consent", data={"consent": "1"}))
        assert "Read who you are." in page.text
        await browser.post("/study/begin")
        seat = assert_marked(await my_turn(browser))
        assert "/seat/" in str(seat.url)
        page = assert_marked(await left(browser))
        assert "What did you try?" in page.text
        assignment = fields_hidden(page.text)
        page = assert_marked(await browser.post("/study/interview", data={"assignment": assignment}))
        page = assert_marked(await browser.post("/study/questionnaire", data={"natural": "4"}))
        assert "COMPLETED" in page.text
        assert await results(browser) == before
        assert [study["name"] for study in (await browser.get("/api/v1/studies")).json()] == ["talks"]
        assert "trial-" not in (await browser.get("/studies")).text
        page = await browser.post("/study/trial/end")
        assert str(page.url).endswith("/studies/talks")  # still logged in, and back where it began
        assert await rows(studio) == nothing

    run(url, work)


def fields_hidden(page: str) -> str:
    return page.split('name="assignment" value="')[1].split('"')[0]


def test_a_draft_is_tried_before_it_is_opened(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser, page = await begun(studio, kind="play")
        draft = str(page.url)
        assert (await browser.post(draft, data={**fields_of(page.text), "do": "try"})).status_code == 422
        fields = fields_of(page.text, title="Not open yet")
        page = assert_marked(await browser.post(draft, data={**fields, "do": "try"}))
        assert "Not open yet" in page.text
        await consented(browser)
        assert_marked(await my_turn(browser))
        nothing = (await rows(studio))["study"] - 1
        # Another trial replaces this one, in the middle of its conversation.
        assert_marked(await browser.post(draft, data={**fields, "do": "try"}))
        counts = await rows(studio)
        assert (counts["study"], counts["participant"], counts["episode"]) == (nothing + 1, 1, 0)
        page = await browser.post("/study/trial/end")
        assert str(page.url) == draft

    run(sqlite_url, work)


@pytest.mark.parametrize("other", ["program", "second"])
def test_a_study_of_pairs_is_tried_alone(sqlite_url: str, other: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await opened(studio, {**STUDY, "partner": "person"})
        await browser.post("/studies/talks/try")
        page = assert_marked(await consented(browser))
        assert "Nobody else takes part in a trial" in page.text
        page = await browser.post(f"/study/trial/{other}")
        if other == "second":
            link = page.text.split('<code class="address">')[1].split("</code>")[0]
            partner = studio.browser()
            await partner.post(link.removeprefix("http://127.0.0.1:8321"))
            page = assert_marked(await consented(partner))
            assert "/study/trial/end" not in page.text  # which is the researcher's
            assert (await partner.post("/study/trial/end")).status_code == 403
        assert "/seat/" in str((await browser.get("/study")).url)
        assert_marked(await my_turn(browser))
        async with studio.database.read() as connection:
            row = await studies.by_name(connection, "talks")
            assert await studies.progress(connection, row.id) == {"open": 2}

    run(sqlite_url, work)


def test_a_researcher_without_a_trial_is_nobodys_participant(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await opened(studio, STUDY)
        assert (await browser.get("/study")).status_code == 403
        assert (await browser.post("/study/trial/program")).status_code == 404

    run(sqlite_url, work)


def test_conversations_of_a_trial_are_listed_on_request_and_never_exported(url: str) -> None:
    async def work(studio: Studio) -> None:
        browser = await opened(studio, STUDY)
        await browser.post("/studies/talks/try")
        await consented(browser)
        await left(browser)
        await browser.get("/study")
        listed = {trials: (await browser.get("/api/v1/episodes", params=trials)).json() for trials in (ALL, OWN)}
        assert [len(page["items"]) for page in listed.values()] == [page["total"] for page in listed.values()] == [1, 0]
        (row,) = listed[ALL]["items"]
        assert row["trial"]
        assert row["id"] not in (await browser.get("/episodes")).text
        page = await browser.get("/episodes", params=ALL)
        assert f"/episodes/{row['id']}" in page.text
        assert ">trial</span>" in page.text
        for export in ("export.jsonl", "export.csv"):
            assert row["task"] not in (await browser.get(f"/api/v1/episodes/{export}", params=ALL)).text
        for column in ("tag", "policy", "status"):
            assert (await browser.get(f"/api/v1/episode_values/{column}")).json() == {"values": {}}
        tag = row["tags"][0]
        assert (await browser.get("/api/v1/compare", params={"tag": tag})).status_code == 422
        assert (await browser.get(f"/api/s4/episodes/tag/{tag}")).status_code == 404

    run(url, work)


ALL, OWN = (("trials", "true"),), ()
