"""The board of a study, the page of agreement and assistants, in a real browser: two sizes, light and dark."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sotopia_studio import live
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store import episodes, runs, studies
from sotopia_studio.studies import opening

from sotopia_env import naming
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.people.studies.settings import study_of
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.plan import all_matchups
from tests.sotopia_studio.studio import Studio, running
from tests.sotopia_studio.test_keyboard import press, tab_to
from tests.sotopia_studio.test_seat_in_view import SIZES, expect_in_view, say

PLAY = {
    "kind": "play",
    "title": "Talk about a price",
    "tasks": "bargaining",
    "n": 2,
    "seats": "first",
    "partner": "boulware",
    "max_turns": 8,
    "repeats": 2,
    "adviser": "conceder",
}


HELP = {
    "name": "help",
    "varies": "assistance",
    "levels": [{"name": "alone", "value": "none"}, {"name": "helped", "value": "propose"}],
}
"""A factor of two conditions."""


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


def sized(page: Page, size: str) -> Page:
    page.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
    return page


def open_study(studio: Studio, **settings: Any) -> None:
    studio.do(opening.open_study(studio.database, ServiceSettings(), study_of(settings)))


def join(studio: Studio, name: str, size: str = "desk") -> Page:
    """A participant on the page of the seat."""
    page = sized(studio.guest(), size)
    page.goto(f"{studio.address}/join/{name}?PROLIFIC_PID={name}-{size}")
    page.get_by_role("button", name="Begin").click()
    page.get_by_label("I agree").check()
    page.get_by_role("button", name="Take part", exact=True).click()
    return page


def test_the_board_follows_the_people(studio: Studio) -> None:
    open_study(studio, **PLAY, name="table-talk", factors=[HELP])
    board = studio.page()
    board.goto(f"{studio.address}/studies/table-talk")
    expect(board.get_by_text("Nobody yet")).to_be_visible()
    first = join(studio, "table-talk")
    people = board.get_by_role("region", name="People")
    expect(people.get_by_role("row")).to_have_count(2)  # by itself: nothing is loaded anew
    expect(people).to_contain_text("has the turn")
    expect(people).to_contain_text("help: alone")
    say(first, "Good morning.")
    expect(people).to_contain_text("2 turns")
    first.get_by_text("Leave", exact=True).click()
    first.get_by_role("button", name="Leave the conversation").click()
    first.get_by_role("link", name="Go on").click()
    expect(people.get_by_role("row").last).to_contain_text("done")
    expect(board.locator(".figures")).to_contain_text("0 tokens")
    second = join(studio, "table-talk", "phone")
    expect(people.get_by_role("row")).to_have_count(3)
    board.get_by_role("button", name="Close the study").click()
    expect(board.get_by_text("the 1 who is in it may finish")).to_be_visible()
    say(second, "I may finish.")
    expect(second.locator(".turn")).to_have_count(2)
    for size in SIZES:
        studio.check(sized(board, size))
    # By keyboard to a conversation of the study, and to all of them.
    conversation = people.get_by_role("link", name=re.compile("turn"))
    tab_to(board, conversation)
    say(second, "Now the board changes.")
    expect(conversation).to_have_text("4 turns")
    expect(conversation).to_be_focused()
    press(board, board.get_by_role("link", name="All its conversations"))
    expect(board).to_have_url(re.compile(r"/episodes\?tag=study"))
    expect(board.locator("tbody tr")).to_have_count(2)


def test_a_link_keeps_the_focus_when_rows_change_places(studio: Studio) -> None:
    open_study(studio, **PLAY, name="places", factors=[HELP])
    board = studio.page()
    board.goto(f"{studio.address}/studies/places")
    first, _ = join(studio, "places"), join(studio, "places", "phone")
    people = board.get_by_role("region", name="People")
    expect(people.get_by_role("link")).to_have_count(2)
    second = people.get_by_role("link").nth(1)
    address = second.get_attribute("href")
    tab_to(board, second)
    first.get_by_text("Leave", exact=True).click()
    first.get_by_role("button", name="Leave the conversation").click()
    first.get_by_role("link", name="Go on").click()
    expect(people.get_by_role("row").last).to_contain_text("done")  # those who have finished are below the others
    expect(people.locator(f'a[href="{address}"]')).to_be_focused()


def test_one_stream_serves_two_researchers_and_a_reload_and_no_participant(studio: Studio) -> None:
    open_study(studio, **PLAY, name="watched")
    boards = [studio.page(), studio.page(390)]
    requests: list[str] = []
    for board in boards:
        board.on("request", lambda request: requests.append(request.url) if request.url.endswith("/board") else None)
        board.goto(f"{studio.address}/studies/watched")
        expect(board.get_by_text("Nobody yet")).to_be_visible()
    person = join(studio, "watched")
    say(person, "Good morning.")
    people = [board.get_by_role("region", name="People") for board in boards]
    for region in people:
        expect(region.get_by_role("row").last).to_contain_text("2 turns")
    assert len(requests) == 2  # one stream each, however often the board changes
    boards[0].reload()
    expect(people[0]).to_have_text(re.compile("2 turns"))
    # What is read again is what was sent, once neither changes any more.
    deadline = time.monotonic() + 10
    while (read := people[0].text_content()) != people[1].text_content():
        assert time.monotonic() < deadline, read
        boards[0].wait_for_timeout(50)
    for asking in (person, studio.guest()):
        answer = asking.request.get(f"{studio.address}/studies/watched/board", headers={"accept": "text/event-stream"})
        assert answer.status in (401, 403)
        assert "has the turn" not in answer.text()
    assert boards[1].request.get(f"{studio.address}/studies/nowhere/board").status == 404


def test_the_board_says_that_a_model_has_died(studio: Studio) -> None:
    open_study(studio, **PLAY, name="outage")
    board = studio.page()
    board.goto(f"{studio.address}/studies/outage")
    person = join(studio, "outage")
    say(person, "Hello?")
    expect(person.locator(".turn")).to_have_count(2)
    episode = person.url.split("/")[-2]
    studio.do(live.end(studio.database, episode, "failed", "ModelCallError: no answer from http://127.0.0.1:9"))
    alert = board.get_by_role("alert")
    expect(alert).to_contain_text("planned again")
    expect(alert).to_contain_text("no answer from")
    person.goto(f"{studio.address}/study")  # the person goes on with another conversation
    expect(person.get_by_text("Nothing has been said yet")).to_be_visible()
    assert episode not in person.url
    studio.check(board)


def recorded(studio: Studio, n: int) -> str:
    """A run of scripted episodes."""
    tasks = naming.task_set("bargaining", n, 0, "medium")
    policies = [naming.make_policy("boulware"), naming.make_policy("conceder")]
    plans = plan_episodes(tasks, all_matchups(policies, False))[:n]
    with ThreadPoolExecutor(1) as pool:  # the browser's own event loop runs in this thread
        evaluator = naming.make_evaluator("verified")
        play = lambda: asyncio.run(run_episodes(plans, evaluator=evaluator, progress=False))  # noqa: E731
        result = pool.submit(play).result()

    async def add() -> str:
        async with studio.database.write() as connection:
            run = await runs.add(connection, "{}", planned=n, status="done")
            await episodes.add_recorded(connection, run, [(item, "") for item in result.episodes], 0.0)
        return run

    return studio.do(add())


def annotate(studio: Studio, name: str) -> None:
    """Two people have scored every episode, and differ by a point at some."""

    async def work() -> None:
        async with studio.database.write() as connection:
            study = await studies.by_name(connection, name)
            people = [await studies.add_participant(connection, study.id) for _ in range(2)]
            rows = await studies.assignments(connection, study.id)
            items = list(dict.fromkeys(row.item for row in rows))
            for row in rows:
                person, score = people[row.slot], items.index(row.item) % 9
                answers = {f"agent_{seat}.goal": score + seat * (row.slot + score) % 2 for seat in (0, 1)}
                answers |= {f"{name}.reasoning": "Held out for the price that was wanted." for name in answers}
                values = {"answers": canonical_json(answers), "seconds": 400.0, "finished": 1.0}
                await studies.change_assignment(connection, row.id, state="done", participant=person, **values)

    studio.do(work())


def test_agreement_is_a_page_with_tables_intervals_and_a_picture(studio: Studio) -> None:
    settings = {"kind": "annotate", "title": "Score", "runs": [recorded(studio, 10)], "dimensions": ["goal"]}
    open_study(studio, **settings, name="scores", min_words=2)
    page = studio.page()
    page.goto(f"{studio.address}/studies/scores/agreement")
    expect(page.get_by_text("no annotations yet")).to_be_visible()
    studio.check(page)
    annotate(studio, "scores")
    page.goto(f"{studio.address}/studies/scores")
    press(page, page.get_by_role("link", name="Agreement", exact=True))
    expect(page.get_by_role("heading", name="Agreement", exact=True)).to_be_visible()
    picture = page.locator("figure img").first
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("complete", True)
    page.wait_for_function("image => image.naturalWidth > 200", arg=picture.element_handle())
    cells = page.locator("tr", has_text="goal").get_by_role("cell").all_inner_texts()
    assert any(re.fullmatch(r"-?\d\.\d\d \[-?\d\.\d\d, \d\.\d\d\]", cell) for cell in cells), cells
    for size in SIZES:
        studio.check(sized(page, size))


@pytest.mark.parametrize("size", SIZES)
def test_an_assistant_beside_the_form(studio: Studio, size: str) -> None:
    open_study(studio, **PLAY, name=f"propose-{size}", assistance="propose")
    page = join(studio, f"propose-{size}", size)
    panel, words = page.get_by_role("region", name="Your assistant"), page.get_by_label("Your words")
    put = panel.get_by_role("button", name="Put it into the form")
    expect(panel).to_contain_text("offer: price")
    expect(words).to_have_value("")  # nothing is filled in by itself
    say(page, "Let me think.")
    expect(page.locator(".turn")).to_have_count(2)
    expect_in_view(page)
    expect(put).to_be_visible()
    press(page, put)
    expect(page.get_by_label("make an offer")).to_be_checked()
    expect(words).not_to_have_value("")
    expect(page.locator(".composer .worth").first).to_contain_text("to you")
    assert size == "phone" or apart(page)
    expect_in_view(page)
    studio.check(page)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn")).to_have_count(4)
    expect_in_view(page)


def apart(page: Page) -> bool:
    """Whether the assistant lies over neither the form nor the conversation."""
    return bool(
        page.evaluate(
            """() => {
              const [one, ...others] = [".assistant", ".composer", ".talk"].map(
                (name) => document.querySelector(name).getBoundingClientRect());
              return others.every((box) => one.bottom <= box.top + 1 || box.bottom <= one.top + 1
                || one.right <= box.left + 1 || box.right <= one.left + 1);
            }"""
        )
    )


@pytest.mark.parametrize("size", SIZES)
def test_an_assistant_acts_until_the_person_takes_over(studio: Studio, size: str) -> None:
    open_study(studio, **PLAY, name=f"act-{size}", assistance="act")
    page = join(studio, f"act-{size}", size)
    panel = page.get_by_role("region", name="Your assistant")
    expect(panel).to_contain_text("unless you take over")
    expect(page.get_by_label("Your words")).to_be_hidden()
    studio.check(page)
    expect(page.locator(".turn")).to_have_count(2)  # after its pause
    expect(panel).to_contain_text("unless you take over")
    press(page, panel.get_by_role("button", name="Take over"))
    expect(panel).to_contain_text("You act yourself now")
    say(page, "From here on it is me.")
    expect(page.locator(".turn")).to_have_count(4)
    expect_in_view(page)
    assert apart(page)
    panel.get_by_role("button", name="Let the assistant act").click()
    expect(page.get_by_label("Your words")).to_be_hidden()
    studio.check(page)
