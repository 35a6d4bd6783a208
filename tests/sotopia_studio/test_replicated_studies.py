"""Replications as studies: what the command writes is imported and opened, and what people did is read beside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sotopia_env.people.replications import NAMES, beside_people, read_replication
from sotopia_env.people.studies.files import to_text
from sotopia_env.storage.directory import read_run
from tests.sotopia_studio.server import Studio
from tests.sotopia_studio.test_studies import consented, joined, my_turn, run, say


@pytest.mark.parametrize("name", NAMES)
def test_a_written_study_is_imported_and_opened(sqlite_url: str, name: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await studio.researcher()
        study = read_replication(name).study(name).model_copy(update={"n": 2})
        page = await researcher.post("/studies/new", data={"text": to_text(study), "then": "open"})
        assert "0 of" in page.text
        await joined(studio, name)

    run(sqlite_url, work)


def test_a_person_plays_and_is_shown_beside_the_people_of_the_source(sqlite_url: str, tmp_path: Path) -> None:
    plan = read_replication("ultimatum")
    study = plan.study("ultimatum", "reciprocator").model_copy(update={"n": 1, "seats": "first"})

    async def work(studio: Studio) -> None:
        researcher = await studio.researcher()
        await researcher.post("/studies/new", data={"text": to_text(study), "then": "open"})
        browser = await joined(studio, "ultimatum", "panel-1")
        await consented(browser)
        page = await my_turn(browser)
        option = re.search(r'name="move" value="(\d+)"[^>]*> <span>[^<]*offer 30 %', page.text)
        assert option, page.text
        await say(browser, page, move=option[1])
        await my_turn(browser)
        export = await researcher.get("/api/v1/episodes/export.jsonl")
        (tmp_path / "people.jsonl").write_text(export.text, encoding="utf-8")

    run(sqlite_url, work)
    rows = beside_people("ultimatum", plan, read_run(tmp_path / "people.jsonl")).sheets[0].records()
    # A person made the offer and a script answered: columns of their own, apart from the script's play with itself.
    assert [rows[0]["human with reciprocator_mean"], rows[0]["reciprocator with human_mean"]] == [0.3, None]
    assert rows[1]["reciprocator with human_n"] == 1
