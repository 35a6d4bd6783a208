"""Notes in studies: people write them in a form, and read them in the next conversation with the same partner."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from sotopia_env.foundation.errors import InvalidValueError, Where
from sotopia_env.people.studies.interviews import OWN_NOTES
from sotopia_env.people.studies.settings import study_of
from sotopia_env.world.episode import read_episode
from tests.errors import raises
from tests.sotopia_studio.server import Studio, hidden
from tests.sotopia_studio.test_studies import PLAY, consented, joined, left, my_turn, opened, run

SERIES = {**PLAY, "n": 2, "seats": "first", "per_person": 2, "carry": "notes:60", "questionnaire": []}
BEFORE = "Your notes from before:"


async def noted(browser: httpx.AsyncClient, page: httpx.Response, text: str) -> httpx.Response:
    assert "next conversation with the same partner" in page.text
    return await browser.post("/study/interview", data={"assignment": hidden(page.text, "assignment"), OWN_NOTES: text})


async def begun(browser: httpx.AsyncClient) -> None:
    """Waits for the next conversation, which begins when the last one is recorded, with the notes of the other side."""
    while "/seat/" not in str((page := await browser.get("/study")).url):
        assert "Looking for your partner" in page.text
        await asyncio.sleep(0.05)


def test_a_person_reads_the_own_notes_with_the_same_policy_and_no_others(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await opened(studio, {**SERIES, "repeats": 2})
        first, other = await joined(studio, "talks", "p-1"), await joined(studio, "talks", "p-2")
        await consented(first)
        page = await my_turn(first)
        assert BEFORE not in page.text
        page = await noted(first, await left(first), "Gave in <late>.\n" + "word " * 40)
        await begun(first)
        page = await my_turn(first)
        assert f"<strong>{BEFORE}</strong> Gave in" in page.text
        shown = page.text.partition(BEFORE)[2].partition("</p>")[0]
        assert "<late>" not in shown
        assert shown.rstrip().endswith("word")
        assert len(shown) < 110  # 60 characters, escaped, and the tag
        assert "With " not in shown  # the policy's notes
        # Another person with the same policy begins anew.
        await consented(other)
        page = await my_turn(other)
        assert "/seat/" in str(page.url)
        assert BEFORE not in page.text
        # An empty form keeps the earlier notes, and the last conversation needs none.
        assert "COMPLETED" in (await noted(first, await left(first), "")).text

    run(sqlite_url, work)


def test_a_pair_of_people_keep_their_notes_apart(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await opened(studio, {**SERIES, "partner": "person", "seats": "both"})
        first, second = await joined(studio, "talks"), await joined(studio, "talks")
        await consented(first)
        await consented(second)
        page = await left(first)
        await noted(first, page, "She was kind.")
        await noted(second, await my_turn(second), "He left early.")
        await first.get("/study")
        await second.get("/study")
        pages = [await first.get("/study"), await second.get("/study")]
        assert all("/seat/" in str(page.url) for page in pages)
        assert ["She was kind." in page.text for page in pages] == [True, False]
        assert ["He left early." in page.text for page in pages] == [False, True]

    run(sqlite_url, work)


def test_the_record_of_the_next_conversation_has_the_notes_of_both_sides(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await opened(studio, SERIES)
        browser = await joined(studio, "talks", "p-1")
        await consented(browser)
        await noted(browser, await left(browser), "Ask for more.")
        await begun(browser)
        await noted(browser, await left(browser), "Enough.")
        while len(lines := (await researcher.get("/api/v1/episodes/export.jsonl")).text.splitlines()) < 2:
            await asyncio.sleep(0.05)  # a worker writes the record of a conversation that has ended
        played = sorted((read_episode(line, Where()) for line in lines), key=lambda episode: len(episode.task.notes))
        assert [episode.task.notes.get("agent_0") for episode in played] == [None, "Ask for more."]
        assert played[1].task.notes["agent_1"] == played[0].notes["agent_1"]
        assert played[0].notes["agent_1"].startswith("With ")
        assert all(episode.rules.carry == 60 for episode in played)

    run(sqlite_url, work)


@pytest.mark.parametrize("carry", ["diary", "notes:0", "notes:x"])
def test_another_value_is_refused(carry: str) -> None:
    with raises(InvalidValueError, field="carry"):
        study_of({**SERIES, "carry": carry})
