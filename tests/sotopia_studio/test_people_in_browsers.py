"""People in real browsers against a real server: two who talk, one whose server is killed, one who annotates."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from sotopia_studio.store import episodes, runs
from sotopia_studio.store.engine import Database

from sotopia_env import naming
from sotopia_env.people.replications import read_replication
from sotopia_env.people.studies.files import to_text
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from tests.sotopia_studio.browser import Served, chromium, served, watched

STUDY = """kind: play
name: {name}
title: Talk about a price
instructions: Read who you are.
tasks: bargaining
n: 1
partner: {partner}
seats: first
max_turns: 8
questionnaire:
  - {{name: natural, text: How natural was it, kind: scale, low: 1, high: 7}}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as studio:
        yield studio


def researcher(browser: Browser, studio: Served) -> Page:
    page = browser.new_context().new_page()
    page.goto(studio.login)
    page.get_by_role("button", name="Open the studio").click()
    expect(page).to_have_url(f"{studio.address}/")
    return page


def open_study(page: Page, studio: Served, name: str, partner: str) -> None:
    page.goto(f"{studio.address}/studies/new")
    page.get_by_label("Settings").fill(STUDY.format(name=name, partner=partner))
    page.get_by_role("button", name="Open the study").click()
    expect(page.get_by_role("heading", name="Talk about a price")).to_be_visible()


def participant(browser: Browser, studio: Served, name: str, **options: Any) -> tuple[Page, list[str]]:
    page = browser.new_context(**options).new_page()
    complaints = watched(page)
    page.goto(f"{studio.address}/join/{name}?PROLIFIC_PID={name}-{id(page)}")
    page.get_by_role("button", name="Begin").click()
    page.get_by_label("I agree").check()
    page.get_by_role("button", name="Take part", exact=True).click()
    page.get_by_role("button", name="I have read this").click()
    return page, complaints


def say(page: Page, words: str) -> None:
    page.get_by_label("Your words").fill(words)
    page.get_by_role("button", name="Send").click()


def test_two_people_talk_and_one_makes_an_offer(browser: Browser, studio: Served) -> None:
    open_study(researcher(browser, studio), studio, "pair", "person")
    first, complaints = participant(browser, studio, "pair")
    expect(first.get_by_role("heading", name="Looking for your partner")).to_be_visible()
    phone, others = participant(browser, studio, "pair", viewport={"width": 390, "height": 844})
    expect(first.get_by_text("It is your turn")).to_be_visible(timeout=10_000)
    first.screenshot(path=studio.folder / "seat.png", full_page=True)
    say(first, "Hello <i>there</i>")
    expect(phone.get_by_text("Hello <i>there</i>")).to_be_visible()
    expect(phone.get_by_text("It is your turn")).to_be_visible()
    phone.get_by_text("make an offer").click()
    phone.get_by_label(re.compile("price")).fill("1")
    say(phone, "Take it or leave it.")  # a price outside the range is explained, and nothing is lost
    expect(phone.get_by_role("alert")).to_contain_text("price")
    expect(phone.get_by_label("Your words")).to_have_value("Take it or leave it.")
    phone.screenshot(path=studio.folder / "phone.png", full_page=True)
    phone.get_by_label("How").select_option("leave")
    phone.get_by_text("no move").click()
    phone.get_by_role("button", name="Send").click()
    expect(first.get_by_text("The conversation is over")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    for page in (first, phone):
        page.get_by_role("link", name="Go on").click()
        page.get_by_label("5").check()
        page.get_by_role("button", name="Finish").click()
        expect(page.get_by_text("COMPLETED")).to_be_visible()
    assert complaints == []
    assert [text for text in others if "422" not in text] == []  # the browser reports the refused form itself


def test_two_people_play_the_ultimatum_game_of_a_replication(browser: Browser, studio: Served) -> None:
    study = read_replication("ultimatum").study("ultimatum").model_copy(update={"n": 1})
    page = researcher(browser, studio)
    page.goto(f"{studio.address}/studies/new")
    page.get_by_label("Settings").fill(to_text(study))
    page.get_by_role("button", name="Open the study").click()
    expect(page.get_by_role("heading", name="The ultimatum game")).to_be_visible()
    first, complaints = participant(browser, studio, "ultimatum")
    second, others = participant(browser, studio, "ultimatum", viewport={"width": 390, "height": 844})
    expect(first.get_by_text("It is your turn")).to_be_visible(timeout=10_000)
    first.get_by_text("choose offer 30 %").click()
    first.get_by_role("button", name="Send").click()
    expect(second.get_by_text("It is your turn")).to_be_visible()
    expect(second.get_by_text("offer 30 %").first).to_be_visible()  # it sees the offer before it answers
    second.screenshot(path=studio.folder / "ultimatum.png", full_page=True)
    second.get_by_text(re.compile("choose (sign|take|pick)")).click()
    second.get_by_role("button", name="Send").click()
    for seat in (first, second):
        expect(seat.get_by_text("The conversation is over")).to_be_visible()
    assert complaints == others == []


def test_a_conversation_continues_after_the_server_was_killed(browser: Browser, studio: Served) -> None:
    open_study(researcher(browser, studio), studio, "alone", "boulware")
    page, _ = participant(browser, studio, "alone")
    expect(page.get_by_text("It is your turn")).to_be_visible()
    say(page, "First words.")
    expect(page.locator(".turn")).to_have_count(2)
    page.get_by_label("Your words").fill("Half a sent")
    page.wait_for_timeout(1_000)  # the draft is kept after a pause in typing
    studio.kill()
    studio.start()
    page.reload()
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.get_by_text("First words.")).to_be_visible()
    expect(page.get_by_label("Your words")).to_have_value("Half a sent")
    say(page, "Second words.")
    expect(page.locator(".turn")).to_have_count(4, timeout=30_000)  # the killed worker's lease may have to run out


def test_a_stale_page_is_explained_and_a_second_click_has_no_effect(browser: Browser, studio: Served) -> None:
    open_study(researcher(browser, studio), studio, "stale", "boulware")
    page, complaints = participant(browser, studio, "stale")
    expect(page.get_by_text("It is your turn")).to_be_visible()
    twin = page.context.new_page()
    twin.route("**/changes", lambda route: route.abort())  # a page whose stream is cut does not see what happens
    twin.goto(page.url)
    say(page, "From the first page.")
    expect(page.locator(".turn")).to_have_count(2)
    say(twin, "From the second page.")
    expect(twin.get_by_role("alert")).to_contain_text("over already")
    expect(twin.locator(".turn")).to_have_count(2)
    page.get_by_label("Your words").fill("Twice.")
    page.get_by_role("button", name="Send").dblclick()
    expect(page.locator(".turn")).to_have_count(4)
    assert complaints == []


ANNOTATION = """kind: annotate
name: scores
title: Score a conversation
runs: [{run}]
dimensions: [goal, believability]
min_words: 3
"""


async def record_run(studio: Served) -> str:
    """A run of one scripted episode in the studio's database."""
    tasks = naming.task_set("bargaining", 1, 0, "medium")
    plans = plan_episodes(tasks, all_matchups([naming.make_policy("boulware"), naming.make_policy("conceder")], False))
    evaluator = naming.make_evaluator("verified")
    result = await run_episodes(plans[:1], evaluator=evaluator, progress=False)
    database = Database(f"sqlite:///{studio.folder}/studio.db")
    async with database.write() as connection:
        run = await runs.add(connection, "{}", planned=1, status="done")
        await episodes.add_recorded(connection, run, [(result.episodes[0], "")], 0.0)
    await database.close()
    return run


def annotate(page: Page, goal: int) -> None:
    expect(page.locator(".form-section")).not_to_have_count(0)  # `all` does not wait
    for section in page.locator(".form-section").all():
        for number, reason in enumerate(section.get_by_role("textbox").all()):
            reason.fill(f"Held out for the price that was wanted, number {number}.")
        section.get_by_role("group", name="Goal").get_by_label(str(goal), exact=True).check()
        section.get_by_role("group", name="Believability").get_by_label("7", exact=True).check()


def test_two_annotators_and_their_agreement(browser: Browser, studio: Served) -> None:
    with ThreadPoolExecutor(1) as pool:  # the browser's own event loop runs in this thread
        run = pool.submit(lambda: asyncio.run(record_run(studio))).result()
    page = researcher(browser, studio)
    page.goto(f"{studio.address}/studies/new")
    page.get_by_label("Settings").fill(ANNOTATION.format(run=run))
    page.get_by_role("button", name="Open the study").click()
    for number in range(2):
        reader = browser.new_context().new_page()
        complaints = watched(reader)
        reader.goto(f"{studio.address}/join/scores?PROLIFIC_PID=reader-{number}")
        reader.get_by_role("button", name="Begin").click()
        reader.get_by_label("I agree").check()
        reader.get_by_role("button", name="Take part", exact=True).click()
        reader.get_by_role("button", name="I have read this").click()
        assert "boulware" not in reader.content()
        annotate(reader, 6 + number)
        reader.wait_for_timeout(1_000)
        reader.reload()  # what was typed and chosen is there again
        expect(reader.get_by_role("textbox").first).to_have_value(re.compile("Held out"))
        expect(reader.get_by_role("group", name="Goal").first.get_by_label(str(6 + number), exact=True)).to_be_checked()
        reader.screenshot(path=studio.folder / "rating.png", full_page=True)
        reader.get_by_role("button", name="Send and go on").click()
        expect(reader.get_by_text("COMPLETED")).to_be_visible()
        assert complaints == []
    page.reload()
    expect(page.get_by_text("2 of 2 done")).to_be_visible()
    page.screenshot(path=studio.folder / "study.png", full_page=True)
    page.get_by_role("link", name="Agreement").click()
    expect(page.get_by_role("heading", name="Agreement")).to_be_visible()
