"""Conditions of a study: people or conversations are assigned to them evenly, and what a condition says holds."""

from __future__ import annotations

from collections import Counter

from sotopia_studio import live
from sotopia_studio.store import studies

from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.design import item_parts, of_item
from sotopia_env.people.studies.settings import PlayStudy, study_of
from tests.sotopia_env.people.test_study_design import factor
from tests.sotopia_studio.server import Studio
from tests.sotopia_studio.test_studies import PLAY, consented, joined, left, opened, run


async def conversations(studio: Studio, name: str) -> dict[str, list[tuple[int, int]]]:
    """The conversations of each person as pairs of condition and task, in order."""
    async with studio.database.read() as connection:
        row = await studies.by_name(connection, name)
        settings = study_of(parse_json(row.settings, "study"))
        assert isinstance(settings, PlayStudy)
        people: dict[str, list[tuple[int, int]]] = {}
        for item in await studies.assignments(connection, row.id, "done", "leased"):
            condition = of_item(settings, item.item)
            people.setdefault(item.participant, []).append((condition.number, item_parts(item.item)[0]))
            answers = parse_json(item.answers, "assignment")
            episode = await live.LiveEpisode.load(connection, answers["episode"])
            assert condition.study.partner in episode.spec.policies.values()
    return people


def test_people_stay_in_their_condition_and_read_its_instructions(sqlite_url: str) -> None:
    factors = [factor("instructions", "Be kind.", "Be firm."), factor("partner", "boulware", "conceder")]
    settings = {**PLAY, "questionnaire": [], "n": 2, "seats": "first", "per_person": 2, "factors": factors}

    async def work(studio: Studio) -> None:
        await opened(studio, settings)
        texts = Counter()
        for number in range(4):
            browser = await joined(studio, "talks", f"person-{number}")
            page = await browser.post("/study/consent", data={"consent": "1"})
            texts["Be kind." in page.text, "Be firm." in page.text] += 1
            page = await browser.post("/study/begin")
            for _ in range(2):
                page = await left(browser)
            assert "COMPLETED" in page.text
        assert texts == {(True, False): 2, (False, True): 2}
        people = await conversations(studio, "talks")
        assert sorted(sorted(held) for held in people.values()) == [[(c, 0), (c, 1)] for c in range(4)]

    run(sqlite_url, work)


def test_conversations_of_a_person_are_in_different_conditions(sqlite_url: str) -> None:
    settings = {**PLAY, "questionnaire": [], "instructions": "", "n": 2, "seats": "first", "per_person": 2}
    settings |= {"factors": [factor("partner", "boulware", "conceder")], "assignment": "conversations"}

    async def work(studio: Studio) -> None:
        await opened(studio, settings)
        for number in range(2):
            browser = await joined(studio, "talks", f"person-{number}")
            await consented(browser)
            for _ in range(2):
                await left(browser)
        people = await conversations(studio, "talks")
        assert len(people) == 2
        for held in people.values():
            assert {condition for condition, _task in held} == {0, 1}
            assert {task for _condition, task in held} == {0, 1}

    run(sqlite_url, work)
