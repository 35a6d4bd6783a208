"""The page of a seat as a conversation, in a real browser: what a person sees after every turn, at two sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, TimeoutError, expect

from sotopia_env import naming
from sotopia_env.world import Action, Rules
from sotopia_env.world.action import ActionType
from tests.sotopia_studio.studio import Studio, running

SIZES = {"desk": (1280, 860), "phone": (390, 844)}


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with running(tmp_path_factory.mktemp("studio")) as server:
        yield server


def seated(studio: Studio, size: str, turns: int = 40, **changes: Any) -> tuple[Page, str]:
    """A page of a new conversation, in which it is the person's turn."""
    width, height = SIZES[size]
    episode = studio.begin(rules=Rules(max_turns=turns), **changes)
    studio.wait(episode, "waiting")
    page = studio.page(width)
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    return page, episode


def expect_in_view(page: Page) -> None:
    """Waits until all of the newest turn is in the window and nothing lies over it; fails where that does not come."""
    places = """() => {
      const turn = [...document.querySelectorAll(".turn")].at(-1), box = turn.getBoundingClientRect();
      const composer = document.querySelector(".composer").getBoundingClientRect();
      const over = [box.top + 2, box.bottom - 2].map(
        (y) => document.elementFromPoint(box.left + box.width / 2, y));
      const inside = box.top >= 0 && box.bottom <= Math.min(composer.top, window.innerHeight);
      return {
        seen: inside && over.every((element) => turn.contains(element)),
        turn: [box.top, box.bottom], composer: composer.top,
        scrolled: [document.querySelector(".talk").scrollTop, scrollY],
        over: over.map((element) => element?.outerHTML.slice(0, 80)),
      };
    }"""
    try:  # a page is swapped first and scrolled then: a test may look between the two
        page.wait_for_function(f"({places})().seen", timeout=5_000)
    except TimeoutError:
        raise AssertionError(page.evaluate(places)) from None


def say(page: Page, words: str) -> None:
    page.get_by_label("Your words").fill(words)
    page.get_by_role("button", name="Send").click()


@pytest.mark.parametrize("size", SIZES)
def test_the_newest_words_are_in_view_after_every_turn(studio: Studio, size: str) -> None:
    page, episode = seated(studio, size)
    page.evaluate("window.stays = true")
    for exchange in range(6):
        if exchange == 3:  # the fields of an offer make the form taller
            page.get_by_label("make an offer").check()
            page.get_by_role("spinbutton").fill(str(99 + exchange))
            expect(page.locator(".composer .worth")).to_contain_text("to you")
            expect_in_view(page)
        say(page, f"This is what I have to say in exchange {exchange}, in a few more words than necessary.")
        expect(page.locator(".turn")).to_have_count(2 * exchange + 2)
        expect(page.get_by_label("Your words")).to_have_value("")
        expect_in_view(page)
        page.emulate_media(color_scheme="dark" if exchange % 2 else "light")
    assert page.evaluate("window.stays")  # nothing was loaded anew
    # The person acts on another device: the turn that arrives is in view, and so it is after the way back.
    studio.act(episode, Action(ActionType.SPEAK, "From my other device."), 12)
    expect(page.locator(".turn")).to_have_count(14)
    expect_in_view(page)
    page.get_by_label("Your words").fill("Half a sent")
    page.wait_for_timeout(1_000)  # the draft is kept after a pause in typing
    page.goto(f"{studio.address}/scenarios")
    page.go_back()
    expect(page.locator(".turn")).to_have_count(14)
    expect(page.get_by_label("Your words")).to_have_value("Half a sent")
    expect_in_view(page)
    studio.check(page)


def test_offers_are_on_the_board_with_their_worth_to_the_seat(studio: Studio) -> None:
    page, _ = seated(studio, "phone")
    worth = page.locator(".composer .worth")
    page.get_by_label("make an offer").check()
    page.get_by_role("spinbutton").fill("150")  # the task pays the buyer 186 less the price
    expect(worth).to_contain_text("$36 to you")
    expect(worth).to_contain_text("$0 without an agreement")
    expect(worth.get_by_role("img", name="your choice: $36")).to_be_visible()
    page.get_by_role("spinbutton").fill("200")
    expect(worth).to_contain_text("-$14 to you")
    page.get_by_label("no move").check()
    expect(worth).to_be_hidden()
    page.get_by_label("make an offer").check()
    say(page, "Well?")
    expect(page.locator(".turn")).to_have_count(2)
    board = page.get_by_role("region", name="On the table")
    expect(board).to_contain_text("$394")
    expect(board).to_contain_text("-$208 to you")
    page.get_by_text("Briefing", exact=True).click()  # one tap away, and folded otherwise
    expect(page.get_by_role("heading", name="Your goal")).to_be_visible()
    studio.check(page)


@pytest.mark.parametrize("size", SIZES)
def test_worths_are_pictures_and_tables_while_the_person_chooses(studio: Studio, size: str) -> None:
    page, _ = seated(studio, size, task=next(iter(naming.task_set("campsite", 1, 0, "medium"))))
    composer = page.locator(".composer")
    page.get_by_label("make an offer").check()
    for number, issue in enumerate(("food", "water", "firewood")):
        page.get_by_label(f"{issue} for you").fill("2")
        row = composer.get_by_role("row", name=issue)
        expect(row).to_contain_text("points")  # each issue as soon as it has a value
        expect(composer.get_by_role("row", name="in all")).to_contain_text("points" if number == 2 else "–")
    total = composer.get_by_role("row", name="in all").get_by_role("cell").inner_text()
    choice = composer.get_by_role("img", name=f"your choice: {total}")
    expect(choice).to_have_count(1)
    expect(composer.locator(".total")).to_be_in_viewport(ratio=1)
    say(page, "Two of each for me.")
    expect(page.locator(".turn")).to_have_count(2)
    expect_in_view(page)
    board = page.get_by_role("region", name="On the table")
    offers = board.get_by_role("row", name="in all")
    assert offers.count() >= 1
    picture = board.get_by_role("img", name="without an agreement")
    for worth in offers.get_by_role("cell").all():  # every open offer is in the picture, too
        expect(picture).to_have_accessible_name(re.compile(f"offer [0-9]+: {re.escape(worth.inner_text())}"))
    page.get_by_text("Briefing", exact=True).click()
    expect(page.get_by_role("region", name="Briefing").get_by_role("img")).to_have_count(3)
    studio.check(page)


def test_a_person_without_javascript_plays_with_plain_forms(studio: Studio) -> None:
    episode = studio.begin(rules=Rules(max_turns=8))
    studio.wait(episode, "waiting")
    context = studio.browser.new_context(java_script_enabled=False)
    context.add_cookies([{"name": "studio", "value": studio.cookie, "url": studio.address}])
    page = context.new_page()
    page.goto(f"{studio.address}/seat/{episode}/agent_0")
    # Playwright switches scripts off after parsing, so that Chromium does not render the sentence here.
    assert "<noscript>" in page.content()
    page.get_by_label("make an offer").check()
    say(page, "What about this?")  # without a price: refused, and nothing is lost
    expect(page.get_by_role("alert")).to_contain_text("price")
    expect(page.get_by_label("Your words")).to_have_value("What about this?")
    page.get_by_role("spinbutton").fill("150")
    page.get_by_role("button", name="Send").click()
    studio.wait(episode, "waiting", turns=2)
    page.reload()
    expect(page.locator(".turn")).to_have_count(2)
    page.get_by_text("Leave", exact=True).click()
    page.get_by_role("button", name="Leave the conversation").click()
    expect(page.locator(".composer")).to_contain_text("The conversation is over. You left.")
    context.close()


def test_a_person_leaves_whoever_has_the_turn(studio: Studio) -> None:
    episode = studio.begin(policies={"agent_0": "human", "agent_1": "human"}, rules=Rules(max_turns=8))
    studio.wait(episode, "waiting")
    first, second = studio.page(), studio.page()
    first.goto(f"{studio.address}/seat/{episode}/agent_0")
    second.goto(f"{studio.address}/seat/{episode}/agent_1")
    second.get_by_text("Leave", exact=True).click()
    expect(second.locator(".leave")).to_contain_text("That ends the conversation. Without an agreement you get $0.")
    studio.check(second)
    second.get_by_role("button", name="Leave the conversation").click()
    expect(second.get_by_role("status")).to_contain_text("You are leaving")
    assert "leaving" not in first.locator(".composer").inner_text()  # the other one may go on, and knows of nothing
    say(first, "Are you still there?")
    expect(first.locator(".turn").last).to_contain_text("left the conversation")
    for page in (first, second):
        expect(page.get_by_text("The conversation is over")).to_be_visible()
        expect(page.locator(".leave")).to_be_hidden()
    studio.wait(episode, "done")
