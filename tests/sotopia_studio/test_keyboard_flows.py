"""More flows with the keyboard alone: the seat at two sizes, a draft by a model, lists, Compare, a study's page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from sotopia_studio.store import library, runs

from sotopia_env import tasks as shipped
from sotopia_env.chat_model.options import ModelOptions
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.writing.test_simulation import simulation
from tests.sotopia_studio.studio import Studio, running
from tests.sotopia_studio.test_keyboard import join, open_study, press, tab_to, write
from tests.sotopia_studio.test_seat_in_view import expect_in_view, seated

PLAY = {
    "kind": "play",
    "title": "Talk",
    "instructions": "Read.",
    "tasks": "bargaining",
    "n": 1,
    "seats": "first",
    "partner": "boulware",
}


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with LoopbackServer(reply=lambda _: json.dumps(simulation()), models=("tiny",)) as model:
        models = ModelOptions.model_validate({"api_base": model.api_base})
        with running(tmp_path_factory.mktemp("studio"), models=models, model_names=("local/tiny",)) as server:
            yield server


@pytest.mark.parametrize("size", ["desk", pytest.param("phone", marks=pytest.mark.slow("the seat once more"))])
def test_a_seat_from_the_briefing_to_the_end(studio: Studio, size: str) -> None:
    page, _ = seated(studio, size)
    page.emulate_media(color_scheme="dark" if size == "phone" else "light")
    briefing, goal = page.locator("details.briefing"), page.get_by_role("heading", name="Your goal")
    expect(goal).to_be_visible()  # open before the first words, since it is what they are about
    press(page, briefing.locator("> summary"))
    expect(goal).to_be_hidden()
    for exchange in range(3):
        write(page, page.get_by_label("Your words"), f"Exchange {exchange}, in a few more words than necessary.")
        press(page, page.get_by_role("button", name="Send"))
        expect(page.locator(".turn")).to_have_count(2 * exchange + 2)
        expect(page.get_by_label("Your words")).to_be_focused()
        expect_in_view(page)
    press(page, briefing.locator("> summary"))
    expect(goal).to_be_visible()
    page.keyboard.press("Enter")
    expect(goal).to_be_hidden()
    write(page, page.get_by_label("Your words"), "Half a sent")
    page.wait_for_timeout(1_000)  # the draft is kept after a pause in typing
    page.reload()
    expect(page.get_by_label("Your words")).to_have_value("Half a sent")
    press(page, page.locator("details.leave > summary"))
    expect(page.locator(".leave")).to_contain_text("That ends the conversation. Without an agreement you get $0.")
    studio.check(page)
    press(page, page.get_by_role("button", name="Leave the conversation"))
    expect(page.get_by_text("The conversation is over. You left.")).to_be_visible()
    studio.check(page)
    press(page, page.get_by_role("link", name="See the episode"))
    expect(page.locator("#transcript > .turn").last).to_contain_text("left the conversation")


def test_the_focus_goes_down_the_seat_as_the_eye_does(studio: Studio) -> None:
    page, _ = seated(studio, "phone")
    heights = []
    tab_to(page, page.locator("details.briefing > summary"))
    while not page.evaluate("document.activeElement.textContent.trim() === 'Send'"):
        heights.append(page.evaluate("document.activeElement.getBoundingClientRect().top"))
        page.keyboard.press("Tab")
        assert len(heights) < 40
    assert heights == sorted(heights)


def test_a_sentence_becomes_a_draft_and_is_played(studio: Studio) -> None:
    page = studio.page()
    page.goto(studio.address)
    press(page, page.get_by_role("link", name="Describe it in a sentence"))
    write(page, page.get_by_label("Who meets, and what for?"), "Three flatmates decide who gets the large room.")
    write(page, page.get_by_label("Language model"), "local/tiny")
    press(page, page.get_by_role("button", name="Draft"))
    draft = page.get_by_label("Draft 1")
    expect(draft).to_have_value(re.compile("large-room"))
    studio.check(page)
    tab_to(page, draft)
    press(page, page.get_by_role("button", name="Save and simulate"))
    seats = page.get_by_label("Played by")
    expect(seats).to_have_count(3)  # `all` does not wait
    for seat in seats.all():
        write(page, seat, "silent")
    press(page, page.get_by_role("button", name="Begin"))
    expect(page.locator("#status")).to_contain_text("done")
    studio.check(page)


@pytest.fixture
def filled(studio: Studio) -> None:
    async def fill() -> None:
        async with studio.database.write() as connection:
            await library.put_cast(connection, shipped.starter_cast(), shipped.starter_scenarios(), tags=["starter"])

    studio.do(fill())
    for policies in (("boulware", "conceder"), ("linear", "conceder")):
        episode = studio.begin(policies=dict(zip(("agent_0", "agent_1"), policies, strict=True)), tag="keys")
        studio.wait(episode, "done")


def type_into_menu(page: Page, label: str, text: str) -> None:
    """Chooses an entry of a menu by the first letters of it."""
    tab_to(page, page.get_by_label(label, exact=True))
    page.keyboard.type(text)


@pytest.mark.usefixtures("filled")
def test_lists_are_filtered_opened_and_left_through(studio: Studio) -> None:
    page = studio.page()
    page.goto(f"{studio.address}/episodes")
    type_into_menu(page, "Policy", "linear")
    press(page, page.get_by_role("button", name="Filter"))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("linear")
    press(page, page.get_by_role("link", name="Clear"))
    expect(rows).not_to_have_count(1)
    press(page, rows.first.get_by_role("link"))
    expect(page).to_have_url(re.compile(r"/episodes/\w"))
    first = page.url
    page.keyboard.press("j")
    expect(page).not_to_have_url(first)
    page.keyboard.press("k")
    expect(page).to_have_url(first)
    page.goto(f"{studio.address}/characters")
    type_into_menu(page, "Gender", "nonbinary")
    press(page, page.get_by_role("button", name="Filter"))
    expect(page.locator(".cards > li")).to_have_count(2)
    press(page, page.locator(".cards a").first)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.goto(f"{studio.address}/scenarios")
    write(page, page.get_by_label("Name or words"), "orchard")
    press(page, page.get_by_role("button", name="Filter"))
    press(page, page.get_by_role("link", name="orchard-harvest"))
    press(page, page.get_by_role("link", name="Simulate", exact=True).last)
    expect(page.get_by_role("heading", name="orchard-harvest")).to_be_visible()
    studio.check(page)


@pytest.mark.usefixtures("filled")
def test_episodes_of_a_tag_are_compared(studio: Studio) -> None:
    page = studio.page()
    page.goto(f"{studio.address}/compare")
    type_into_menu(page, "Episodes with the tag", "keys")
    press(page, page.get_by_role("button", name="Compare"))
    expect(page.locator(".headline")).to_be_visible()
    expect(page.get_by_role("table").first).to_contain_text("linear")
    studio.check(page)
    tab_to(page, page.locator("main .table").first)  # a table that is too wide is scrolled with the arrows
    press(page, page.locator("details.choices > summary"))
    expect(page.get_by_role("button", name="Compare")).to_be_visible()


def test_a_studys_page_makes_links_and_closes_the_study(studio: Studio) -> None:
    open_study(studio, name="board-keys", **PLAY)
    person = join(studio, "board-keys")
    page = studio.page()
    page.goto(f"{studio.address}/studies/board-keys")
    write(page, page.get_by_label("Personal links"), "2")
    press(page, page.get_by_role("button", name="Make"))
    expect(page.get_by_text("Each works once")).to_be_visible()
    write(person, person.get_by_label("Your words"), "Good morning.")
    press(person, person.get_by_role("button", name="Send"))
    conversation = page.get_by_role("region", name="People").get_by_role("link", name="2 turns")
    expect(conversation).to_be_visible()
    press(page, page.get_by_role("button", name="Close the study"))
    expect(page.get_by_role("button", name="Open it again")).to_be_visible()
    studio.check(page)
    press(page, conversation)
    expect(page.locator("#transcript > .turn")).to_have_count(2)


def test_a_run_without_a_name_is_found_by_one(studio: Studio) -> None:
    async def add() -> str:
        async with studio.database.write() as connection:
            return await runs.add(connection, "{}", planned=3, status="done")

    run = studio.do(add())
    page = studio.page()
    page.goto(f"{studio.address}/runs")
    studio.check(page)
    press(page, page.get_by_role("link", name=f"run {run[-6:]}"))
    expect(page.get_by_role("heading", name=f"run {run[-6:]}")).to_be_visible()


def test_a_person_who_waits_is_not_interrupted_by_reloads(studio: Studio) -> None:
    open_study(studio, name="waiting-keys", **{**PLAY, "partner": "person"})
    page = join(studio, "waiting-keys")
    expect(page.get_by_role("heading", name="Looking for your partner")).to_be_visible()
    studio.check(page)
    page.evaluate("window.stays = true")
    tab_to(page, page.get_by_role("button", name="Stop waiting"))
    with page.expect_response("**/study"):
        pass
    page.wait_for_timeout(300)
    expect(page.get_by_role("button", name="Stop waiting")).to_be_focused()
    assert page.evaluate("window.stays")
    join(studio, "waiting-keys")
    expect(page.get_by_role("heading", name=re.compile("^You are"))).to_be_visible()
