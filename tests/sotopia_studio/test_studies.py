"""Studies: people play, annotate and validate, and read only what is for them."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from sotopia_studio.problems import ConflictError
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episodes, runs
from sotopia_studio.studies import opening

from sotopia_env import naming
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.yaml_text import read_yaml
from sotopia_env.people import read_annotations
from sotopia_env.people.sheet import dimension_guides
from sotopia_env.people.studies.builder import words
from sotopia_env.people.studies.files import to_text
from sotopia_env.people.studies.guidance import worked_example
from sotopia_env.people.studies.ratings import annotation_form
from sotopia_env.people.studies.settings import AnnotateStudy, study_of
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from sotopia_env.world import TaskSet
from sotopia_env.world.interview import Interview, Question
from tests.sotopia_env.factories import scenario
from tests.sotopia_env.factories import task as plain_task
from tests.sotopia_env.people.annotation_doubles import CHARM, episode
from tests.sotopia_studio.server import Studio, hidden, studio


def run(url: str, work: Callable[[Studio], Awaitable[None]], **settings: object) -> None:
    async def inside() -> None:
        async with studio(url, **settings) as service:  # type: ignore[arg-type]
            await work(service)

    asyncio.run(inside())


PLAY = {
    "kind": "play",
    "name": "talks",
    "title": "Two talks",
    "instructions": "Read who you are.",
    "tasks": "bargaining",
    "n": 1,
    "partner": "boulware",
    "max_turns": 6,
    "questionnaire": [{"name": "natural", "text": "How natural?", "kind": "scale", "low": 1, "high": 7}],
}


async def opened(studio: Studio, settings: dict[str, object]) -> httpx.AsyncClient:
    researcher = await studio.researcher()
    answer = await researcher.post("/api/v1/studies", json=settings)
    assert answer.status_code == 201, answer.text
    return researcher


async def joined(studio: Studio, name: str, person: str = "") -> httpx.AsyncClient:
    browser = studio.browser()
    page = await browser.post(f"/join/{name}", data={"person": person, "panel_session": "s-1"})
    assert "I agree" in page.text
    return browser


async def consented(browser: httpx.AsyncClient) -> httpx.Response:
    page = await browser.post("/study/consent", data={"consent": "1"})
    return await browser.post("/study/begin") if "Instructions" in page.text else page


async def my_turn(browser: httpx.AsyncClient) -> httpx.Response:
    """The seat's page once it is this person's turn, or the conversation is over."""
    for _ in range(4800):
        page = await browser.get("/study")
        if "/seat/" not in str(page.url) or "It is your turn" in page.text or "is over" in page.text:
            return page
        await asyncio.sleep(0.05)
    raise AssertionError(page.text)


async def say(browser: httpx.AsyncClient, page: httpx.Response, **fields: str) -> httpx.Response:
    form = {name: hidden(page.text, name) for name in ("turn", "key", "opened")}
    return await browser.post(page.url, data={**form, "action_type": "speak", "argument": "Well.", **fields})


def test_a_person_plays_with_a_policy_and_gets_a_code(url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await opened(studio, PLAY)
        browser = await joined(studio, "talks", "panel-7")
        refused = await browser.post("/study/consent", data={})
        assert refused.status_code == 422
        page = await consented(browser)
        for _ in range(6):
            page = await my_turn(browser)
            if "/seat/" not in str(page.url) or "is over" in page.text:
                break
            assert "JSON" not in page.text  # what models are told is not for people
            accept = re.search(r'name="move" value="(\d+)"> <span>accept', page.text)
            await say(browser, page, **({"move": accept[1]} if accept else {}))
        page = await browser.get("/study")
        assert "How natural?" in page.text
        assert (await browser.post("/study/questionnaire", data={"natural": "9"})).status_code == 422
        page = await browser.post("/study/questionnaire", data={"natural": "6"})
        assert "COMPLETED" in page.text
        text = (await researcher.get("/api/v1/studies/talks/export.csv")).text
        answers = list(csv.DictReader(io.StringIO(text)))
        assert [row["answer"] for row in answers if row["question"] == "natural"] == ["6"]
        assert {row["external"] for row in answers} == {"panel-7"}
        assert [row["answer"] for row in answers if row["question"] == "panel_session"] == ["s-1"]
        # A person who returns with the panel's id continues.
        again = studio.browser()
        assert "COMPLETED" in (await again.post("/join/talks", data={"person": "panel-7"})).text

    run(url, work)


async def left(browser: httpx.AsyncClient) -> httpx.Response:
    """The page after a person has left the conversation."""
    await say(browser, await my_turn(browser), action_type="leave")
    return await my_turn(browser) if "/seat/" in str((page := await browser.get("/study")).url) else page


TALK = [
    {"name": "trust", "text": "How far did you trust {partner}?", "kind": "scale", "low": 1, "high": 7},
    {"name": "why", "text": "What did you try?", "required": False},
]


def test_a_person_is_interviewed_after_each_conversation(url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await opened(studio, {**PLAY, "per_person": 2, "interview": TALK})
        browser = await joined(studio, "talks", "panel-7")
        await consented(browser)
        replies = set()
        for trust in ("3", "5"):
            page = await left(browser)
            names = next(iter(naming.task_set("bargaining", 1, 0, "medium"))).names
            assert any(f"How far did you trust {name}?" in page.text for name in names.values())
            about = re.search(r'name="(agent_\d\.interview\.trust)"', page.text)
            assert about
            fields = {"assignment": hidden(page.text, "assignment"), about[1]: trust}
            assert (await browser.post("/study/interview", data={**fields, about[1]: "8"})).status_code == 422
            replies.add((about[1].partition(".")[0], trust))
            page = await browser.post("/study/interview", data=fields)
            assert (await browser.post("/study/interview", data=fields)).status_code == 409
        assert "How natural?" in page.text
        await browser.post("/study/questionnaire", data={"natural": "6"})
        text = (await researcher.get("/api/v1/studies/talks/export.csv")).text
        answers = [row for row in csv.DictReader(io.StringIO(text)) if row["question"] == "interview.trust"]
        assert {(row["agent"], row["answer"]) for row in answers} == replies
        assert len({row["item"] for row in answers}) == 2
        codebook = (await researcher.get("/api/v1/studies/talks/codebook")).json()
        long = {line["column"]: line["unit_or_range"] for line in codebook if line["table"] == "long"}
        assert {*(csv.DictReader(io.StringIO(text)).fieldnames or ())} <= {*long}
        assert long["question = interview.trust"] == "1 to 7"
        assert {"question = natural", "question = interview.why"} <= {*long}

    run(url, work)


def with_questions(folder: Path) -> Path:
    """A file with one task, whose scenario asks about the private information of the second seat."""
    task = next(iter(naming.task_set("bargaining", 1, 0, "medium")))
    question = Question(about=1, text="What does the other have to pay?", answer="a debt", wrong=("rent", "nothing"))
    scenario = task.scenario.model_copy(update={"interview": Interview(template="debt", questions=(question,))})
    TaskSet([task.model_copy(update={"scenario": scenario})]).save(folder / "tasks.json")
    return folder / "tasks.json"


def test_the_questions_of_a_scenario_are_asked_of_the_person(sqlite_url: str, tmp_path: Path) -> None:
    async def work(studio: Studio) -> None:
        file = str(with_questions(tmp_path))
        settings = {**PLAY, "tasks": file, "n": None, "partner": "conceder", "seats": "first"}
        researcher = await opened(studio, {**settings, "scenario_interview": True, "questionnaire": []})
        browser = await joined(studio, "talks")
        await consented(browser)
        page = await left(browser)
        task = next(iter(naming.task_set(file, None, 0, "medium")))
        assert task.scenario.interview is not None
        own = dict.fromkeys(re.findall(r'name="(agent_0\.interview\.goal_\d)"', page.text))
        about = dict.fromkeys(re.findall(r'name="(agent_\d\.interview\.information_\d)"', page.text))
        questions = [item for item in task.scenario.interview.questions if 0 in item.asked_seats(len(task.agents))]
        assert len(own) == len(task.scenario.seats[0].goals)
        assert len(about) == len(questions) > 0
        right = {name: item.answer for name, item in zip(about, questions, strict=True)}
        fields = {"assignment": hidden(page.text, "assignment"), **dict.fromkeys(own, "no"), **right}
        assert "COMPLETED" in (await browser.post("/study/interview", data=fields)).text
        lines = (await researcher.get("/api/v1/studies/talks/export.jsonl")).text.splitlines()
        answers = {(row["agent"], row["question"]): row["answer"] for row in map(json.loads, lines)}
        assert answers["agent_0", "interview.goal_1"] == "no"
        assert set(right.values()) <= {answer for _, answer in answers.items() if isinstance(answer, str)}

    run(sqlite_url, work)


def test_a_conversation_counts_without_its_interview(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await opened(studio, {**PLAY, "seats": "first", "interview": TALK})
        browser = await joined(studio, "talks")
        await consented(browser)
        await left(browser)
        assert (await researcher.get("/api/v1/studies/talks")).json()["progress"] == {"done": 1}

    run(sqlite_url, work)


def test_two_people_meet_anonymously(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await opened(studio, {**PLAY, "partner": "person", "questionnaire": []})
        first, second = await joined(studio, "talks"), await joined(studio, "talks")
        assert "Looking for your partner" in (await consented(first)).text
        page = await consented(second)
        assert "/seat/" in str(page.url)
        pages = [await first.get("/study"), await second.get("/study")]
        acting = ["It is your turn" in page.text for page in pages]
        assert acting == [True, False]
        await say(first, pages[0], argument="Hello <b>you</b>")
        theirs = await my_turn(second)
        assert "Hello &lt;b&gt;you&lt;/b&gt;" in theirs.text
        await say(second, theirs, action_type="leave")
        assert "COMPLETED" in (await first.get("/study")).text
        assert "COMPLETED" in (await second.get("/study")).text

    run(sqlite_url, work)


def test_a_waiting_person_can_leave_with_a_code(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await opened(studio, {**PLAY, "partner": "person"})
        browser = await joined(studio, "talks")
        await consented(browser)
        assert "NOPARTNER" in (await browser.post("/study/leave")).text
        other = await joined(studio, "talks")
        assert "Looking for your partner" in (await consented(other)).text  # the seat was given back

    run(sqlite_url, work)


def test_a_dropout_is_recorded_and_the_seat_is_open_again(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await opened(studio, {**PLAY, "turn_seconds": 0.2, "seats": "first"})
        browser = await joined(studio, "talks")
        await consented(browser)
        for _ in range(4800):
            people = (await researcher.get("/api/v1/studies/talks/participants")).json()
            await researcher.get("/api/v1/studies/talks")
            if people[0]["state"] == "dropped":
                break
            await asyncio.sleep(0.1)
        assert people[0]["state"] == "dropped"
        assert "TIMEOUT" in (await browser.get("/study")).text
        progress = (await researcher.get("/api/v1/studies/talks")).json()["progress"]
        assert progress == {"dropped": 1, "open": 1}

    run(sqlite_url, work)


def test_a_personal_link_is_claimed_once(url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await opened(studio, {**PLAY, "open": False})
        link = (await researcher.post("/api/v1/studies/talks/links/new")).json()[0]
        assert (await studio.browser().get("/join/talks")).status_code == 403
        assert (await studio.browser().get(link)).status_code == 200  # a scanner that follows links
        browser = studio.browser()
        assert "I agree" in (await browser.post(link)).text
        assert (await studio.browser().post(link)).status_code == 404
        moved = studio.browser()
        address = re.search(r"http://[^<]*/p/[^<]*", (await browser.post("/study/device")).text)
        assert address
        assert "I agree" in (await moved.post(address[0])).text
        assert (await moved.get("/")).status_code == 403  # a participant sees the study and nothing else
        assert (await moved.get("/api/v1/studies")).status_code == 403

    run(url, work)


def test_a_closed_study_admits_no_new_people(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        researcher = await opened(studio, PLAY)
        await researcher.post("/api/v1/studies/talks/close")
        assert (await studio.browser().post("/join/talks", data={})).status_code == 409

    run(sqlite_url, work)


async def recorded(studio: Studio, folder: Path, n: int = 2) -> str:
    """A run of scripted episodes in the database; returns its id."""
    tasks = naming.task_set("bargaining", n, 0, "medium")
    plans = plan_episodes(tasks, all_matchups([naming.make_policy("boulware"), naming.make_policy("conceder")], False))
    evaluator = naming.make_evaluator("verified")
    result = await run_episodes(plans[:n], evaluator=evaluator, run_dir=folder, progress=False)
    async with studio.database.write() as connection:
        run_id = await runs.add(connection, "{}", directory=str(folder), planned=n, status="done")
        for episode in result.episodes:
            await episodes.add_recorded(connection, run_id, [(episode, "")], 0.0)
    return run_id


ANNOTATE = {
    "kind": "annotate",
    "name": "scores",
    "title": "Score talks",
    "dimensions": ["goal", "believability"],
    "per_person": 5,
    "min_words": 3,
}


def filled(page: httpx.Response, score: dict[str, int]) -> dict[str, str]:
    """The form of an annotator, filled in."""
    fields = {name: hidden(page.text, name) for name in ("assignment", "opened")}
    for agent in ("agent_0", "agent_1"):
        for dimension, value in score.items():
            fields[f"{agent}.{dimension}"] = str(value)
            fields[f"{agent}.{dimension}.reasoning"] = f"{agent} held out for the price that was wanted."
    return fields


def test_annotators_score_blind_until_every_episode_has_two(url: str, tmp_path: Path) -> None:
    async def work(studio: Studio) -> None:
        run_id = await recorded(studio, tmp_path / "run")
        researcher = await opened(studio, {**ANNOTATE, "runs": [run_id]})
        pages = []
        for person in range(2):
            browser = await joined(studio, "scores", f"reader-{person}")
            page = await consented(browser)
            for _ in range(2):
                pages.append(page.text)
                broken = await browser.post("/study/rating", data=filled(page, {"goal": 6}))
                assert broken.status_code == 422
                assert "Choose a number" in broken.text
                page = await browser.post("/study/rating", data=filled(page, {"goal": 6 + person, "believability": 7}))
            assert "COMPLETED" in page.text
        assert not any(name in page for page in pages for name in ("boulware", "conceder", "verified"))
        third = await joined(studio, "scores")
        assert "COMPLETED" in (await consented(third)).text  # nothing is left to do
        sheet, key = tmp_path / "sheet.csv", tmp_path / "sheet.key.json"
        sheet.write_text((await researcher.get("/api/v1/studies/scores/sheet.csv")).text)
        key.write_text((await researcher.get("/api/v1/studies/scores/sheet.key.json")).text)
        answers = read_annotations(sheet, key)  # as `sotopia judge-agreement` reads it
        assert len(answers.annotations) == 2 * 2 * 2
        assert {annotation.scores["goal"] for annotation in answers.annotations} == {6.0, 7.0}
        report = (await researcher.get("/api/v1/studies/scores/agreement")).json()
        assert report
        rejected = (await researcher.post("/api/v1/studies/scores/annotations/screen")).json()
        progress = (await researcher.get("/api/v1/studies/scores")).json()["progress"]
        assert progress.get("done", 0) + progress["open"] == 4  # what was rejected, as too fast, is to be done again
        assert sum(rejected.values()) == progress.get("rejected", 0)

    run(url, work)


def test_the_annotations_of_few_people_are_of_the_same_episodes(sqlite_url: str, tmp_path: Path) -> None:
    """Four annotations by two people are of two of four episodes, not of four of four."""

    async def work(studio: Studio) -> None:
        from sotopia_studio.store import tables
        from sqlalchemy import select

        run_id = await recorded(studio, tmp_path / "run", n=4)
        await opened(studio, {**ANNOTATE, "runs": [run_id]})
        for _ in range(2):
            browser = await joined(studio, "scores")
            page = await consented(browser)
            for _ in range(2):
                page = await browser.post("/study/rating", data=filled(page, {"goal": 6, "believability": 7}))
        row = tables.assignment
        async with studio.database.read() as connection:
            query = select(row.c.item, row.c.participant).where(row.c.state == "done")
            done = (await connection.execute(query)).all()
        assert len(done) == 4
        assert len({item for item, _ in done}) == 2

    run(sqlite_url, work)


def test_annotators_read_a_finished_annotation_before_they_begin(sqlite_url: str, tmp_path: Path) -> None:
    async def work(studio: Studio) -> None:
        run_id = await recorded(studio, tmp_path / "run")
        await opened(studio, {**ANNOTATE, "runs": [run_id]})
        browser = await joined(studio, "scores")
        page = await browser.post("/study/consent", data={"consent": "1"})
        item = await browser.post("/study/begin")
        for text in (page.text, item.text):  # it can be opened again beside the form
            for name, scores in worked_example().scores.items():
                visible = all(
                    html.escape(score.rationale, quote=False) in text.replace("&#34;", '"') for score in scores
                )
                assert visible is (name in ANNOTATE["dimensions"])

    run(sqlite_url, work)


def test_the_finished_annotation_covers_every_dimension_of_judges() -> None:
    assert set(worked_example().scores) == set(dimension_guides())


def test_an_annotator_far_from_the_gold_is_told_what_to_read_again(sqlite_url: str, tmp_path: Path) -> None:
    async def work(studio: Studio) -> None:
        run_id = await recorded(studio, tmp_path / "run")
        async with studio.database.read() as connection:
            from sotopia_studio.store import tables
            from sqlalchemy import select

            gold = (await connection.execute(select(tables.episode.c.id))).scalars().first()
        scores = {agent: {"goal": 2, "believability": 7} for agent in ("agent_0", "agent_1")}
        settings = {**ANNOTATE, "runs": [run_id], "gold": [{"episode": gold, "scores": scores}]}
        researcher = await opened(studio, settings)
        far = await joined(studio, "scores")
        page = await consented(far)
        assert "Qualification" in page.text
        page = await far.post("/study/rating", data=filled(page, {"goal": 10, "believability": 7}))
        assert "SCREENED" in page.text
        assert "on goal" in page.text
        near = await joined(studio, "scores")
        page = await near.post("/study/rating", data=filled(await consented(near), {"goal": 3, "believability": 7}))
        assert "Number 1" in page.text
        progress = (await researcher.get("/api/v1/studies/scores")).json()["progress"]
        assert progress == {"done": 2, "leased": 1, "open": 1}

    run(sqlite_url, work)


def test_scenarios_are_checked_before_they_are_played(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        settings = {"kind": "validate", "name": "check", "title": "Check", "tasks": "bargaining", "n": 1, "overlap": 1}
        researcher = await opened(studio, settings)
        browser = await joined(studio, "check")
        page = await consented(browser)
        fields = {name: hidden(page.text, name) for name in ("assignment", "opened")}
        for agent in ("agent_0", "agent_1"):
            fields |= {f"{agent}.goal": "valid", f"{agent}.private": "3"}
        page = await browser.post("/study/rating", data={**fields, "plausible": "yes"})
        assert "COMPLETED" in page.text
        lines = (await researcher.get("/api/v1/studies/check/export.jsonl")).text.splitlines()
        answers = {(row["agent"], row["question"]): row["answer"] for row in map(json.loads, lines)}
        assert answers["agent_1", "private"] == 3
        assert answers["", "plausible"] == "yes"

    run(sqlite_url, work)


def test_a_form_that_was_sent_twice_counts_once(sqlite_url: str, tmp_path: Path) -> None:
    async def work(studio: Studio) -> None:
        run_id = await recorded(studio, tmp_path / "run")
        researcher = await opened(studio, {**ANNOTATE, "runs": [run_id]})
        browser = await joined(studio, "scores")
        fields = filled(await consented(browser), {"goal": 6, "believability": 7})
        await browser.post("/study/rating", data=fields)
        assert (await browser.post("/study/rating", data=fields)).status_code == 409
        assert (await researcher.get("/api/v1/studies/scores")).json()["progress"]["done"] == 1

    run(sqlite_url, work)


def test_typed_text_survives_a_reload(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await opened(studio, PLAY)
        browser = await joined(studio, "talks")
        await consented(browser)
        page = await my_turn(browser)
        draft = {"turn": hidden(page.text, "turn"), "argument": "I have begun to wri"}
        assert (await browser.post(f"{page.url}/draft", data=draft)).status_code == 204
        assert "I have begun to wri</textarea>" in (await browser.get("/study")).text

    run(sqlite_url, work)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "game"}, "kind"),
        ({"turn_seconds": 0}, "turn_seconds"),
        ({"name": "No Spaces"}, "name"),
        ({"partners": "human"}, "partners"),
        ({"interview": [{"name": "a", "text": "?"}, {"name": "a", "text": "!"}]}, "questions"),
        ({"questionnaire": [{"name": "a", "text": "?"}, {"name": "a", "text": "?"}]}, "questions"),
    ],
)
def test_a_wrong_setting_is_named_in_the_error(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        study_of({**PLAY, **change})
    assert field in str(error.value)


def test_a_study_needs_a_unique_name_and_assignments(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        await opened(studio, PLAY)
        with pytest.raises(ConflictError):
            await opening.open_study(studio.database, ServiceSettings(), study_of(PLAY))
        with pytest.raises(InvalidValueError):
            await opening.open_study(studio.database, ServiceSettings(), study_of({**ANNOTATE, "runs": ["none"]}))

    run(sqlite_url, work)


def test_the_guides_of_annotators_are_those_of_judges() -> None:
    assert set(dimension_guides()) >= {"goal", "believability", "secret"}


def test_the_study_that_ships_can_be_opened(sqlite_url: str) -> None:
    async def work(studio: Studio) -> None:
        settings = read_yaml(Path(__file__).parents[2] / "studies" / "validate_everyday.yaml")
        researcher = await opened(studio, settings)
        progress = (await researcher.get("/api/v1/studies/everyday")).json()["progress"]
        assert progress["open"] == 3 * len(tuple(naming.task_set("everyday", None, 0, "medium")))

    run(sqlite_url, work)


@pytest.mark.parametrize("kind", ["play", "validate"])
def test_what_a_new_draft_begins_with_is_a_study(sqlite_url: str, kind: str) -> None:
    text = to_text(study_of(words().examples[kind]))

    async def work(studio: Studio) -> None:
        researcher = await studio.researcher()
        page = await researcher.post("/studies/new", data={"text": text, "then": "open"})
        assert "0 of" in page.text
        again = await researcher.post("/studies/new", data={"text": text, "then": "open"})
        assert again.status_code == 422
        assert (await researcher.post("/studies/new", data={"text": "kind: [play"})).status_code == 422
        links = await researcher.post(f"{page.url}/links", data={"count": "2"})
        assert links.text.count("/p/") == 2

    run(sqlite_url, work)


def test_the_form_of_an_annotation_has_the_dimensions_of_the_task() -> None:
    record = episode(task=plain_task(scenario=scenario(2, dimensions=(CHARM,))))
    study = AnnotateStudy(name="charming", title="Score talks")
    (question,) = [q for q in annotation_form(study, record)[0].questions if q.name == "agent_0.charm"]
    assert (question.low, question.high, question.note) == (1, 3, CHARM.instruction)
