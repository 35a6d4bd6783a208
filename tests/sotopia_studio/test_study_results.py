"""Results of studies: the tables and their codebook, and what people who stop read."""

from __future__ import annotations

import asyncio
import csv
import io
from pathlib import Path

import httpx
import pytest
from sotopia_studio.studies.agreement import annotation_set

from sotopia_env.people.sheet import dimension_guides
from sotopia_env.people.studies.settings import study_of
from tests.sotopia_studio.server import Studio, hidden
from tests.sotopia_studio.test_studies import (
    ANNOTATE,
    PLAY,
    TALK,
    consented,
    filled,
    joined,
    left,
    opened,
    recorded,
    run,
)


async def table(researcher: httpx.AsyncClient, study: str, name: str) -> list[dict[str, str]]:
    answer = await researcher.get(f"/api/v1/studies/{study}/tables/{name}.csv")
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def check_codebook(tables: dict[str, list[dict[str, str]]], codebook: list[dict[str, str]]) -> None:
    """Every column and every variable has its line, with a meaning and a type."""
    lines = {(line["table"], line["column"]): line for line in codebook}
    assert len(lines) == len(codebook)
    for name, rows in tables.items():
        columns = {*rows[0], *(f"question = {row['question']}" for row in rows if name == "long")}
        assert {(name, column) for column in columns} <= {*lines}
    assert all(line["meaning"] and line["type"] for line in codebook)


def test_the_tables_of_a_conversation_hold_outcome_seconds_and_answers(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        levels = [{"name": "hard", "value": "boulware"}, {"name": "easy", "value": "conceder"}]
        factors = [{"name": "partner", "varies": "partner", "levels": levels}]
        researcher = await opened(studio, {**PLAY, "seats": "first", "interview": TALK, "factors": factors})
        browser = await joined(studio, "talks", "panel-7")
        await consented(browser)
        page = await left(browser)
        await browser.post(
            "/study/interview", data={"assignment": hidden(page.text, "assignment"), "agent_1.interview.trust": "3"}
        )
        await browser.post("/study/questionnaire", data={"natural": "6"})
        while not (await table(researcher, "talks", "wide"))[0]["partners"]:
            await asyncio.sleep(0.05)  # a worker writes the record of a conversation that has ended
        tables = {name: await table(researcher, "talks", name) for name in ("long", "wide", "turns")}
        (row,) = tables["wide"]
        assert (row["external"], row["agent"], row["outcome.stop"], row["state"]) == (
            "panel-7", "agent_0", "left", "done",
        )  # fmt: skip
        assert (row["outcome.agreed"], row["outcome.worth"], row["partners"]) == ("False", "0.0", "boulware")
        assert (row["agent_1.interview.trust"], row["questionnaire.natural"]) == ("3", "6")
        assert (row["condition"], row["factor.partner"]) == ("partner: hard", "hard")
        assert float(row["turn_1.seconds"]) == float(tables["turns"][0]["seconds"]) >= 0
        long = {(line["agent"], line["turn"], line["question"]): line["answer"] for line in tables["long"]}
        assert long["", "1", "turn.seconds"] == row["turn_1.seconds"]
        assert long["agent_1", "", "interview.trust"] == "3"
        assert long["", "", "natural"] == "6"
        assert tables["turns"][0]["participant"] == row["participant"]
        assert tables["turns"][0]["words"] == "Well."
        check_codebook(tables, await table(researcher, "talks", "codebook"))

    run(sqlite_url, work)


def test_the_tables_of_annotations_and_checks(sqlite_url: str, tmp_path: Path) -> None:
    async def work(studio: Studio) -> None:
        run_id = await recorded(studio, tmp_path / "run", n=1)
        settings = {**ANNOTATE, "runs": [run_id], "overlap": 1}
        settings["custom"] = [{"name": "warmth", "low": 0, "high": 4, "instruction": "How warm was it?"}]
        researcher = await opened(studio, {**settings, "dimensions": ["goal", "warmth"]})
        browser = await joined(studio, "scores")
        page = await consented(browser)
        await browser.post("/study/rating", data=filled(page, {"goal": 6, "warmth": 3}))
        tables = {name: await table(researcher, "scores", name) for name in ("long", "wide")}
        (row,) = tables["wide"]
        assert (row["agent_0.goal"], row["agent_1.warmth"]) == ("6", "3")
        codebook = await table(researcher, "scores", "codebook")
        check_codebook(tables, codebook)
        assert {"0 to 4"} == {line["unit_or_range"] for line in codebook if line["column"].endswith("warmth")}

    run(sqlite_url, work)


@pytest.mark.parametrize("done", [0, 1])
def test_an_annotator_who_stops_reads_that_they_stopped(sqlite_url: str, tmp_path: Path, done: int) -> None:
    async def work(studio: Studio) -> None:
        run_id = await recorded(studio, tmp_path / "run")
        await opened(studio, {**ANNOTATE, "runs": [run_id]})
        browser = await joined(studio, "scores")
        page = await consented(browser)
        if done:
            await browser.post("/study/rating", data=filled(page, {"goal": 6, "believability": 7}))
        end = (await browser.post("/study/leave")).text
        assert "You have stopped" in end
        assert "Nobody came" not in end
        assert ("What you sent is stored: 1 conversation." in end) is bool(done)
        assert ("COMPLETED" if done else "STOPPED") in end
        other = await joined(studio, "scores")
        assert "Number" in (await consented(other)).text  # the item was given back

    run(sqlite_url, work)


def test_the_key_of_annotations_has_the_dimensions_of_the_episodes(sqlite_url: str, tmp_path: Path) -> None:
    """Tasks bring dimensions of their own, which annotators score: the sheet has a column for them."""

    async def work(studio: Studio) -> None:
        from sotopia_studio.store import episodes, runs, studies

        from tests.sotopia_env.factories import scenario
        from tests.sotopia_env.factories import task as plain_task
        from tests.sotopia_env.people.annotation_doubles import CHARM, episode

        record = episode(task=plain_task(scenario=scenario(2, dimensions=(CHARM,))))
        async with studio.database.write() as connection:
            run_id = await runs.add(connection, "{}", planned=1, status="done")
            await episodes.add_recorded(connection, run_id, [(record, "")], 0.0)
        settings = {**ANNOTATE, "runs": [run_id], "dimensions": ["goal", "charm"]}
        researcher = await opened(studio, settings)
        browser = await joined(studio, "scores")
        await browser.post("/study/rating", data=filled(await consented(browser), {"goal": 6, "charm": 2}))
        async with studio.database.read() as connection:
            row = await studies.by_name(connection, "scores")
            answers, _ = await annotation_set(connection, study_of(settings), row)  # type: ignore[arg-type]
        assert answers.key.scales["charm"] == (CHARM.low, CHARM.high)
        sheet = (await researcher.get("/api/v1/studies/scores/sheet.csv")).text
        lines = list(csv.DictReader(io.StringIO(sheet)))
        assert {line["charm"] for line in lines} == {"2"}
        assert set(lines[0]) > {*dimension_guides()}

    run(sqlite_url, work)
