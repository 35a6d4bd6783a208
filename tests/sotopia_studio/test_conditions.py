"""Conditions of a study: people or conversations are assigned to them evenly, and what a condition says holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from sotopia_studio import live
from sotopia_studio.store import studies
from sotopia_studio.studies import play
from sotopia_studio.studies.conditions import conditions, item_parts, of_item

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import parse_json
from sotopia_env.people.studies.settings import PlayStudy, study_of
from tests.sotopia_studio.server import Studio
from tests.sotopia_studio.test_studies import PLAY, consented, joined, left, opened, run


def factor(varies: str, *values: object, name: str = "") -> dict[str, Any]:
    levels = [{"name": f"level-{number}", "value": value} for number, value in enumerate(values)]
    return {"name": name or varies, "varies": varies, "levels": levels}


def study(**changes: Any) -> PlayStudy:
    value = study_of({**PLAY, "questionnaire": [], **changes})
    assert isinstance(value, PlayStudy)
    return value


def test_every_combination_has_the_same_conversations() -> None:
    crossed = study(
        n=2, repeats=3, seats="both", factors=[factor("partner", "boulware", "conceder"), factor("max_turns", 4, "8")]
    )
    assert [(c.study.partner, c.study.max_turns) for c in conditions(crossed)] == [
        ("boulware", 4), ("boulware", 8), ("conceder", 4), ("conceder", 8),
    ]  # fmt: skip
    items = play.plan(crossed)
    assert len(items) == len(set(items)) == 2 * 3 * 2 * 4
    per = Counter((of_item(crossed, item).number, item_parts(item)[0], seat) for item, seat in items)
    assert set(per.values()) == {3}


def test_a_study_without_factors_is_planned_as_before() -> None:
    plain = study(n=1, repeats=2, seats="first")
    assert play.plan(plain) == [("[0,0,0]", 0), ("[0,1,0]", 0)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"factors": [factor("partner", "boulware")]}, "factors.0.levels"),
        ({"factors": [factor("max_turns", 4, "many")]}, "factors.0.levels.1.value"),
        ({"factors": [factor("partner", "a", "b", name="x"), factor("max_turns", 1, 2, name="x")]}, "factors.1.name"),
        ({"factors": [factor("partner", "a", "b"), factor("partner", "c", "d", name="x")]}, "factors.1.varies"),
        ({"factors": [factor("instructions", "A", "B")], "assignment": "conversations"}, "assignment"),
        ({"factors": [{"name": "x", "varies": "seed", "levels": []}]}, "factors.0.varies"),
    ],
)
def test_a_wrong_factor_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        study(**change)
    assert caught.value.field == field


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
